"""Plan, as a page file; what it shows is in `app/plan_page.py`."""

from app.plan_page import page

page()
