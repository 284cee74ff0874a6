"""What a measurement found beside what must be, one line each, and the table of them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Found:
    """One line of the table."""

    what: str
    measured: str
    wanted: str = ""
    right: bool | None = None
    """None for what is told and not asked for."""


def most(what: str, value: float, limit: float, unit: str, scale: float = 1.0, more: str = "") -> Found:
    """A figure that may be at most `limit`."""
    shown = f"{value * scale:.3g} {unit}{more and f' ({more})'}"
    return Found(what=what, measured=shown, wanted=f"<= {limit * scale:g} {unit}", right=value <= limit)


def every(what: str, good: int, of: int) -> Found:
    """What must hold each time."""
    return Found(what=what, measured=f"{good} of {of}", wanted=f"{of}", right=good == of)


def table(found: list[Found]) -> str:
    """The figures beside what must be."""
    lines = [(f.what, f.measured, f.wanted, {True: "yes", False: "NO", None: ""}[f.right]) for f in found]
    widths = [max(len(line[i]) for line in [*lines, ("", "measured", "must be", "")]) for i in range(4)]
    head = ("GENERATED telemetry", "measured", "must be", "")
    return "\n".join("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
                     for line in [head, *lines])  # fmt: skip
