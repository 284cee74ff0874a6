"""Launch, as a page file; what it shows is in `app/launch_page.py`."""

from app.launch_page import page

page()
