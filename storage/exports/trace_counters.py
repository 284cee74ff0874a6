"""Numbers over time on a trace: idle share, throughput, and finished groups whose step has not ended.

The idle share comes from rollups, which outlive the raw spans, in the finest bins of at least 10 s that cover the run.
Time without telemetry has no value of its own: the counter keeps the last one there.
"""

from __future__ import annotations

from collections.abc import Iterator

from storage import words
from storage.exports.source import Source
from storage.exports.track_events import TraceWriter
from storage.records import StepRow
from storage.rollups import decode

IDLE_RES_S = (10, 60)
"""Bins of the idle share, the finer first; retention deletes the finer ones first."""

_FIRST_IDLE = len(words.BUSY_COLUMNS)

_WAITING = """
    SELECT at, sum(change) FROM (
        SELECT finished_at AS at, 1 AS change FROM groups WHERE run_id = ?1 AND state = 'consumed'
            AND step IN (SELECT step FROM steps WHERE run_id = ?1)
        UNION ALL
        SELECT max(t_end, finished_at), -1 FROM groups JOIN steps USING (run_id, step)
            WHERE run_id = ?1 AND groups.state = 'consumed'
    ) GROUP BY at ORDER BY at
"""
"""When a group finished it waits; when its step ended it does not."""


def counters(source: Source, trace: TraceWriter, process: int) -> dict[str, int]:
    """Write them below the run's process. Returns name -> values written."""
    res = _resolution(source)
    per = "wall second" if source.emulated else "second"
    series = {
        "values_of_idle_share": (
            f"idle share of device time, {res} s bins",
            "share",
            _idle(source, res, trace.unix_start_s),
        ),
        "values_of_throughput": (f"tokens of a step per {per}", "tokens/s", _throughput(source)),
        "values_of_groups_waiting": ("finished groups whose step has not ended", "groups", _waiting(source)),
    }
    counts: dict[str, int] = {}
    for name, (title, unit, values) in series.items():
        counts[name] = 0
        track = None
        for at, value in values:
            if not source.within(at):
                continue
            if track is None:
                track = trace.sequence(trace.counter(process, title, unit))
            track.count(at, value)
            counts[name] += 1
    return counts


def _resolution(source: Source) -> int:
    """The finest bins that are whole: their first lies inside the first of the coarsest, which are kept for ever."""
    sql = "SELECT min(bin) FROM rollups WHERE run_id = ? AND res = ?"
    first = {res: source.telemetry.execute(sql, [source.run.run_id, res]).fetchone()[0] for res in IDLE_RES_S}
    fine, coarse = IDLE_RES_S
    if first[fine] is not None and first[coarse] is not None and first[fine] * fine < (first[coarse] + 1) * coarse:
        return fine
    return coarse


def _idle(source: Source, res: int, start: float) -> Iterator[tuple[float, float]]:
    """Start of each bin (the first one holds the trace's start, and nothing is before that) and its share."""
    sql = "SELECT bin, layout, data FROM rollups WHERE run_id = ? AND res = ? ORDER BY bin"
    for number, layout, data in source.rows(sql, source.run.run_id, res):
        ms = decode([data], [layout])[0].sum(axis=0)
        total = int(ms.sum())
        if total:
            yield max(float(number * res), start), float(ms[_FIRST_IDLE:].sum() / total)


def _throughput(source: Source) -> Iterator[tuple[float, float]]:
    """Tokens of each step over the time since the one before it ended."""
    before: StepRow | None = None
    for step in source.records(StepRow, "FROM steps WHERE run_id = ? ORDER BY step", source.run.run_id):
        began = step.t_start if before is None else before.t_end
        if step.t_end > began:
            yield step.t_end, (step.prompt_tokens + step.response_tokens) / (step.t_end - began)
        before = step


def _waiting(source: Source) -> Iterator[tuple[float, float]]:
    waiting = 0
    for at, change in source.rows(_WAITING, source.run.run_id):
        waiting += change
        yield float(at), float(waiting)
