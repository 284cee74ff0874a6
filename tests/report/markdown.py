"""Tables and cells of Markdown. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

Spread = Mapping[str, Any]
"""mean, min and max of some runs."""


def table(names: Sequence[str], rows: Sequence[Sequence[str]], *, words: int = 1) -> str:
    """Rows of text; the first `words` columns are words, the others numbers."""
    marks = ["---" if place < words else "---:" for place in range(len(names))]
    return "\n".join("| " + " | ".join(line) + " |" for line in [names, marks, *rows])


def number(value: float | None, spec: str = ".3f") -> str:
    """A figure, or "-" where there is none."""
    return "-" if value is None else format(value, spec)


def spread(found: Spread | None, spec: str) -> str:
    """Mean, and from where to where its runs lie when they differ."""
    if found is None:
        return "-"
    mean, low, high = (format(found[name], spec) for name in ("mean", "min", "max"))
    return mean if low == high else f"{mean} ({low} to {high})"


def share(found: Spread | None) -> str:
    """The mean in percent."""
    return number(found["mean"] if found else None, ".1%")
