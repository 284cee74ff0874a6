"""Text that came from elsewhere, as markdown that shows it literally. Pure."""

from __future__ import annotations

SPECIAL = frozenset("\\`*_[]{}<>$:#~|^!")
"""Characters with which markdown, HTML, LaTeX or Streamlit's own directives could begin."""


def literal(text: str) -> str:
    """`text` on one line, as it is."""
    return "".join(f"\\{c}" if c in SPECIAL else c for c in " ".join(text.split()))
