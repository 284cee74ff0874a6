"""The life of a run: pausing, stopping, and every way to fail, each with who was waited for or who failed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from engine import checkpoints
from engine.devices import Report
from engine.run.run import CLOSE_DEADLINE_S
from engine.run.watchdog import PREPARE_DEADLINE_S, PROGRESS_DEADLINE_S, START_DEADLINE_S
from engine.worker import messages as msg
from engine.worker.ledger import OpenSpan
from tests.engine.simulated import Physics
from tests.engine.simulated_run import SimulatedRun, make_job


@pytest.fixture
def run(tmp_path: Path) -> SimulatedRun:
    return SimulatedRun(make_job(), tmp_path, physics=Physics(excluded=0.0))


def say(run: SimulatedRun, device: int, *events: msg.Event) -> None:
    """A worker reports, and the loop takes it in."""
    at = run.workers.clock.now
    opened = OpenSpan(kind="idle", role=None, version=None, step=None, since=at)
    delivery = msg.Delivery(events=events, spans=(), open=opened, at=at)
    run.run.observe([Report(run_id="run", device=device, delivery=delivery)])
    run.run.tick()


def started_and_ready(device: int, *, items: int = 64) -> tuple[msg.Event, ...]:
    version, handle = (0, ("weights", 0)) if device == 1 else (None, None)
    ready = msg.Ready(
        training_items=items, held_out_items=0, version=version, handle=handle, notes=("a note",), memory={}
    )
    return msg.Started(pid=7, at=0.0), ready


def test_a_healthy_run_goes_through_its_states_and_says_what_it_learnt(run: SimulatedRun) -> None:
    run.play()
    assert run.recorder.run_states == ["starting", "warming_up", "running"]
    assert (run.run.state, run.run.error) == ("finished", None)
    columns = run.recorder.columns
    assert (columns["steps"], columns["params_sha256"], columns["excluded"]) == (5, "sha-5", {})
    assert columns["training_at"] < columns["measured_until"] <= run.workers.clock.now
    assert [version for version, _ in checkpoints.checkpoints(run.folder)] == [5]


def test_a_checkpoint_is_one_to_resume_from_only_when_the_history_before_it_is_stored(run: SimulatedRun) -> None:
    run.recorder.behind = 1_000_000
    run.play(until=lambda: run.run.quiet and run.book.steps_left == 0 and (run.folder / "step-000005").is_dir())
    assert not run.run.over
    assert not run.run.closing
    assert checkpoints.newest(run.folder) is None, "an engine that died now would have no record of its steps"
    run.recorder.behind = 0
    run.play()
    found = checkpoints.newest(run.folder)
    assert found is not None
    assert (run.run.state, found[1].version, run.recorder.columns["params_sha256"]) == ("finished", 5, "sha-5")


def test_a_paused_run_lets_running_work_end_starts_nothing_and_goes_on(run: SimulatedRun) -> None:
    run.play(until=lambda: run.book.step.version == 2)
    run.book.paused = True
    run.play(until=lambda: run.run.state == "paused")
    assert run.run.quiet
    assert run.recorder.run_states[-2:] == ["pausing", "paused"]
    assert set(run.recorder.causes.values()) == {"paused"}
    started = run.book.started
    run.run.tick()
    assert run.book.started == started
    run.book.paused = False
    run.play()
    assert (run.run.state, run.book.step.version) == ("finished", 5)


def test_a_stopped_run_keeps_the_steps_it_made(run: SimulatedRun) -> None:
    run.play(until=lambda: run.book.step.version == 2 and run.groups.flying > 1)
    run.run.request_stop()
    run.play()
    assert (run.run.state, run.run.error, len(run.recorder.steps)) == ("stopped", None, 2)
    found = checkpoints.newest(run.folder)
    assert found is not None
    assert (found[1].version, run.recorder.columns["params_sha256"]) == (2, "sha-2")
    assert run.recorder.run_states[-1] == "stopping"


@pytest.mark.parametrize(
    "moment",
    [
        pytest.param(lambda run: run.run.state == "starting", id="while workers start"),
        pytest.param(lambda run: run.run.state == "warming_up", id="while models load"),
        pytest.param(lambda run: run.run.state == "running", id="before the first step"),
    ],
)
def test_a_run_stopped_before_its_first_step_leaves_no_checkpoint(
    moment: Callable[[SimulatedRun], bool], run: SimulatedRun
) -> None:
    run.play(until=lambda: run.ticks > 0 and moment(run))
    run.run.request_stop()
    run.play()
    assert (run.run.state, run.run.error, run.book.step.version) == ("stopped", None, 0)
    assert checkpoints.checkpoints(run.folder) == []


def test_a_run_can_be_stopped_while_it_is_paused(run: SimulatedRun) -> None:
    run.play(until=lambda: run.book.step.version == 1)
    run.book.paused = True
    run.play(until=lambda: run.run.state == "paused")
    run.run.request_stop()
    run.play()
    assert (run.run.state, run.recorder.run_states[-2:]) == ("stopped", ["paused", "stopping"])


def test_a_second_stop_changes_nothing(run: SimulatedRun) -> None:
    run.play(until=lambda: run.groups.flying > 0)
    for _ in range(2):
        run.run.request_stop()
    run.play()
    assert run.run.state == "stopped"


def test_a_worker_that_dies_before_training_begins_ends_the_run_and_the_others_close_their_ledgers(
    run: SimulatedRun,
) -> None:
    run.play(until=lambda: run.run.state == "warming_up")
    run.workers.lose(0, "its process died: killed")
    run.play()
    assert run.run.state == "failed"
    assert run.run.error == "The worker of device 0 (rollout) is gone: its process died: killed"
    assert run.run.observer.closed == {1}
    assert set(run.recorder.causes.values()) == {"failure"}


def test_a_worker_that_dies_without_pools_ends_the_run(tmp_path: Path) -> None:
    job = make_job(schedule={"arm": "colocated"}, devices={"partition": "auto", "count": 2})
    run = SimulatedRun(job, tmp_path)
    run.play(until=lambda: run.book.step.version == 1)
    run.workers.lose(1, "its process died: killed")
    run.play()
    assert run.run.state == "failed"
    assert run.run.error == "The worker of device 1 (both roles) is gone: its process died: killed"


def test_a_worker_that_fails_ends_the_run_with_its_own_words(run: SimulatedRun) -> None:
    run.play(until=lambda: run.book.step.version == 1)
    say(run, 1, msg.Failed(error="ValueError: no such thing", traceback="Traceback ..."))
    run.play()
    assert run.run.state == "failed"
    assert run.run.error == "The worker of device 1 (train) failed: ValueError: no such thing"
    assert "Traceback ..." in run.recorder.logs


def test_workers_that_see_other_items_than_the_job_says_end_the_run(run: SimulatedRun) -> None:
    run.run.begin()
    say(run, 1, *started_and_ready(1, items=63))
    assert run.run.error == "The worker of device 1 (train) failed: it has 63 training items, the job has 64"


@pytest.mark.parametrize(
    ("state", "limit_s", "waited_for"),
    [
        pytest.param("starting", START_DEADLINE_S, "device 0 (rollout)", id="a worker does not start"),
        pytest.param("warming_up", PREPARE_DEADLINE_S, "device 0 (rollout)", id="a model does not load"),
        pytest.param("running", PROGRESS_DEADLINE_S, "device 0 (rollout) with 8 groups", id="no group ends"),
    ],
)
def test_a_run_in_which_nothing_happens_fails_and_says_who_was_waited_for(
    state: str, limit_s: float, waited_for: str, run: SimulatedRun
) -> None:
    run.run.begin()
    say(run, 1, *started_and_ready(1))
    if state != "starting":
        say(run, 0, started_and_ready(0)[0])
    if state == "running":
        say(run, 0, started_and_ready(0)[1])
    assert run.run.state == state
    run.workers.clock.now += limit_s - 1
    run.run.tick()
    assert run.run.error is None
    run.workers.clock.now += 2
    run.run.tick()
    assert run.run.error == f"Nothing happened for {limit_s:.0f} s while {state}; waited for {waited_for}."


def test_the_watchdog_sleeps_while_the_run_is_paused(run: SimulatedRun) -> None:
    run.play(until=lambda: run.book.step.version == 1)
    run.book.paused = True
    run.play(until=lambda: run.run.state == "paused")
    run.workers.clock.now += 10 * PROGRESS_DEADLINE_S
    run.run.tick()
    run.book.paused = False
    run.play()
    assert run.run.state == "finished"


def test_a_worker_that_does_not_close_in_time_is_named(run: SimulatedRun) -> None:
    run.play(until=lambda: run.book.step.version == 5 and run.run.closing)
    run.workers.devices[0].lost = True  # and nobody notices
    run.run.tick()
    assert not run.run.over
    run.workers.clock.after(CLOSE_DEADLINE_S + 1, run.workers.wake)
    run.play()
    assert run.run.state == "failed"
    assert run.run.error is not None
    assert run.run.error.startswith("device 0 (rollout)")
    assert "did not close within 60 s" in run.run.error


def test_an_engine_that_ends_leaves_its_run_interrupted(run: SimulatedRun) -> None:
    run.play(until=lambda: run.book.step.version == 1)
    run.run.abandon("The engine was shut down.")
    assert (run.run.state, run.run.over, run.run.error) == ("interrupted", True, "The engine was shut down.")


def test_more_devices_than_groups_leave_some_devices_in_the_trainer_role(tmp_path: Path) -> None:
    # B = 2 on 3 devices: shares are 0, 1, 1
    job = make_job(
        algorithm={"prompts_per_step": 2, "steps": 3},
        schedule={"arm": "colocated"},
        devices={"partition": "auto", "count": 3},
    )
    run = SimulatedRun(job, tmp_path)
    roles: set[str] = set()
    run.each_tick = lambda: roles.add(run.book.role[0])
    run.play()
    assert (run.run.state, roles) == ("finished", {"train"})


@pytest.mark.parametrize("arm", ["no_borrow", "colocated"])
def test_a_stop_while_the_optimizer_works_keeps_the_step_it_makes(arm: str, tmp_path: Path) -> None:
    devices = {"partition": "auto", "count": 2} if arm == "colocated" else {}
    run = SimulatedRun(make_job(schedule={"arm": arm}, devices=devices), tmp_path)
    run.play(until=lambda: any(trainer.busy == "optimizer" for trainer in run.book.train.values()))
    run.run.request_stop()
    run.play()
    assert (run.run.state, run.book.step.version) == ("stopped", 1)
    assert [version for version, _ in checkpoints.checkpoints(run.folder)] == [1]


def test_a_run_whose_items_are_used_up_ends_by_itself_with_its_last_evaluation_and_checkpoint(tmp_path: Path) -> None:
    # 4 steps of 4 groups need all 16 items; whatever is excluded leaves too few for the last step
    job = make_job(
        algorithm={"steps": 4},
        task={"items": 16, "epochs": 1},
        eval={"items": 4, "every_steps": 0, "control_prefix": "<think>"},
    )
    run = SimulatedRun(job, tmp_path, physics=Physics(excluded=0.2), seed=2)
    run.play()
    version = run.book.step.version
    assert (run.run.state, run.run.error) == ("finished", None)
    assert 0 < version < 4
    assert len(run.excluded()) + len(run.consumed()) > 16 - 4
    assert run.recorder.evals[-2:] == [(version, "held_out"), (version, "control")]
    assert [found for found, _ in checkpoints.checkpoints(run.folder)] == [version]
    assert f"The items end after step {version}: too few are left to fill another step." in run.recorder.logs
