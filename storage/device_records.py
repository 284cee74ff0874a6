"""Records of what devices do: spans, open spans, where a device is, and rollups. Import them from `storage.records`.

A span longer than `words.MAX_SPAN_S` is one span to whoever reports it; `split` makes the pieces that are stored.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, replace

import numpy as np

from storage import words


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """What one device did from t0 to t1. Raises ValueError for unknown words, a negative device, or a wrong length."""

    run_id: str
    """The run."""
    device: int
    """Index inside the run."""
    t0: float
    """Start, unix seconds, from the worker's own clock."""
    t1: float
    """End, unix seconds; equal to the next span's t0."""
    kind: str
    """One of `words.SPAN_KINDS`."""
    role: str | None = None
    """primary or auxiliary; required for rollout and train."""
    cause: str | None = None
    """One of `words.IDLE_CAUSES` when idle, else None."""
    version: int | None = None
    """Version of the weights in use (optimizer updates)."""
    step: int | None = None
    """Step that the work belonged to."""
    cpu_s: float | None = None
    """CPU seconds of the worker during the span, the ledger's second witness."""
    ref: str | None = None
    """What was worked on, such as a chunk's or a checkpoint's name."""

    def __post_init__(self) -> None:
        if (self.kind, self.role, self.cause) not in words.COLUMN_INDEX:
            words.column_index(self.kind, self.role, self.cause)
        if self.device < 0:
            raise ValueError(f"device of a span must be at least 0, got {self.device!r}")
        if not 0 <= self.t1 - self.t0 <= words.LONGEST_SPAN_S:
            raise ValueError(
                f"t1 of a span must be 0 to {words.LONGEST_SPAN_S:.0f} s after its t0 {self.t0!r}, got {self.t1!r}"
            )

    @property
    def seconds(self) -> float:
        return self.t1 - self.t0

    @property
    def column(self) -> str:
        """The rollup column that this span's time belongs to."""
        return words.COLUMNS[words.column_index(self.kind, self.role, self.cause)]


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceState:
    """The open span of one device: what it has been doing since `since`. Raises ValueError for unknown words."""

    device: int
    """Index inside the run."""
    kind: str
    """One of `words.SPAN_KINDS`."""
    role: str | None = None
    """As in `Span`."""
    cause: str | None = None
    """As in `Span`; while a device idles its cause may still change."""
    version: int | None = None
    """Version of the weights in use."""
    step: int | None = None
    """Step that the work belongs to."""
    since: float
    """Start of the open span, unix seconds."""
    seen_at: float
    """When the worker last said so, unix seconds; what lies after it is unknown."""

    def __post_init__(self) -> None:
        words.column_index(self.kind, self.role, self.cause)

    @property
    def column(self) -> str:
        """The rollup column that the open span's time will belong to."""
        return words.COLUMNS[words.column_index(self.kind, self.role, self.cause)]


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceRow:
    """One device of a run and where it is. Raises ValueError for an unknown pool."""

    device: int
    """Index inside the run."""
    node: str
    """Name of the machine."""
    pool: str | None = None
    """Home pool, rollout or train; None when the run has no pools."""
    core: int | None = None
    """CPU core that the worker is pinned to."""
    pid: int | None = None
    """Process of the worker."""

    def __post_init__(self) -> None:
        if self.pool is not None:
            words.require("pool", self.pool, words.POOLS)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RollupWindow:
    """Rollups of one run and resolution; only bins that exist, so that missing telemetry is never idle time."""

    res: int
    """Length of a bin, seconds."""
    bins: np.ndarray
    """int64 [n]: bin numbers, ascending; bin b covers [b*res, (b+1)*res) in unix seconds."""
    ms: np.ndarray
    """int32 [n, devices, COLUMNS]: milliseconds; a row of zeros is a device of which nothing is known in that bin."""

    @property
    def starts(self) -> np.ndarray:
        """float64 [n]: start of each bin, unix seconds."""
        return self.bins.astype(np.float64) * self.res


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SpanTimes:
    """Raw spans as arrays, without what no picture of them needs: thousands are read within a refresh."""

    device: np.ndarray
    """int64 [n]."""
    t0: np.ndarray
    """float64 [n]: unix seconds."""
    t1: np.ndarray
    """float64 [n]: unix seconds."""
    column: np.ndarray
    """int64 [n]: index into `words.COLUMNS`."""


def split(span: Span) -> list[Span]:
    """The pieces of at most `words.MAX_SPAN_S` that are stored; CPU seconds are shared out by length.

    A span without length has no pieces: it holds no time, and its start is the next span's.
    """
    if span.seconds <= words.MAX_SPAN_S:
        return [span] if span.seconds else []
    count = math.ceil(span.seconds / words.MAX_SPAN_S)
    edges = [min(span.t0 + words.MAX_SPAN_S * i, span.t1) for i in range(count)] + [span.t1]
    return [
        replace(span, t0=t0, t1=t1, cpu_s=None if span.cpu_s is None else span.cpu_s * (t1 - t0) / span.seconds)
        for t0, t1 in itertools.pairwise(edges)
        if t1 > t0
    ]
