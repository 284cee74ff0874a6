"""What waits for the writer thread: rows in the order they were reported, and spans on their way into rollups.

Plain data without locks or disk; the writer calls it under its lock. When it is full it drops raw spans, never time:
their rollups are kept, and the drop is counted and noted with its place in time.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from storage.codec import columns, to_row
from storage.device_records import Span, split
from storage.rollups import Additions, RollupBuilder

FOLD_SPANS = 10_000
"""Spans that wait unfolded at most; a stalled disk then costs memory by bins and no longer by spans."""

ADMIT_FACTOR = 2
"""Rows that must not be lost are admitted up to this many times the bound; more means that the disk stands still."""

Row = tuple[Any, ...]


def insert_sql(table: str, names: Sequence[str], verb: str = "INSERT OR REPLACE") -> str:
    """The statement that stores rows whose values are in the order of `names`."""
    quoted = ", ".join(f'"{name}"' for name in names)
    return f"{verb} INTO {table} ({quoted}) VALUES ({', '.join('?' * len(names))})"


SPAN_SQL = insert_sql("spans", columns(Span), "INSERT")
"""Without REPLACE: a device cannot start two spans at once, and its rollups would count both."""

STORABLE = (int, float, str, bytes, bool, type(None))
_STORABLE = frozenset(STORABLE)


def checked(rows: list[Row]) -> list[Row]:
    """The rows, if SQLite can store every value; raises TypeError here, at the caller, and not in the writer thread.

    numpy's int64 and float32 are what it usually finds; `.item()` makes them storable.
    """
    for row in rows:
        if not _STORABLE.issuperset(map(type, row)):
            for value in row:
                if not isinstance(value, STORABLE):
                    raise TypeError(
                        f"{value!r} is a {type(value).__name__}; stored can be int, float, str, bytes, None"
                    )
    return rows


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """Rows for one statement, or the deletion of a run."""

    sql: str = ""
    """The statement."""
    rows: list[Row]
    """Its rows; none for a deletion."""
    deletes: str = ""
    """The run to delete, if this is a deletion."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """Everything that waited at one moment."""

    operations: list[Operation]
    """In the order of reporting."""
    additions: dict[str, Additions]
    """To the rollups, by run."""
    states: list[Row]
    """Rows of device_state."""
    dropped: dict[str, tuple[float, float, int]]
    """Run -> first start, last end (unix seconds) and number of raw spans that were dropped."""
    num_rows: int
    """Rows in `operations`."""


class Queue:
    """See the file's docstring. `max_rows` bounds what waits and what is being written together."""

    def __init__(self, max_rows: int) -> None:
        if max_rows < 1:
            raise ValueError(f"max_queue_rows must be at least 1, got {max_rows!r}")
        self._max_rows = max_rows
        self._operations: list[Operation] = []
        self._builder = RollupBuilder()
        self._unfolded: list[Span] = []
        self._dropped: dict[str, tuple[float, float, int]] = {}
        self._states: dict[tuple[str, int], Row] = {}
        self._waiting_since: float | None = None
        self._writing_since: float | None = None
        self.depth = 0
        self.spans_dropped = 0

    def put_spans(self, spans: Sequence[Span]) -> None:
        """Fold all of them; keep as many raw pieces as fit."""
        pieces = [piece for span in spans for piece in split(span)]
        room = max(0, self._max_rows - self.depth)
        self._append(SPAN_SQL, checked([to_row(piece) for piece in pieces[:room]]))
        self._unfolded.extend(pieces)
        if len(self._unfolded) >= FOLD_SPANS:
            self._fold()
        for piece in pieces[room:]:
            t0, t1, count = self._dropped.get(piece.run_id, (piece.t0, piece.t1, 0))
            self._dropped[piece.run_id] = min(t0, piece.t0), max(t1, piece.t1), count + 1
            self.spans_dropped += 1
        self._touch()

    def put_states(self, rows: list[Row]) -> None:
        """Rows of device_state; only the newest of a run's device is kept."""
        self._states.update(((row[0], row[1]), row) for row in checked(rows))
        self._touch()

    def put_rows(self, sql: str, rows: list[Row]) -> None:
        """Rows that must not be lost. Raises RuntimeError when far too many wait."""
        if self.depth + len(rows) > ADMIT_FACTOR * self._max_rows:
            raise RuntimeError(
                f"{self.depth} telemetry rows wait, at most {ADMIT_FACTOR * self._max_rows} may: "
                f"the disk has not taken any for {self.age_s:.1f} s"
            )
        self._append(sql, checked(rows))
        self._touch()

    def put_delete(self, run_id: str) -> None:
        """Delete the run when its turn comes, and forget what has not become rows yet."""
        self._fold()
        self._builder.forget(run_id)
        self._dropped.pop(run_id, None)
        self._states = {key: row for key, row in self._states.items() if key[0] != run_id}
        self._operations.append(Operation(rows=[], deletes=run_id))
        self._touch()

    def take(self) -> Batch:
        """Hand everything over to be written; it counts as waiting until `done`."""
        self._fold()
        batch = Batch(
            operations=self._operations,
            additions=self._builder.take(),
            states=list(self._states.values()),
            dropped=self._dropped,
            num_rows=sum(len(operation.rows) for operation in self._operations),
        )
        self._operations, self._states, self._dropped = [], {}, {}
        self._writing_since, self._waiting_since = self._waiting_since, None
        return batch

    def done(self, batch: Batch) -> None:
        """The batch is committed."""
        self.depth -= batch.num_rows
        self._writing_since = None

    @property
    def age_s(self) -> float:
        """Seconds since the oldest row that is not committed was reported; 0 when there is none."""
        oldest = self._waiting_since if self._writing_since is None else self._writing_since
        return 0.0 if oldest is None else time.monotonic() - oldest

    def _append(self, sql: str, rows: list[Row]) -> None:
        self.depth += len(rows)
        if self._operations and self._operations[-1].sql == sql:
            self._operations[-1].rows.extend(rows)
        elif rows:
            self._operations.append(Operation(sql=sql, rows=rows))

    def _fold(self) -> None:
        if self._unfolded:
            self._builder.add(self._unfolded)
            self._unfolded = []

    def _touch(self) -> None:
        if self._waiting_since is None:
            self._waiting_since = time.monotonic()
