"""Control, as a page file; what it shows is in `app/control_page.py`."""

from app.control_page import page

page()
