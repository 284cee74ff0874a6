"""The app's start: pages, in the order of an operator's questions, and nothing else. Run it with
`streamlit run app/serve.py`, or `bidirl serve` for all of it.

It reads storage, sends commands through the mailbox and never talks to the engine.
"""

from __future__ import annotations

import sys
from pathlib import Path

import streamlit as st

# streamlit puts the folder of this file on the path, not the one above it, where the packages are
ROOT = str(Path(__file__).resolve().parent.parent)
if ROOT not in sys.path:
    sys.path.insert(0, ROOT)

PAGES = (
    ("app_pages/live.py", "Live", ":material/monitoring:", True),
    ("app_pages/timeline.py", "Timeline", ":material/view_timeline:", False),
    ("app_pages/control.py", "Control", ":material/tune:", False),
    ("app_pages/decisions.py", "Decisions", ":material/rule:", False),
    ("app_pages/learning.py", "Learning", ":material/school:", False),
    ("app_pages/runs.py", "Runs", ":material/history:", False),
    ("app_pages/plan.py", "Plan", ":material/account_tree:", False),
    ("app_pages/launch.py", "Launch", ":material/rocket_launch:", False),
)

STYLE = """
.stMainBlockContainer { padding: 4.2rem 2.5rem 4rem; max-width: 1560px; margin: 0 auto; }
.st-key-launch_yaml textarea { font-family: var(--st-code-font, ui-monospace, monospace); font-size: .85rem; }
"""

# an icon of our own: a Material one would be fetched from outside
st.set_page_config(page_title="bidirl", page_icon=str(Path(__file__).with_name("icon.svg")), layout="wide")
st.html(f"<style>{STYLE}</style>")
st.navigation(
    [st.Page(path, title=title, icon=icon, default=default) for path, title, icon, default in PAGES], position="top"
).run()
