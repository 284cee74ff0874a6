"""Sums of device time that a page shows of a run that goes on: since training began, and over the last minutes.

Reads what is new: minutes that no span can reach any more are added up once. It draws nothing.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from app.key_figures import RECENT_S, Sums
from storage.reader import TelemetryReader
from storage.records import DeviceState, RunRow
from storage.words import TERMINAL

PerDevice = dict[int, dict[str, float]]
"""Device -> rollup column -> seconds."""

SETTLED_S = 60
"""Settled time ends at a whole minute, where the coarsest rollups do."""

LATE_S = 120.0
"""A span is stored within seconds of its end; after two minutes none is on its way."""

EXACT_SPANS = 5_000
"""Up to so many spans are added up one by one, in milliseconds; more are summed from rollups, right to a millisecond a
column."""

EXACT_SPANS_OVER = 200_000
"""The same for a run that is over: it is summed once, as its result is."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Settled:
    """Sums that cannot change any more."""

    until: float
    """From the first possible rollout to here, unix seconds."""
    sums: PerDevice
    """Of closed spans."""


def since_training(
    reader: TelemetryReader, run: RunRow, states: Sequence[DeviceState], until: float, last: Settled | None
) -> tuple[Settled | None, PerDevice]:
    """Sums of closed spans from the first possible rollout (which must be known) to `until`, and what of them is
    settled. last: what was settled before, for the same run."""
    begin = run.training_at or until
    if run.state in TERMINAL:
        many = reader.count_spans(run.run_id, begin, until, EXACT_SPANS_OVER + 1) > EXACT_SPANS_OVER
        return None, reader.kind_seconds(run.run_id, begin, until, quick=many)
    settled = last or Settled(until=begin, sums={})
    # what is open now will reach back to its beginning when it closes
    reached = min([until, *(state.since for state in states)]) - LATE_S
    border = math.floor(reached / SETTLED_S) * SETTLED_S
    if border > settled.until:
        more = reader.kind_seconds(run.run_id, settled.until, border, quick=True)
        settled = Settled(until=border, sums=added(settled.sums, more))
    # nothing has closed in the future, so that the second that is not over needs no cutting
    rest = reader.kind_seconds(run.run_id, settled.until, math.ceil(until), quick=True)
    return settled, added(settled.sums, rest)


def recently(reader: TelemetryReader, run: RunRow, until: float) -> tuple[float, PerDevice]:
    """Where the last minutes begin, unix seconds, and the sums of closed spans from there to `until`."""
    begin = until - RECENT_S
    if reader.count_spans(run.run_id, begin, until, EXACT_SPANS + 1) <= EXACT_SPANS:
        return begin, reader.kind_seconds(run.run_id, begin, until)
    if run.state in TERMINAL:
        return begin, reader.kind_seconds(run.run_id, begin, until, quick=True)
    # whole seconds, so that no raw span has to be cut
    begin = math.floor(begin)
    return begin, reader.kind_seconds(run.run_id, begin, math.ceil(until), quick=True)


def with_open(closed: PerDevice, states: Sequence[DeviceState], t0: float, t1: float) -> PerDevice:
    """With the open spans inside [t0, t1), as far as their workers confirmed them."""
    opened: PerDevice = {}
    for state in states:
        seconds = min(state.seen_at, t1) - max(state.since, t0)
        if seconds > 0:
            opened[state.device] = {state.column: seconds}
    return added(closed, opened)


def added(a: Mapping[int, Sums], b: Mapping[int, Sums]) -> PerDevice:
    """Both, device by device and column by column."""
    result = {device: dict(sums) for device, sums in a.items()}
    for device, sums in b.items():
        mine = result.setdefault(device, {})
        for column, seconds in sums.items():
            mine[column] = mine.get(column, 0.0) + seconds
    return result
