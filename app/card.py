"""One finding that needs an operator's attention."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Card:
    """One finding."""

    key: str
    """Stable name."""
    tone: str
    """error, warning or info."""
    icon: str
    """A Material symbol."""
    title: str
    """What, with its number."""
    text: str
    """Where it comes from and what to do next."""
