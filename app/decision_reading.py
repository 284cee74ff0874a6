"""Reads a page of decisions, the one that is opened, and what the address asks for. It draws nothing.

A page is read by the ids at its ends, so that the thousandth opens as fast as the first.
"""

from __future__ import annotations

from dataclasses import dataclass

from app.modelled import pace_of
from storage.filters import DecisionFilter
from storage.reader import TelemetryReader
from storage.records import DecisionRow, LeaseRow, RunRow

PAGE_ROWS = 100
"""Decisions read and listed at once: a few screens."""

MAX_SIBLINGS = 20
"""Decisions about one lease: a grant and an end, or a few more."""

DECISION_KEY, LEASE_KEY = "decision", "lease"
"""Names in the URL."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Which page of the list is shown."""

    before: int | None = None
    """Only decisions with a smaller id; None: the newest."""
    after: int | None = None
    """Only the next ones with a larger id."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Listed:
    """What is listed at one moment."""

    rows: list[DecisionRow]
    """Newest first, modelled."""
    leases: dict[int, LeaseRow]
    """Those that they name, modelled."""
    place: Place
    """The page that it is; the newest one when there is none that was asked for."""
    opened: DecisionRow | None
    """The decision that is told of; the newest listed one when none was chosen."""
    opened_lease: LeaseRow | None
    """Its lease."""
    siblings: list[DecisionRow]
    """All decisions about that lease."""
    older: bool
    """Whether there are more below."""
    matching: int
    """Decisions that the filter lets through."""


def asked_for(
    reader: TelemetryReader, run_id: str, *, decision: str | None, lease: str | None
) -> tuple[int | None, str]:
    """The decision that the address names by its number or by its lease, and what is wrong with what it names. Raises
    what the reader raises."""
    key, text = (DECISION_KEY, decision) if decision is not None else (LEASE_KEY, lease)
    if text is None:
        return None, ""
    if not (text.isascii() and text.isdecimal() and len(text) < 15):
        return None, f"The address asks for {key} {text!r}, which must be a number."
    number = int(text)
    if key == LEASE_KEY:
        granted = about_lease(reader, run_id, number)
        return (granted, "") if granted is not None else (None, f"This run has no decision about lease {number}.")
    found = reader.decision(run_id, number)
    return (number, "") if found is not None else (None, f"This run has no decision {number}.")


def about_lease(reader: TelemetryReader, run_id: str, lease: int) -> int | None:
    """Id of the decision that granted a lease, or of the first one about it. Raises what the reader raises."""
    about = reader.decisions_where(run_id, DecisionFilter(lease=lease), limit=MAX_SIBLINGS)
    granted = next((d for d in about if d.action == "lend"), about[-1] if about else None)
    return None if granted is None else granted.id


def read(reader: TelemetryReader, run: RunRow, wanted: DecisionFilter, place: Place, number: int | None) -> Listed:
    """number: of the decision that is opened, None for the newest listed one. Raises what the reader raises."""
    run_id, pace = run.run_id, pace_of(run)
    # one more than is shown tells whether there are others
    found = reader.decisions_where(run_id, wanted, limit=PAGE_ROWS + 1, before=place.before, after=place.after)
    if place.after is not None and len(found) <= PAGE_ROWS:
        place = Place()
        found = reader.decisions_where(run_id, wanted, limit=PAGE_ROWS + 1)
    rows = found[-PAGE_ROWS:] if place.after is not None else found[:PAGE_ROWS]
    opened = reader.decision(run_id, number) if number is not None else rows[0] if rows else None
    about = None if opened is None else opened.lease
    named = {d.lease for d in [*rows, *([opened] if opened else [])] if d.lease is not None}
    leases = {lease.lease: pace.lease(lease) for lease in reader.leases_numbered(run_id, named)}
    siblings = DecisionFilter(lease=about)
    return Listed(
        rows=[pace.decision(d) for d in rows],
        leases=leases,
        place=place,
        opened=None if opened is None else pace.decision(opened),
        opened_lease=None if about is None else leases.get(about),
        siblings=[] if about is None else reader.decisions_where(run_id, siblings, limit=MAX_SIBLINGS),
        older=place.after is not None or len(found) > len(rows),
        matching=reader.count_decisions(run_id, wanted),
    )
