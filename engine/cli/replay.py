"""Stored decisions of a past run, asked of the policy again: what ran is what is tested."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from engine.cli.client import BadInput
from planner import replay as stored
from storage.paths import DataDir
from storage.reader import TelemetryReader


@dataclass(frozen=True, slots=True, kw_only=True)
class Replayed:
    """What came of it."""

    run_id: str
    decisions: int
    """stored states that the policy was asked about"""
    differences: list[stored.Difference]


def replay(data: DataDir, run_id: str) -> Replayed:
    """Raises BadInput for a run that is not known or of which no decision was stored."""
    with TelemetryReader(data.telemetry_db) as reader:
        if reader.run(run_id) is None:
            raise BadInput(f"run {run_id!r} is not known")
        try:
            count, differences = stored.replay(row.data for row in reader.states(run_id))
        except ValueError as error:
            raise BadInput(f"run {run_id}: {error}") from None
    if count == 0:
        raise BadInput(
            f"run {run_id} stored no decision: it decided nothing about a lease and schedule.record_states was false, "
            "or its decisions are older than the raw telemetry that is kept"
        )
    return Replayed(run_id=run_id, decisions=count, differences=differences)


def document(done: Replayed) -> dict[str, Any]:
    """The fields of `bidirl replay --json`."""
    return {
        "run_id": done.run_id,
        "decisions": done.decisions,
        "differences": [
            {"place": d.place, "now": d.now, "stored": repr(d.stored), "again": repr(d.again)} for d in done.differences
        ],
    }


def sentence(done: Replayed) -> str:
    """For people."""
    if not done.differences:
        return f"{done.decisions} stored decisions of run {done.run_id}: the policy decides the same in all of them."
    first = done.differences[0]
    return (
        f"{len(done.differences)} of {done.decisions} stored decisions of run {done.run_id} come out differently; the "
        f"first, number {first.place}: stored {first.stored}, now {first.again}"
    )
