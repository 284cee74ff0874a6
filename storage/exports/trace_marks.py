"""What stands on a trace beside the devices' spans: the run's facts, leases, steps, decisions, commands, checkpoints.

Moments are instants; a lease is a slice with its phases inside. A figure that is not known is left out, never 0. Gains
and costs are seconds of wall time, as stored; the run's facts say how to read those of emulated devices.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from storage.exports.source import Source
from storage.exports.track_events import Args, EventSequence, TraceWriter
from storage.records import DecisionRow, EvalRow, LeaseRow, StepRow


def run_facts(source: Source, trace: TraceWriter, process: int) -> None:
    """What the run is, as one moment at its beginning, and the times of which raw spans are gone."""
    run = source.run
    track = trace.sequence(trace.track(process, "run"))
    began = source.window[0] if source.window else (run.started_at or run.created_at)
    if began is None:
        return
    track.instant(
        began,
        f"run {run.run_id}",
        "run",
        (
            ("label", source.label or None),
            ("time", source.pace or None),
            ("time_scale", run.time_scale),
            ("name", run.name),
            ("kind", run.kind),
            ("state", run.state),
            ("arm", run.arm),
            ("consume", run.consume),
            ("staleness", run.staleness),
            ("partition", run.partition),
            ("steps", run.steps),
            ("seed", run.seed),
            ("who", run.who),
            ("error", run.error),
            ("job", run.job),
        ),
    )
    gone = source.missing()
    if gone:
        told = trace.sequence(trace.track(process, "raw spans that are gone"))
        # one after the other: they may overlap, and slices of a track may not
        until = began
        for one in sorted(gone, key=lambda one: one.t0):
            t0, t1 = max(one.t0, until), max(one.t1, until)
            told.slice(
                t0, t1, f"raw spans gone: {one.reason}", "missing", (("spans", one.spans), ("says", one.sentence))
            )
            until = t1


def leases(source: Source, trace: TraceWriter, heading: str) -> int:
    """A process of leases, a track for each block that was lent; a lease that overlaps another one gets one more."""
    tracks: dict[tuple[int, int], tuple[EventSequence, float]] = {}
    process: int | None = None
    written = 0
    for lease in source.records(LeaseRow, "FROM leases WHERE run_id = ? ORDER BY granted_at, lease", source.run.run_id):
        if source.window and not _overlaps(lease, *source.window):
            continue
        if process is None:
            process = trace.process(f"{heading}leases")
        lane = 0
        while (lease.block, lane) in tracks and tracks[lease.block, lane][1] > lease.granted_at:
            lane += 1
        if (lease.block, lane) not in tracks:
            name = f"block {lease.block}{f' ({lane + 1})' if lane else ''}"
            tracks[lease.block, lane] = trace.sequence(trace.track(process, name)), 0.0
        track = tracks[lease.block, lane][0]
        end = float("inf") if lease.released_at is None else lease.released_at
        tracks[lease.block, lane] = track, end
        _lease(track, lease)
        written += 1
    return written


def _overlaps(lease: LeaseRow, t0: float, t1: float) -> bool:
    return lease.granted_at < t1 and (lease.released_at is None or lease.released_at > t0)


def _lease(track: EventSequence, lease: LeaseRow) -> None:
    track.begin(
        lease.granted_at,
        f"lease {lease.lease}: {lease.direction}",
        "lease",
        (
            ("lease", lease.lease),
            ("direction", lease.direction),
            ("block", lease.block),
            ("devices", ", ".join(map(str, lease.devices))),
            ("state", lease.state),
            ("reason", lease.reason),
            ("predicted_gain_s", lease.gain_s),
            ("predicted_cost_s", lease.cost_s),
            ("measured_gain_s", lease.measured_gain_s),
            ("regret_s", lease.regret_s),
            ("in_s", lease.in_s),
            ("out_s", lease.out_s),
            ("grad_s", lease.grad_s),
            ("groups", lease.groups),
            ("tokens", lease.tokens),
            ("ended_by", lease.ended_by),
            ("end_reason", lease.end_reason),
        ),
    )
    for name, begin, end in phases(lease):
        track.slice(begin, end, name, "lease_phase", (("lease", lease.lease),))
    if lease.released_at is not None:
        track.end(max(lease.released_at, lease.granted_at))


def phases(lease: LeaseRow) -> Iterator[tuple[str, float, float | None]]:
    """Name, begin and end of what a lease went through, one after the other; the last one may have no end yet."""
    begun: list[tuple[str, float]] = [("preparing", lease.granted_at)]
    for name, moment in (("working", lease.working_at), ("releasing", lease.ended_at)):
        if moment is not None and moment >= begun[-1][1] and (lease.released_at is None or moment <= lease.released_at):
            begun.append((name, moment))
    ends: list[float | None] = [moment for _, moment in begun[1:]]
    for (name, moment), end in zip(begun, [*ends, lease.released_at], strict=True):
        yield name, moment, end


def checkpoints(trace: TraceWriter, process: int, made: Mapping[tuple[int | None, int | None], float]) -> int:
    """The moments at which checkpoints were complete; made: (step, version) -> unix seconds."""
    track = trace.sequence(trace.track(process, "checkpoints")) if made else None
    for (step, version), at in sorted(made.items(), key=lambda item: item[1]):
        assert track is not None
        track.instant(at, "checkpoint", "checkpoint", (("step", step), ("version", version)))
    return len(made)


def marks(source: Source, trace: TraceWriter, process: int) -> dict[str, int]:
    """Steps, decisions, evaluations and commands, a track each. Returns how many of each."""
    run_id = source.run.run_id
    found = {
        "steps": map(_step, source.records(StepRow, "FROM steps WHERE run_id = ? ORDER BY step", run_id)),
        "decisions": map(_decision, source.records(DecisionRow, "FROM decisions WHERE run_id = ? ORDER BY id", run_id)),
        "evaluations": map(_eval, source.records(EvalRow, "FROM evals WHERE run_id = ? ORDER BY at, name", run_id)),
        "commands": iter(sorted(_commands(source), key=lambda mark: mark[0])),
    }
    counts: dict[str, int] = {}
    for name, moments in found.items():
        track: EventSequence | None = None
        counts[name] = 0
        for at, what, args in moments:
            if not source.within(at):
                continue
            if track is None:
                track = trace.sequence(trace.track(process, name))
            track.instant(at, what, name, args)
            counts[name] += 1
    return counts


Mark = tuple[float, str, Args]
"""Unix seconds, name, arguments."""


def _step(step: StepRow) -> Mark:
    args = (
        ("seconds_since_first_chunk", step.t_end - step.t_start),
        ("groups", step.groups),
        ("prompt_tokens", step.prompt_tokens),
        ("response_tokens", step.response_tokens),
        ("reward_mean", step.reward_mean),
        ("loss", step.loss),
        ("lag_max", step.lag_max),
        ("lag", _json(step.lag)),
        ("no_signal", step.no_signal),
        ("staleness", step.staleness),
    )
    return step.t_end, f"step {step.step}", args


def _decision(row: DecisionRow) -> Mark:
    args = (
        ("decision", row.id),
        ("step", row.step),
        ("block", row.block),
        ("lease", row.lease),
        ("predicted_gain_s", row.gain_s),
        ("predicted_cost_s", row.cost_s),
        ("reason", row.reason),
        ("inputs", _json(row.inputs)),
    )
    return row.at, f"{row.action} {row.direction}", args


def _eval(row: EvalRow) -> Mark:
    args = (("version", row.step), ("accuracy", row.accuracy), ("items", row.items), ("failed", row.failed))
    return row.at, row.name, args


def _commands(source: Source) -> Iterator[Mark]:
    for command in source.commands():
        args = (
            ("command", command.id),
            ("who", command.who),
            ("state", command.state),
            ("payload", _json(command.payload)),
            ("answer", command.answer),
            ("effective_step", command.effective_step),
            ("expected_effect", command.expected_effect),
        )
        at = command.created_at if command.applied_at is None else command.applied_at
        yield at, f"{command.kind}: {command.state}", args


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
