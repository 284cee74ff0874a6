"""Real Ray, real workers, the real model; what happened is read from the databases."""

from __future__ import annotations

import os
import signal
import threading

import pytest
import torch
from transformers import AutoModelForCausalLM

from engine import checkpoints
from engine.cli import client
from engine.cli.client import EngineFailed
from planner.policy.staleness import Bound, step_violations
from storage.liveness import effective_state
from storage.records import GroupRow
from tests.e2e.service import EngineProcess, small_job, wait_for

pytestmark = pytest.mark.ray


def groups_of(engine: EngineProcess, run_id: str) -> list[GroupRow]:
    with engine.reader() as reader:
        return reader.groups(run_id, limit=100_000)


def assert_groups_are_right(engine: EngineProcess, run_id: str, *, steps: int, prompts_per_step: int = 4) -> None:
    """Every step has its groups, none is older than its bound allows, no prompt is asked twice."""
    groups = groups_of(engine, run_id)
    assert len({(group.epoch, group.item) for group in groups}) == len(groups)
    by_step: dict[int, list[GroupRow]] = {}
    for group in groups:
        if group.state == "consumed":
            assert group.step is not None
            by_step.setdefault(group.step, []).append(group)
    assert sorted(by_step) == list(range(min(by_step), min(by_step) + steps))
    for step, members in by_step.items():
        assert len(members) == prompts_per_step
        bounds = [(g.version, Bound(staleness=g.bound, prompts_per_step=prompts_per_step)) for g in members]
        assert step_violations(bounds, step - 1) == []


def test_a_run_of_two_workers_leaves_a_closed_ledger_and_every_figure_in_the_database(engine):
    run_id = engine.launch(small_job("schedule.staleness=0.5"))
    result = engine.finish(run_id)
    assert_groups_are_right(engine, run_id, steps=6)
    assert result["steps"] == 6
    assert result["lag"]["max"] <= 1
    assert set(result["lag"]["histogram"]) <= {"0", "1"}
    assert result["lag"]["max_share_last"] <= 0.5
    assert result["ledger"]["max_gap_fraction"] <= 0.005
    assert [entry["step"] for entry in result["eval"]] == [0, 3, 6]
    assert [entry["step"] for entry in result["eval_control"]] == [0, 6]
    assert len(result["params_sha256"]) == 64
    assert result["throughput_tokens_per_s"] > 0
    assert result["publish_s"] is not None
    assert result["model_error"]["rollout"]["median"] is None
    with engine.reader() as reader:
        steps = reader.steps(run_id)
        assert [step.step for step in steps] == [1, 2, 3, 4, 5, 6]
        assert all(step.groups == 4 for step in steps)
        tokens = sum(step.prompt_tokens + step.response_tokens for step in steps)
        assert tokens == result["tokens"]
        responses = [r for group in reader.groups(run_id, limit=1000) for r in group.responses]
        assert {len(group.responses) for group in reader.groups(run_id, limit=1000)} == {4}
        assert sum(r["tokens"] for r in responses) == sum(step.response_tokens for step in steps)
        spans = reader.spans(run_id, 0, 2e10)
        assert {span.device for span in spans if span.kind == "rollout"} == {0}
        assert {span.device for span in spans if span.kind == "train"} == {1}
        assert all(span.cause for span in spans if span.kind == "idle")


def test_the_last_checkpoint_is_a_model_folder_and_only_the_newest_are_kept(engine):
    run_id = engine.launch(small_job("schedule.staleness=1", "schedule.consume=stream", "checkpoint.keep=2"))
    result = engine.finish(run_id)
    assert_groups_are_right(engine, run_id, steps=6)
    found = checkpoints.checkpoints(engine.data.checkpoints(run_id))
    assert [version for version, _ in found] == [4, 6]
    model = AutoModelForCausalLM.from_pretrained(found[-1][1], dtype=torch.float32)
    first = AutoModelForCausalLM.from_pretrained(found[0][1], dtype=torch.float32)
    assert sum(p.numel() for p in model.parameters()) > 100_000
    assert any(step > 0 for step in [len(result["reward"]["per_step"])])
    changed = [not torch.equal(a, b) for a, b in zip(model.parameters(), first.parameters(), strict=True)]
    assert any(changed)


