"""Learning, as a page file; what it shows is in `app/learning_page.py`."""

from app.learning_page import page

page()
