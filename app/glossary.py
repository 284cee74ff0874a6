"""What every number on the pages means: definition, unit and formula, said once. Pure text; pages show it as help.

A page that shows a number names its term here; `help_of` refuses a name that is not defined.
"""

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


TERMS: dict[str, Term] = {
    "idle_share": Term(
        definition="Share of the devices' known time in which they did nothing useful, for whatever cause.",
        unit="share of device time",
        formula="idle device-seconds / all device-seconds, from the first possible rollout to the last step",
    ),
    "lost_hours": Term(
        definition="Device time that was idle, summed over the devices.",
        unit="device-hours",
        formula="idle device-seconds / 3600",
    ),
}
"""Name -> term."""


def help_of(name: str) -> str:
    """Markdown for a widget's `help`. Raises KeyError for a name that is not in `TERMS`."""
    term = TERMS[name]
    parts = [term.definition]
    if term.unit:
        parts.append(f"**Unit:** {term.unit}")
    if term.formula:
        parts.append(f"**Formula:** {term.formula}")
    return "  \n".join(parts)
