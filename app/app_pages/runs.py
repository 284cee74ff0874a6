"""Runs, as a page file; what it shows is in `app/runs_page.py`."""

from app.runs_page import page

page()
