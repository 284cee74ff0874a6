"""Live, as a page file: AppTest and links find pages by their file; what it shows is in `app/live_page.py`."""

from app.live_page import page

page()
