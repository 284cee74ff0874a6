"""Timeline, as a page file; what it shows is in `app/timeline_page.py`."""

from app.timeline_page import page

page()
