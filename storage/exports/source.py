"""Where an export reads: one run of a data folder, in one snapshot of its databases, so that its tables agree.

Nothing is written, and nothing is made up: what retention or a full queue took away is in `missing`, and every export
says it. All times are wall time as stored, also those of emulated devices; `label` and `pace` say how to read them.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import Any

from storage import words
from storage.codec import columns, from_row
from storage.database import TelemetryBroken, explained, open_read_only
from storage.paths import DataDir
from storage.records import Command, DeviceRow, RunRow
from storage.schema import CONTROL, TELEMETRY

EMULATED = "EMULATED"
"""How everything is labelled that comes from devices which only stand for others."""

AT_A_TIME = 20_000
"""Rows in memory at a time, some ten megabytes."""

Window = tuple[float, float]
"""From (included) and until (not included), unix seconds."""


class UnknownRun(ValueError):
    """The data folder has no such run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Missing:
    """Raw spans that are gone; the time they told of is still in the rollups."""

    reason: str
    """retention, or overflow of the writer's queue."""
    t0: float
    """None starts earlier, unix seconds."""
    t1: float
    """None ends later, unix seconds."""
    spans: int
    """How many pieces."""

    @property
    def sentence(self) -> str:
        """What a reader of an export is told."""
        return (
            f"{self.spans:,} raw spans between {self.t0:.3f} and {self.t1:.3f} (unix seconds) are gone ({self.reason});"
            " the rollups still count their time."
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """One run, as it is at one moment."""

    run: RunRow
    """Its row."""
    telemetry: sqlite3.Connection
    """Read-only, inside one transaction."""
    control: sqlite3.Connection | None
    """The mailbox, likewise; None where nobody ever sent a command."""
    window: Window | None = None
    """The only time that is asked for; None for the whole run."""

    @property
    def emulated(self) -> bool:
        """Whether its devices only stand for others."""
        return self.run.kind == "emulated"

    @property
    def label(self) -> str:
        """EMULATED, or nothing for real devices."""
        return EMULATED if self.emulated else ""

    @property
    def pace(self) -> str:
        """How to read seconds of an emulated run, one sentence; nothing for real devices."""
        if not self.emulated:
            return ""
        scale = self.run.time_scale or 1.0
        return (
            f"{EMULATED} devices: seconds are wall time as measured; divide by time_scale {scale:g} for those that the"
            " devices stand for."
        )

    def rows(self, sql: str, *parameters: Any) -> Iterator[tuple[Any, ...]]:
        """Rows of the telemetry, never more than AT_A_TIME in memory."""
        cursor = self.telemetry.execute(sql, parameters)
        while page := cursor.fetchmany(AT_A_TIME):
            yield from page

    def records(self, record: type[Any], tail: str, *parameters: Any) -> Iterator[Any]:
        """Records of a table whose columns are those of `record`."""
        names = ", ".join(f'"{name}"' for name in columns(record))
        return (from_row(record, row) for row in self.rows(f"SELECT {names} {tail}", *parameters))

    def span_rows(self, names: Sequence[str]) -> Iterator[tuple[Any, ...]]:
        """Columns of the raw spans that overlap the window, by start and device, unclipped."""
        picked = ", ".join(names)
        if self.window is None:
            return self.rows(f"SELECT {picked} FROM spans WHERE run_id = ? ORDER BY t0, device", self.run.run_id)
        t0, t1 = self.window
        return self.rows(
            f"SELECT {picked} FROM spans WHERE run_id = ? AND t0 >= ? AND t0 < ? AND t1 > ? ORDER BY t0, device",
            self.run.run_id,
            t0 - words.MAX_SPAN_S,
            t1,
            t0,
        )

    def devices(self) -> list[DeviceRow]:
        """In the order of their index; those that have spans and no row are told by their number alone."""
        return list(self.records(DeviceRow, "FROM devices WHERE run_id = ? ORDER BY device", self.run.run_id))

    def missing(self) -> list[Missing]:
        """Raw spans that are gone, of the window if there is one."""
        found = self.rows("SELECT reason, t0, t1, spans FROM raw_missing WHERE run_id = ?", self.run.run_id)
        every = [Missing(reason=reason, t0=t0, t1=t1, spans=spans) for reason, t0, t1, spans in found]
        return [one for one in every if self.window is None or (one.t0 < self.window[1] and one.t1 > self.window[0])]

    def commands(self) -> list[Command]:
        """What was asked of the run, in the order of sending."""
        if self.control is None:
            return []
        names = ", ".join(f'"{name}"' for name in columns(Command))
        found = self.control.execute(f"SELECT {names} FROM commands WHERE run_id = ? ORDER BY id", [self.run.run_id])
        return [from_row(Command, row) for row in found]

    def within(self, at: float | None) -> bool:
        """Whether a moment is known and inside the window."""
        return at is not None and (self.window is None or self.window[0] <= at < self.window[1])


@contextmanager
def open_run(data: DataDir, run_id: str, window: Window | None = None) -> Iterator[Source]:
    """Read one run. Raises UnknownRun, ValueError for a window that is none, and StorageError (each with its path)."""
    if window is not None and not window[0] < window[1]:
        raise ValueError(f"window must end after it starts, got {window[0]!r} to {window[1]!r}")
    with closing(open_read_only(data.telemetry_db, TELEMETRY)) as telemetry:
        control = open_read_only(data.control_db, CONTROL) if data.control_db.is_file() else None
        try:
            with explained(data.telemetry_db, TelemetryBroken):
                telemetry.execute("BEGIN")
                if control is not None:
                    control.execute("BEGIN")
                names = ", ".join(f'"{name}"' for name in columns(RunRow))
                found = telemetry.execute(f"SELECT {names} FROM runs WHERE run_id = ?", [run_id]).fetchone()
                if found is None:
                    raise UnknownRun(f"run {run_id!r} is not known in {data.root}")
                yield Source(run=from_row(RunRow, found), telemetry=telemetry, control=control, window=window)
        finally:
            if control is not None:
                control.close()
