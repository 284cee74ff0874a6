"""A term: what one number on a page means. Pure text; `app/terms/` holds the terms, `app/glossary.py` all of them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Term:
    """One number that pages show."""

    definition: str
    """One sentence, in the words of the design."""
    unit: str = ""
    """Such as "device-hours"; empty for a plain count or share."""
    formula: str = ""
    """How it is computed, in plain text; empty where the definition says it."""
    title: str = ""
    """What pages call it; the name's own words when empty."""


def merged(*parts: dict[str, Term]) -> dict[str, Term]:
    """All terms of `parts`. Raises ValueError naming a term that is defined twice."""
    found: dict[str, Term] = {}
    for part in parts:
        if twice := sorted(found.keys() & part.keys()):
            raise ValueError(f"a term is said once, these are defined twice: {', '.join(twice)}")
        found |= part
    return found
