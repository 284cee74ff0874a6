"""What a reader types into the filters of the Decisions page, as a filter of decisions. Pure.

A field that cannot be read narrows nothing, and a sentence beside it says what it must look like.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime, timedelta

from app.clock import PageClock
from storage.filters import DecisionFilter

_MOMENT = r"(?:([0-9]{4})-([0-9]{1,2})-([0-9]{1,2})[ T])?([0-9]{1,2}):([0-9]{2})(?::([0-9]{2}))?"
_TIMES = re.compile(rf"(?:{_MOMENT})?\s*([-–]?)\s*(?:{_MOMENT})?")
_STEPS = re.compile(r"([0-9]{0,12})\s*(?:([-–])\s*([0-9]{0,12}))?")

MAX_DIGITS = 12
"""No count of a run has more; SQLite's integers end at 19."""

DAY = timedelta(days=1)

STEPS_HELP = "such as 12, 10-20, or 10- for all from there on"
TIMES_HELP = "such as 14:05, 14:05:10-14:06, 14:05- or 2026-05-01 14:05"


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What stands in the fields; an empty text asks for everything."""

    action: str = ""
    """One of `words.DECISIONS`, or empty."""
    direction: str = ""
    """One of `words.DIRECTIONS`, or empty."""
    device: str = ""
    """Index of a device, or of the block that a refusal is about."""
    steps: str = ""
    """See `STEPS_HELP`."""
    times: str = ""
    """See `TIMES_HELP`; the reader's local time."""
    lease: str = ""
    """Number of a lease."""
    text: str = ""
    """Part of a reason."""
    lost_time: bool = False
    """Only what lost time."""


def understood(asked: Asked, clock: PageClock, began: float | None) -> tuple[DecisionFilter, dict[str, str]]:
    """The filter, and field -> what is wrong with it. began: when the run began, unix seconds; a time without a date is
    the first such time from then on."""
    problems: dict[str, str] = {}
    steps: tuple[int | None, int | None] = (None, None)
    times: tuple[float | None, float | None] = (None, None)
    try:
        steps = _steps(asked.steps)
    except ValueError as error:
        problems["steps"] = str(error)
    try:
        times = _times(asked.times, clock, began)
    except ValueError as error:
        problems["times"] = str(error)
    wanted = DecisionFilter(
        action=asked.action or None,
        direction=asked.direction or None,
        device=_whole("device", asked.device, problems),
        steps=steps,
        times=times,
        lease=_whole("lease", asked.lease, problems),
        text=asked.text.strip(),
        lost_time=asked.lost_time,
    )
    return wanted, problems


def _whole(name: str, text: str, problems: dict[str, str]) -> int | None:
    text = text.strip()
    if not text:
        return None
    if text.isascii() and text.isdecimal() and len(text) <= MAX_DIGITS:
        return int(text)
    problems[name] = f"must be the number of a {name}, got {text!r}"
    return None


def _steps(text: str) -> tuple[int | None, int | None]:
    text = text.strip()
    found = _STEPS.fullmatch(text)
    if not text:
        return None, None
    first, dash, last = found.groups() if found is not None else ("", None, None)
    if not (first or last):
        raise ValueError(f"must be steps {STEPS_HELP}, got {text!r}")
    low = int(first) if first else None
    high = int(last) if last else None if dash else low
    if low is not None and high is not None and low > high:
        raise ValueError(f"must not run backwards, got {text!r}")
    return low, high


def _times(text: str, clock: PageClock, began: float | None) -> tuple[float | None, float | None]:
    text = text.strip()
    if not text:
        return None, None
    found = _TIMES.fullmatch(text)
    parts = found.groups() if found is not None else ()
    if found is None or not (parts[3] or parts[10]) or (parts[3] and parts[10] and not parts[6]):
        raise ValueError(f"must be times {TIMES_HELP}, got {text!r}")
    first, dash, last = parts[:6], parts[6], parts[7:]
    low = _moment(first, clock, began, text) if parts[3] else None
    until = last if parts[10] else None if dash else first
    if until is None:
        return low, None
    # "until 14:05" means that all of that minute counts
    length = 1.0 if until[5] is not None else 60.0
    high = _moment(until, clock, low if low is not None else began, text) + length
    if low is not None and low >= high:
        raise ValueError(f"must not run backwards, got {text!r}")
    return low, high


def _moment(parts: tuple[str | None, ...], clock: PageClock, after: float | None, text: str) -> float:
    """Unix seconds. parts: year, month, day (or None), hour, minute, second (or None). after: see `understood`."""
    year, month, day, hour, minute, second = (None if part is None else int(part) for part in parts)
    start = clock.local(after or 0.0)
    try:
        if year is not None and month is not None and day is not None:
            local = datetime(year, month, day, hour or 0, minute or 0, second or 0)
        else:
            local = start.replace(hour=hour or 0, minute=minute or 0, second=second or 0, microsecond=0)
            # the minute in which the run began is one of its minutes
            if local + timedelta(minutes=1) <= start:
                local += DAY
    except ValueError:
        raise ValueError(f"must be times {TIMES_HELP}, got {text!r}") from None
    return (local - clock.local(0.0)).total_seconds()
