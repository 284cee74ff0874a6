"""Help that every page's head leads to: what each number means, to be searched, and what the keyboard does."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape

import streamlit as st

from app.glossary import SYMBOLS, TERMS, found, title_of
from app.status import symbol

KEY = "F1"
"""Where everybody looks for help, and nothing that one types: a letter would be in the way of those who speak to their
computer."""

KEYBOARD: dict[str, tuple[tuple[str, str], ...]] = {
    "On every page": (
        ("F1", "this help"),
        ("Tab, Shift + Tab", "the next button, field, chart or table, or the one before"),
        ("Enter, Space", "press the button in focus"),
        ("Arrow keys", "choose in a list, scroll a table, go through tabs"),
        ("Esc", "close a list, a dialog, or what is said about a number"),
    ),
    "While a run goes on": (
        ("Alt + P", "pause, and resume"),
        ("Alt + K", "write a checkpoint"),
    ),
    "In a chart": (
        ("← →", "pan; with Shift by half of what is shown"),
        ("+ −", "zoom in and out"),
        ("0 or Esc", "back to live, or to the whole"),
        ("↑ ↓", "from point to point, or row to row of a raster, as a pointer would; with Shift ten at a time"),
        ("Page ↑ ↓", "the next series"),
        ("Enter", "open what is under that point, where a click does"),
        ("T", "the chart as a table, and back"),
        ("S", "save it as PNG, SVG, HTML or CSV"),
    ),
}
"""Heading -> keys and what they do."""

STYLE = """
.help-terms h3 { font-size: 1rem; margin: 1rem 0 .2rem; padding: 0; }
.help-terms dl { margin: 0; }
.help-terms dt { font-weight: 600; margin-top: .6rem; }
.help-terms dd { margin: 0; line-height: 1.45; }
.help-terms dd span { display: block; font-size: .88rem; opacity: .8; }
.help-terms dd code { font-size: .84rem; white-space: pre-wrap; overflow-wrap: anywhere; background: none; padding: 0; }
.help-terms kbd { font: inherit; font-weight: 600; border: 1px solid color-mix(in srgb, currentColor 30%, transparent);
  border-radius: .3rem; padding: 0 .4rem; white-space: nowrap; }
.help-terms th { text-align: left; font-weight: 400; padding: .25rem 1.2rem .25rem 0; white-space: nowrap; border: 0;
  vertical-align: top; }
.help-terms td { padding: .25rem 0; border: 0; }
"""


def button() -> None:
    """Opens the help; on every page, by a key too."""
    if st.button("Help", icon=symbol("help"), type="tertiary", key="help", shortcut=KEY):
        dialog()


@st.dialog("What the numbers mean", width="large", icon=symbol("help"))
def dialog() -> None:
    """All terms, those that are searched for, and the keys."""
    st.html(f"<style>{STYLE}</style>")
    numbers, letters, keys = st.tabs(["Numbers", "Letters in formulas", "Keyboard"])
    with numbers:
        query = st.text_input(
            "Search",
            key="help_search",
            live=True,
            icon=symbol("search"),
            placeholder=f"{len(TERMS)} numbers: idle, lag, C_in ...",
        )
        names = found(query)
        if names:
            st.html(listing(names))
        else:
            st.caption("No number is called or explained by all of these words.")
    with letters:
        st.html(symbols())
    with keys:
        st.html(keyboard())


def listing(names: Mapping[str, Sequence[str]]) -> str:
    """HTML of the terms of each heading."""
    parts = []
    for heading, group in names.items():
        parts.append(f"<h3>{escape(heading)}</h3><dl>{''.join(map(_term, group))}</dl>")
    return _wrapped("".join(parts))


def _term(name: str) -> str:
    term = TERMS[name]
    unit = f"<span>Unit: {escape(term.unit)}</span>" if term.unit else ""
    formula = f"<span>Formula: <code>{escape(term.formula)}</code></span>" if term.formula else ""
    return f"<dt>{escape(title_of(name))}</dt><dd>{escape(term.definition)}{unit}{formula}</dd>"


def symbols() -> str:
    """HTML of the letters and functions in formulas."""
    lines = "".join(_line(f"<code>{escape(letter)}</code>", told) for letter, told in SYMBOLS.items())
    return _wrapped(f"<table>{lines}</table>")


def keyboard() -> str:
    """HTML of what the keys do."""
    parts = []
    for heading, keys in KEYBOARD.items():
        lines = "".join(_line(f"<kbd>{escape(key)}</kbd>", told) for key, told in keys)
        parts.append(f"<h3>{escape(heading)}</h3><table>{lines}</table>")
    return _wrapped("".join(parts))


def _line(head: str, told: str) -> str:
    return f'<tr><th scope="row">{head}</th><td>{escape(told)}</td></tr>'


def _wrapped(html: str) -> str:
    return f'<div class="help-terms">{html}</div>'