def test_without_pools_each_device_generates_and_trains_its_share_on_policy(engine):
    run_id = engine.launch(small_job("schedule.arm=colocated", "devices.partition=auto"))
    result = engine.finish(run_id)
    assert_groups_are_right(engine, run_id, steps=6)
    assert result["partition"] is None
    assert result["lag"]["histogram"] == {"0": 24}
    assert result["switch"]["in_s"] is not None
    with engine.reader() as reader:
        for kind in ("rollout", "train", "switch_in", "switch_out", "grad_merge", "optimizer"):
            assert {span.device for span in reader.spans(run_id, 0, 2e10) if span.kind == kind} == {0, 1}, kind


def test_a_running_job_obeys_pause_staleness_checkpoint_resume_and_stop(engine):
    run_id = engine.launch(small_job("algorithm.steps=2000", "schedule.staleness=2", "checkpoint.every_steps=0"))
    engine.wait_steps(run_id, 3)
    first = engine.answer(engine.send("staleness", {"staleness": 0}, run_id), "applied")
    second = engine.answer(engine.send("staleness", {"staleness": 1}, run_id), "applied")
    assert first.effective_step < second.effective_step
    paused = engine.answer(engine.send("pause", {}, run_id), "applied")
    assert engine.wait_state(run_id, "paused").in_flight_groups == 0
    steps = engine.run(run_id).steps
    saved = engine.answer(engine.send("checkpoint", {}, run_id), "applied")
    assert saved.effective_version == steps
    assert engine.run(run_id).steps == steps, "a paused run makes no step"
    assert engine.answer(engine.send("pause", {}, run_id), "rejected").answer == "the run is already paused"
    assert engine.answer(engine.send("staleness", {"staleness": -1}, run_id), "rejected").answer is not None
    engine.answer(engine.send("resume", {}, run_id), "applied")
    engine.wait_steps(run_id, steps + 2)
    stopped = engine.answer(engine.send("stop", {}, run_id), "applied")
    row = engine.wait_state(run_id, "stopped")
    assert stopped.effective_step == row.steps
    assert paused.effective_step is not None
    assert_groups_are_right(engine, run_id, steps=row.steps)
    for group in groups_of(engine, run_id):
        if group.step is not None and first.effective_step <= group.step < second.effective_step and group.bound == 0:
            assert group.lag == 0
    assert checkpoints.newest(engine.data.checkpoints(run_id))[1].version == row.steps


def test_a_second_job_waits_for_the_devices_and_can_be_taken_out_of_the_queue(engine):
    first = engine.launch(small_job("algorithm.steps=2000"))
    second = engine.launch(small_job())
    engine.wait_steps(first, 1)
    assert engine.run(second).state == "queued"
    third = engine.launch(small_job())
    assert engine.answer(engine.send("stop", {}, third), "applied").answer == "Taken out of the queue."
    assert engine.answer(engine.send("delete", {}, first), "rejected").answer.endswith("stop it first")
    engine.answer(engine.send("stop", {}, first), "applied")
    engine.finish(second)
    engine.answer(engine.send("delete", {}, first), "applied")
    with engine.reader() as reader:
        assert reader.run(first) is None
        assert reader.run(third).state == "stopped"
    assert not engine.data.checkpoints(first).exists()


def test_a_dead_worker_without_pools_fails_its_run_with_the_cause_and_the_next_run_works(engine):
    run_id = engine.launch(
        small_job("algorithm.steps=2000", "schedule.arm=colocated", "devices.partition=auto", "eval.every_steps=0")
    )
    engine.wait_steps(run_id, 1)
    with engine.reader() as reader:
        victim = reader.devices(run_id)[0]
    os.kill(victim.pid, signal.SIGKILL)
    row = engine.wait_state(run_id, "failed")
    assert row.error.startswith("The worker of device 0 (both roles) is gone:")
    engine.finish(engine.launch(small_job("algorithm.steps=2")))


