"""A run as a trace that the Perfetto viewer opens and its trace processor queries with SQL.

    process RollPool, TrainPool, by node      thread = device, slice = raw span, category = column of the ledger
    process leases                            track = block, slice = lease, inside it its phases
    process run                               steps, decisions, commands, checkpoints, evaluations; counters

A span's category is its rollup column, so `select category, sum(dur) from slice group by 1` is the ledger. Where raw
spans are gone the devices' tracks are empty, a track of the run says so, and the counter of idle time goes on: it is
made of rollups. Time 0 is the run's beginning; the trace knows the date that it stands for.
"""

from __future__ import annotations

import math
from collections import Counter

from storage import words
from storage.exports import trace_counters, trace_marks
from storage.exports.source import Source
from storage.exports.track_events import EventSequence, Out, TraceWriter
from storage.records import DeviceState
from storage.words import TERMINAL

POOL_NAMES = {"rollout": "RollPool", "train": "TrainPool", None: "devices"}
"""Home pool -> what its process is called."""

_SPAN = ("t0", "t1", "device", "kind", "role", "cause", "version", "step", "ref")

_EARLIEST = """
    SELECT min(at) FROM (
        SELECT min(t0) AS at FROM spans WHERE run_id = ?1
        UNION ALL SELECT min(coalesce(created_at, started_at)) FROM runs WHERE run_id = ?1
        UNION ALL SELECT min(started_at) FROM runs WHERE run_id = ?1
        UNION ALL SELECT min(t_end) FROM steps WHERE run_id = ?1
        UNION ALL SELECT min(granted_at) FROM leases WHERE run_id = ?1
        UNION ALL SELECT min(at) FROM decisions WHERE run_id = ?1
        UNION ALL SELECT min(at) FROM evals WHERE run_id = ?1
        UNION ALL SELECT min(finished_at) FROM groups WHERE run_id = ?1
        UNION ALL SELECT min(t0) FROM raw_missing WHERE run_id = ?1
        UNION ALL SELECT min(since) FROM device_state WHERE run_id = ?1
    )
"""


def write_trace(source: Source, out: Out) -> dict[str, int]:
    """Write the trace of a run, or of the window. Returns what is in it -> how many."""
    trace = TraceWriter(out, unix_start_s=start_of(source))
    heading = f"{source.label} · " if source.label else ""
    run = trace.process(f"{heading}run {source.run.run_id}")
    trace_marks.run_facts(source, trace, run)
    counts: dict[str, int] = {}
    threads = device_tracks(source, trace, heading)
    ends, checkpoints, counts["spans"] = _spans(source, threads)
    counts["open_spans"] = _open_spans(source, threads, ends)
    counts["leases"] = trace_marks.leases(source, trace, heading)
    counts["checkpoints"] = trace_marks.checkpoints(trace, run, checkpoints)
    counts |= trace_marks.marks(source, trace, run)
    counts |= trace_counters.counters(source, trace, run)
    trace.close()
    return counts


def start_of(source: Source) -> float:
    """The trace's time 0, unix seconds: the whole second in which the first thing happened."""
    earliest = source.telemetry.execute(_EARLIEST, [source.run.run_id]).fetchone()[0]
    sent = [command.created_at for command in source.commands()]
    return float(math.floor(min([*sent, *([] if earliest is None else [earliest])], default=0.0)))


def device_tracks(source: Source, trace: TraceWriter, heading: str) -> dict[int, EventSequence]:
    """Device -> the track of its spans; those that only spans know of stand under `devices`."""
    rows = source.devices()
    several = len({row.node for row in rows}) > 1
    processes: dict[str, int] = {}
    tracks: dict[int, EventSequence] = {}
    for row in sorted(rows, key=lambda row: (list(POOL_NAMES).index(row.pool), row.node, row.device)):
        name = f"{heading}{POOL_NAMES[row.pool]}{f' · {row.node}' if several else ''}"
        if name not in processes:
            processes[name] = trace.process(name)
        core = "" if row.core is None else f" (core {row.core})"
        tracks[row.device] = trace.sequence(trace.thread(processes[name], f"device {row.device}{core}"))
    known = source.telemetry.execute("SELECT DISTINCT device FROM spans WHERE run_id = ?", [source.run.run_id])
    if unknown := sorted({device for (device,) in known} - set(tracks)):
        process = trace.process(f"{heading}{POOL_NAMES[None]}")
        for device in unknown:
            tracks[device] = trace.sequence(trace.thread(process, f"device {device}"))
    return tracks


def span_name(kind: str, role: str | None, cause: str | None) -> str:
    """What stands on a span's slice."""
    if cause is not None:
        return f"{kind}: {cause}"
    return f"{kind} (auxiliary)" if kind in words.ROLE_KINDS and role == "auxiliary" else kind


def _spans(
    source: Source, tracks: dict[int, EventSequence]
) -> tuple[dict[int, float], dict[tuple[int | None, int | None], float], int]:
    """Write the raw spans. Returns device -> last end, checkpoint (step, version) -> its end, and how many."""
    ends: dict[int, float] = {}
    checkpoints: dict[tuple[int | None, int | None], float] = {}
    written = 0
    for t0, t1, device, kind, role, cause, version, step, ref in source.span_rows(_SPAN):
        args = (
            ("kind", kind),
            ("role", role),
            ("cause", cause),
            ("version", version),
            ("step", step),
            ("ref", ref),
        )
        column = words.COLUMNS[words.column_index(kind, role, cause)]
        # by as little as a float's last bit: a slice that begins inside another one would take that one's end
        began = max(t0, ends.get(device, t0))
        ends[device] = max(t1, began)
        tracks[device].slice(began, ends[device], span_name(kind, role, cause), column, args)
        written += 1
        if kind == "checkpoint":
            checkpoints[step, version] = max(t1, checkpoints.get((step, version), t1))
    return ends, checkpoints, written


def _open_spans(source: Source, tracks: dict[int, EventSequence], ends: dict[int, float]) -> int:
    """Slices without an end: what the devices of a run that goes on are doing. Returns how many."""
    if source.run.state in TERMINAL:
        return 0
    written: Counter[str] = Counter()
    for state in source.records(DeviceState, "FROM device_state WHERE run_id = ? ORDER BY device", source.run.run_id):
        # one that has been closed meanwhile is among the spans
        begun = ends.get(state.device, -math.inf) <= state.since
        if begun and state.device in tracks and source.within(state.since):
            args = (("kind", state.kind), ("role", state.role), ("cause", state.cause), ("version", state.version))
            name = span_name(state.kind, state.role, state.cause)
            tracks[state.device].begin(state.since, name, state.column, (*args, ("step", state.step), ("open", True)))
            written["open"] += 1
    return written["open"]
