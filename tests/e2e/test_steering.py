"""Operators steer real runs: partition and arm change under way, an engine dies between an answer and its effect."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from storage.records import Command
from tests.e2e.service import EngineProcess, small_job

pytestmark = pytest.mark.ray

EXACT = (
    "schedule.deterministic=true",
    "schedule.staleness=0",
    "algorithm.steps=14",
    "algorithm.prompts_per_step=8",
    "eval.every_steps=4",
    "checkpoint.every_steps=0",
    "devices.oversubscribe=true",
    "devices.count=auto",
    "devices.partition=3:1",
)


def change(engine: EngineProcess, run_id: str, kind: str, **payload: Any) -> Command:
    answer = engine.answer(engine.send(kind, payload, run_id), "applied", "rejected", "superseded")
    assert answer.state == "applied", answer.answer
    return answer


@pytest.mark.parametrize("arm", ["no_borrow", "bidirectional"])
def test_3_1_to_1_3_to_2_2_learns_bit_by_bit_what_a_run_that_stayed_does(arm: str, tmp_path: Path) -> None:
    engine = EngineProcess(tmp_path / "var")
    try:
        stayed = engine.launch(small_job(*EXACT, f"schedule.arm={arm}"))
        kept = engine.finish(stayed)
        moved = engine.launch(small_job(*EXACT, f"schedule.arm={arm}"))
        engine.wait_steps(moved, 2)
        there = change(engine, moved, "partition", partition="1:3")
        assert there.result is not None
        assert there.result["moved"] == [1, 2]
        assert there.result["seconds"] > 0
        engine.wait_steps(moved, 5)
        back = change(engine, moved, "partition", partition="2:2")
        assert back.result is not None
        assert back.result["moved"] == [1]
        result = engine.finish(moved)
        with engine.reader() as reader:
            pools = {device.device: device.pool for device in reader.devices(moved)}
            trained = {
                span.device
                for span in reader.spans(moved, 0.0, 1e11)
                if span.kind == "train" and span.role == "primary"
            }
    finally:
        engine.stop()
    assert pools == {0: "rollout", 1: "rollout", 2: "train", 3: "train"}
    assert {1, 2, 3} <= trained, "the devices that came to the TrainPool never trained there"
    assert result["partition"] == {"rollout": 2, "train": 2}
    assert result["params_sha256"] == kept["params_sha256"]
    assert result["reward"]["per_step"] == kept["reward"]["per_step"]
    assert result["eval"] == kept["eval"]
    assert result["ledger"]["max_gap_fraction"] < 0.005


def test_an_arm_that_lends_is_set_on_a_run_that_began_without_and_taken_back(tmp_path: Path) -> None:
    engine = EngineProcess(tmp_path / "var")
    try:
        run_id = engine.launch(
            small_job(
                *EXACT[3:],
                "algorithm.steps=60",
                "schedule.arm=no_borrow",
                "schedule.staleness=1",
                "devices.partition=1:3",
            )
        )
        engine.wait_steps(run_id, 2)
        set_to = change(engine, run_id, "policy", arm="opportunistic")
        assert set_to.applied_at is not None
        assert set_to.applied_at - set_to.created_at < 5.0
        engine.wait_steps(run_id, 30)
        with engine.reader() as reader:
            lent = [lease for lease in reader.leases(run_id) if lease.tokens]
        assert lent, "nothing was lent after the arm was set"
        undone = change(engine, run_id, "undo")
        assert undone.result is not None
        assert undone.result["settings"]["arm"] == "no_borrow"
        result = engine.finish(run_id)
        with engine.reader() as reader:
            assert undone.applied_at is not None
            assert all(lease.granted_at < undone.applied_at for lease in reader.leases(run_id))
    finally:
        engine.stop()
    assert result["arm"] == "no_borrow"
    assert result["ledger"]["max_gap_fraction"] < 0.005


def test_a_run_that_goes_on_after_its_engine_was_killed_has_what_was_applied_and_nothing_else(tmp_path: Path) -> None:
    engine = EngineProcess(tmp_path / "var")
    try:
        run_id = engine.launch(
            small_job(
                *EXACT[3:],
                "algorithm.steps=40",
                "schedule.staleness=2",
                "checkpoint.every_steps=1",
                "devices.partition=2:2",
            )
        )
        engine.wait_steps(run_id, 3)
        change(engine, run_id, "policy", arm="no_borrow", lend_cap=1)
        waiting = engine.answer(engine.send("staleness", {"staleness": 0.5}, run_id), "accepted")
        engine.kill()
        engine.start()
        engine.wait_state(run_id, "interrupted")
        answer = engine.command(waiting.id)
        assert answer.state in ("applied", "rejected")
        engine.launch(None, resume=run_id)
        with engine.reader() as reader:
            resumed = next(row for row in reader.runs(limit=5) if row.parent_run_id == run_id)
        assert resumed.arm == "no_borrow"
        assert "lend_cap: 1" in resumed.job
        assert resumed.staleness == (0.5 if answer.state == "applied" else 2.0)
        change(engine, resumed.run_id, "stop")
    finally:
        engine.stop()
