"""Devices that really work for the other pool: on real Ray, with the real model, watched from the databases."""

from __future__ import annotations

import json

import pytest

from planner import replay
from storage.records import GroupRow, LeaseRow
from tests.e2e import kills
from tests.e2e.service import EngineProcess, small_job

pytestmark = pytest.mark.ray

EXACT = (
    "schedule.deterministic=true",
    "schedule.staleness=0",
    "schedule.record_states=true",
    "algorithm.steps=10",
    "algorithm.prompts_per_step=8",
    "eval.every_steps=4",
    "checkpoint.every_steps=0",
    "devices.oversubscribe=true",
    "devices.count=auto",
)


def leases_of(engine: EngineProcess, run_id: str) -> list[LeaseRow]:
    with engine.reader() as reader:
        return reader.leases(run_id)


def answers_of(engine: EngineProcess, run_id: str) -> list[tuple[int, int, int | None, str]]:
    """(epoch, item, step, answers with their tokens and rewards) of every consumed group."""
    with engine.reader() as reader:
        groups: list[GroupRow] = reader.groups(run_id, limit=100_000)
    kept = [(g.epoch, g.item, g.step, json.dumps([{**r, "versions": 0} for r in g.responses])) for g in groups]
    return sorted(kept, key=lambda row: (row[2] or 0, row[0], row[1]))


def spans_away(engine: EngineProcess, run_id: str, lease: LeaseRow) -> float:
    """CPU seconds of auxiliary spans on the lease's devices between its grant and its end."""
    assert lease.released_at is not None
    with engine.reader() as reader:
        spans = reader.spans(run_id, lease.granted_at, lease.released_at)
    kind = "rollout" if lease.direction == "rollout_on_train" else "train"
    own = [span for span in spans if span.device in lease.devices and span.role == "auxiliary"]
    assert {span.kind for span in own} <= {kind}
    return sum(span.cpu_s or 0.0 for span in own)


def test_borrowing_changes_nothing_about_what_is_learnt_and_every_lease_is_real_work(engine):
    reference = engine.launch(small_job(*EXACT, "schedule.arm=no_borrow"))
    plain = engine.finish(reference)
    answers = answers_of(engine, reference)
    assert len({row["accuracy"] for row in plain["eval"]}) > 1 or plain["reward"]["first"] != plain["reward"]["last"]
    for arm, partition in (("bidirectional", "1:1"), ("bidirectional_paper", "1:2"), ("opportunistic", "1:1")):
        run_id = engine.launch(small_job(*EXACT, f"schedule.arm={arm}", f"devices.partition={partition}"))
        result = engine.finish(run_id)
        assert result["params_sha256"] == plain["params_sha256"], arm
        assert answers_of(engine, run_id) == answers, arm
        leases = leases_of(engine, run_id)
        assert leases, f"{arm} lent nothing"
        for lease in leases:
            assert lease.state == "released"
            if lease.ended_by == "policy":
                assert lease.tokens > 0
                assert lease.in_s is not None
                assert lease.out_s is not None
                assert spans_away(engine, run_id, lease) > 0
        assert any(lease.ended_by == "policy" for lease in leases), arm
        assert result["ledger"]["max_gap_fraction"] <= 0.005
        assert result["switch"]["in_s"] is not None
        with engine.reader() as reader:
            count, differences = replay.replay(row.data for row in reader.states(run_id))
            assert count > len(leases)
            assert differences == []
            admitted = [row for row in reader.decisions(run_id, limit=10_000) if row.action == "lend"]
            assert {row.lease for row in admitted} == {lease.lease for lease in leases}
            assert all(row.reason and row.inputs for row in admitted)


@pytest.mark.parametrize("seed", [3, 4])
def test_killed_workers_are_replaced_and_history_is_whole(engine, seed):
    settings = ("schedule.arm=bidirectional", "schedule.staleness=0", "devices.partition=1:1")
    killed = kills.run(engine, kills=2, seed=seed, steps=80, settings=settings)
    assert killed
