"""Decisions, as a page file; what it shows is in `app/decisions_page.py`."""

from app.decisions_page import page

page()