def test_a_dead_worker_of_a_pool_is_replaced_and_the_ledger_says_when_nothing_lived(engine):
    run_id = engine.launch(small_job("algorithm.steps=60", "eval.every_steps=0", "checkpoint.every_steps=0"))
    engine.wait_steps(run_id, 5)
    with engine.reader() as reader:
        victim = next(device for device in reader.devices(run_id) if device.pool == "train")
    os.kill(victim.pid, signal.SIGKILL)
    result = engine.finish(run_id)
    assert_groups_are_right(engine, run_id, steps=60)
    assert result["deaths"] == 1
    assert result["ledger"]["max_gap_fraction"] <= 0.005
    with engine.reader() as reader:
        dead = [span for span in reader.spans(run_id, 0, 2e10) if span.cause == "failure"]
        assert {span.device for span in dead} == {victim.device}
        texts = [row.text for row in reader.logs(run_id, limit=500)]
    assert any("Another one is started in its place" in text for text in texts)
    assert any(text.endswith("works again.") for text in texts)


def test_a_killed_engine_leaves_an_interrupted_run_that_resumes_without_losing_or_repeating_a_prompt(engine):
    run_id = engine.launch(small_job("algorithm.steps=40", "schedule.staleness=1.5"))
    engine.wait_steps(run_id, 5)
    engine.kill()
    with engine.reader() as reader:
        row, life = reader.run(run_id), reader.engine()
        late = life.beat_at + 11
        assert effective_state(row.state, life.beat_at, late, row.engine_id, life.engine_id) == "interrupted"
    engine.start()
    assert engine.wait_state(run_id, "interrupted").error == "The engine that ran it ended."
    version = checkpoints.newest(engine.data.checkpoints(run_id))[1].version
    resumed = engine.launch(small_job("algorithm.steps=12", "schedule.staleness=1.5"), resume=run_id)
    result = engine.finish(resumed)
    assert (result["start_step"], result["steps"], result["parent_run_id"]) == (version, 12 - version, run_id)
    assert_groups_are_right(engine, resumed, steps=12 - version)
    committed = [g for g in groups_of(engine, run_id) if g.step is not None and g.step <= version]
    committed += groups_of(engine, resumed)
    assert len(committed) == 12 * 4
    assert len({(group.epoch, group.item) for group in committed}) == 12 * 4


def test_a_killed_run_that_is_resumed_on_policy_equals_one_that_was_never_interrupted(engine):
    # one group at a time: then the batches, and with them every rounding, are the same in both runs
    settings = ("schedule.staleness=0", "devices.rollout_slots=4", "algorithm.lr_schedule=constant")
    killed = engine.launch(small_job(*settings, "algorithm.steps=500"))
    wait_for("a checkpoint", lambda: checkpoints.newest(engine.data.checkpoints(killed)))
    engine.kill()
    engine.start()
    start = checkpoints.newest(engine.data.checkpoints(killed))[1].version
    steps = f"algorithm.steps={start + 3}"
    resumed = engine.finish(engine.launch(small_job(*settings, steps), resume=killed))
    whole = engine.finish(engine.launch(small_job(*settings, steps)))
    assert resumed["steps"] == 3
    assert resumed["reward"]["per_step"] == whole["reward"]["per_step"][start:]
    assert resumed["params_sha256"] == whole["params_sha256"]


def test_waiting_for_a_command_ends_when_the_engine_is_gone(engine, capsys):
    run_id = engine.launch(small_job("algorithm.steps=5000", "checkpoint.every_steps=0"))
    engine.wait_steps(run_id, 1)
    engine.answer(engine.send("pause", {}, run_id), "applied")
    killer = threading.Timer(3, engine.kill)
    killer.start()
    with pytest.raises(EngineFailed, match=r"is gone; command \d+ is still accepted"):
        client.command(engine.data, "staleness", {"staleness": 0.5}, run_id=run_id, wait=True)
    killer.join()
    assert "once the run is resumed" in capsys.readouterr().err
    engine.start()
