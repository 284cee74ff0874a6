"""Times as the reader's browser would write them. Pure: the browser's offset is handed in."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

DASH = "–"
"""In place of a value that is not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PageClock:
    """The reader's local time. Plotly's date axes know only UTC, so charts are drawn shifted by the offset."""

    offset_s: float = 0.0
    """Seconds that local time is ahead of UTC."""

    def local(self, at: float) -> datetime:
        """`at` (unix seconds) as a naive local time."""
        return datetime.fromtimestamp(0, UTC).replace(tzinfo=None) + timedelta(seconds=at + self.offset_s)

    def time(self, at: float) -> str:
        """hh:mm:ss."""
        return f"{self.local(at):%H:%M:%S}"

    def moment(self, at: float) -> str:
        """Date and time to the minute."""
        return f"{self.local(at):%Y-%m-%d %H:%M}"

    def axis(self, at: float) -> float:
        """Position on a Plotly date axis, milliseconds."""
        return round((at + self.offset_s) * 1000.0, 3)

    def from_axis(self, value: Any) -> float:
        """Unix seconds of a position that Plotly sent back: milliseconds, or text such as "2026-05-01 12:00:00.5".

        Raises ValueError for anything else.
        """
        if isinstance(value, bool) or not isinstance(value, int | float | str):
            raise ValueError(f"a position on a time axis must be milliseconds or a date, got {value!r}")
        if not isinstance(value, str):
            return value / 1000.0 - self.offset_s
        # Plotly writes up to four digits of fractions and leaves out what is zero
        whole, _, fraction = value.replace("T", " ").strip().rstrip("Z").partition(".")
        parsed = datetime.fromisoformat(whole).replace(tzinfo=UTC).timestamp()
        return parsed + (float(f"0.{fraction}") if fraction else 0.0) - self.offset_s


def duration(seconds: float) -> str:
    """ "850 ms", "42 s", "3 min 20 s", "2 h 5 min", "3 d 4 h"."""
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 10:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return _two(whole // 60, "min", whole % 60, "s")
    if whole < 86_400:
        return _two(whole // 3600, "h", whole % 3600 // 60, "min")
    return _two(whole // 86_400, "d", whole % 86_400 // 3600, "h")


def _two(big: int, big_unit: str, small: int, small_unit: str) -> str:
    return f"{big} {big_unit} {small} {small_unit}" if small else f"{big} {big_unit}"


def device_time(seconds: float) -> str:
    """Device-seconds in the unit a reader can weigh: "42 device-s", "3.1 device-min", "1.6 device-h"."""
    if seconds < 100:
        return f"{seconds:.1f} device-s" if seconds < 10 else f"{seconds:.0f} device-s"
    if seconds < 6000:
        return f"{seconds / 60:.1f} device-min"
    return f"{seconds / 3600:.1f} device-h"


def count(number: float) -> str:
    """ "812", "41.2 k", "3.1 M"."""
    for limit, divisor, unit in ((1e4, 1.0, ""), (1e6, 1e3, " k"), (1e9, 1e6, " M")):
        if abs(number) < limit:
            return f"{number / divisor:,.0f}" if divisor == 1.0 else f"{number / divisor:.1f}{unit}"
    return f"{number / 1e9:.1f} G"
