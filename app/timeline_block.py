"""What a block of the timeline is: its span, what was worked on, its lease with the decision behind it.

A block of one device is its raw span, joined over the pieces in which long ones are stored; of several devices, what
each of them did. Where raw spans are gone, what is left is said to be a sum.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from app import detail
from app.modelled import pace_of
from app.timeline_rows import members
from app.timeline_url import Block
from app.timeline_worst import TOUCH_S
from storage.filters import DecisionFilter
from storage.reader import TelemetryReader
from storage.records import DecisionRow, DeviceRow, GroupRow, LeaseRow, RunRow, Span, StepRow
from storage.words import RESOLUTIONS_S, TERMINAL

DECISIONS_AROUND_S = 2.0
"""Decisions this long before a bubble may have made it, and after it may have ended it."""

MOST_DECISIONS = 20
MOST_GROUPS = 30
MOST_MEMBERS = 32

GENERATES, TRAINS = ("rollout", "scoring"), ("train", "optimizer", "grad_merge")


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """What one device did without a break."""

    span: Span
    """Its first piece."""
    t0: float
    """Unix seconds."""
    t1: float
    """Unix seconds."""
    open: bool
    """Whether it still goes on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Chosen:
    """What is known of a block, or of a lease."""

    label: str
    """The row's, or the lease's."""
    at: float
    """Where it was clicked on, unix seconds."""
    devices: tuple[int, ...] = ()
    """Of the row."""
    work: Work | None = None
    """Of a single device; None where raw spans are gone."""
    sums: dict[str, float] | None = None
    """Column -> seconds of the bin around the click, where there is no work to tell."""
    bin_s: float = 0.0
    """Length of that bin, seconds."""
    others: tuple[tuple[int, Work], ...] = ()
    """What each device of a group of rows did."""
    lease: LeaseRow | None = None
    """That the block was part of; modelled where devices are emulated."""
    decisions: tuple[DecisionRow, ...] = ()
    """About that lease, newest first; modelled where devices are emulated."""
    around: tuple[DecisionRow, ...] | None = None
    """Made around a bubble, newest first and modelled likewise; None where nobody waited."""
    groups: tuple[GroupRow, ...] = ()
    """Being generated on the device then, or consumed by the step."""
    step: StepRow | None = None
    """The step that a trainer worked on."""


def read_block(
    reader: TelemetryReader, run: RunRow, block: Block, devices: Sequence[DeviceRow], steps: Sequence[StepRow]
) -> Chosen | None:
    """None when the row is not there. steps: of the run, in order. Raises what the reader raises."""
    row = members(devices, block.row)
    if not row:
        return None
    kind, _, name = block.row.partition(":")
    if len(row) > 1 or kind != "device":
        return Chosen(
            label=f"{'node ' if kind == 'node' else ''}{name} · {len(row)} devices",
            at=block.at,
            devices=tuple(d.device for d in row),
            others=tuple(
                (device.device, work)
                for device in row[:MOST_MEMBERS]
                if (work := work_at(reader, run, device.device, block.at)) is not None
            ),
        )
    device = row[0].device
    label, work = f"device {device}", work_at(reader, run, device, block.at)
    if work is None:
        found, bin_s = _sums_at(reader, run, device, block.at)
        return Chosen(label=label, at=block.at, devices=(device,), sums=found, bin_s=bin_s)
    lease = next((one for one in reader.leases_at(run.run_id, block.at) if device in one.devices), None)
    groups, step = _worked_on(reader, run, device, work, steps)
    return Chosen(
        label=label,
        at=block.at,
        devices=(device,),
        work=work,
        lease=None if lease is None else pace_of(run).lease(lease),
        decisions=_of_lease(reader, run, lease),
        around=_around(reader, run, work),
        groups=groups,
        step=step,
    )


def read_lease(reader: TelemetryReader, run: RunRow, number: int) -> Chosen | None:
    """None when there is no such lease."""
    found = reader.leases_numbered(run.run_id, [number])
    if not found:
        return None
    lease = found[0]
    return Chosen(
        label=f"lease {number}",
        at=lease.granted_at,
        devices=tuple(lease.devices),
        lease=pace_of(run).lease(lease),
        decisions=_of_lease(reader, run, lease),
    )


def work_at(reader: TelemetryReader, run: RunRow, device: int, at: float) -> Work | None:
    """What a device did at a moment, from its first piece to its last or to where its worker confirmed it."""
    opened = [] if run.state in TERMINAL else reader.device_states(run.run_id)
    # by number and not by time: a device may change what it does a hundred times a second, and a long block is stored
    # in pieces of a minute
    spans = reader.spans_near(run.run_id, device, at)
    going = [s for s in detail.open_spans(run.run_id, opened, math.inf) if s.device == device]
    return joined([*spans, *going], at, {s.t0 for s in going})


def joined(spans: Sequence[Span], at: float, going: set[float]) -> Work | None:
    """The block of one device's spans that holds `at`. going: begins of the open ones."""
    ordered = sorted(spans, key=lambda s: s.t0)
    here = next((i for i, s in enumerate(ordered) if s.t0 <= at < s.t1), None)
    if here is None:
        return None
    first = last = here
    while first > 0 and _goes_on(ordered[first - 1], ordered[first]):
        first -= 1
    while last + 1 < len(ordered) and _goes_on(ordered[last], ordered[last + 1]):
        last += 1
    return Work(span=ordered[first], t0=ordered[first].t0, t1=ordered[last].t1, open=ordered[last].t0 in going)


def _goes_on(one: Span, other: Span) -> bool:
    def same(span: Span) -> tuple[object, ...]:
        # while a device waits the version may change under it; it is one bubble all the same
        told = () if span.kind == "idle" else (span.version, span.step, span.ref)
        return span.kind, span.role, span.cause, *told

    return same(one) == same(other) and abs(other.t0 - one.t1) <= TOUCH_S


def _sums_at(reader: TelemetryReader, run: RunRow, device: int, at: float) -> tuple[dict[str, float] | None, float]:
    """From the finest sums that are left."""
    for res in RESOLUTIONS_S:
        begin = at // res * res
        found = reader.kind_seconds(run.run_id, begin, begin + res, quick=True).get(device)
        if found and reader.rollup(run.run_id, res, begin, begin + res).bins.size:
            return found, float(res)
    return None, float(RESOLUTIONS_S[0])


def _of_lease(reader: TelemetryReader, run: RunRow, lease: LeaseRow | None) -> tuple[DecisionRow, ...]:
    return () if lease is None else _decisions(reader, run, DecisionFilter(lease=lease.lease))


def _around(reader: TelemetryReader, run: RunRow, work: Work) -> tuple[DecisionRow, ...] | None:
    if work.span.kind != "idle":
        return None
    times = (work.t0 - DECISIONS_AROUND_S, work.t1 + DECISIONS_AROUND_S)
    return _decisions(reader, run, DecisionFilter(times=times))


def _decisions(reader: TelemetryReader, run: RunRow, wanted: DecisionFilter) -> tuple[DecisionRow, ...]:
    pace = pace_of(run)
    return tuple(pace.decision(d) for d in reader.decisions_where(run.run_id, wanted, limit=MOST_DECISIONS))


def _worked_on(
    reader: TelemetryReader, run: RunRow, device: int, work: Work, steps: Sequence[StepRow]
) -> tuple[tuple[GroupRow, ...], StepRow | None]:
    span = work.span
    if span.kind in GENERATES:
        return tuple(reader.groups_on(run.run_id, device, work.t0, work.t1, MOST_GROUPS)), None
    if span.kind in TRAINS and span.step is not None:
        step = next((s for s in reversed(steps) if s.step == span.step), None)
        return tuple(reader.groups(run.run_id, step=span.step, limit=MOST_GROUPS)), step
    return (), None
