"""A worker dies: each row of the table of engine/run/recovery.py, and what a run makes of it.

Every run here is played to its end, so all that `run_checks` and the simulated workers assert holds too: each group is
trained once in its step, each step is made of the same weights by every primary, no place of the data order is lost.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from engine import checkpoints
from engine.run.recovery import MOST_DEATHS
from engine.worker import messages as msg
from tests.engine.simulated import Physics
from tests.engine.simulated_run import SimulatedRun, make_job


def make_run(folder: Path, *, physics: dict[str, Any] | None = None, seed: int = 0, **sections: Any) -> SimulatedRun:
    speeds = {"excluded": 0.0, "delay_s": 0.01, "back_s": 1.0} | (physics or {})
    return SimulatedRun(make_job(**sections), folder, physics=Physics(**speeds), seed=seed)


def until(run: SimulatedRun, moment: Callable[[], bool]) -> None:
    run.play(until=moment)
    assert moment(), f"it never came to that: {run.describe()}"


def finished(run: SimulatedRun, *, deaths: int = 1) -> None:
    """Play on: the run makes all its steps, of all its prompts, each once."""
    run.play()
    assert (run.run.state, run.run.error) == ("finished", None)
    assert run.recorder.columns["deaths"] == deaths
    used = sorted(run.consumed() + run.excluded())
    assert len(run.consumed()) == run.job.algorithm.steps * run.job.algorithm.prompts_per_step
    assert len(set(used)) == len(used)
    assert set(used) == set(range(len(used)))


def busy(run: SimulatedRun, what: str) -> list[int]:
    """Trainers that are at this."""
    return [device for device, trainer in run.book.train.items() if trainer.busy == what]


def test_unfinished_groups_begin_anew_on_whoever_has_room(tmp_path: Path) -> None:
    run = make_run(tmp_path, physics={"group_s": 2.0}, devices={"partition": "2:1", "rollout_slots": 8})
    until(run, lambda: run.book.step.version == 1 and len(run.groups.in_flight.get(0, ())) >= 2)
    held = set(run.groups.in_flight[0])
    run.lose(0)
    until(run, lambda: 0 in run.run.recovery.dead)
    assert {group.group_id for group in run.groups.returned} >= held - set(run.groups.in_flight.get(1, ()))
    assert all(group.version == -1 for group in run.groups.returned)
    assert run.recorder.causes[0] == "failure"
    until(run, lambda: not run.groups.returned)
    assert 0 not in run.book.rollout
    finished(run)


def test_a_rollouter_comes_back_without_weights_and_is_given_the_newest_ones(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    until(run, lambda: run.book.step.version == 2)
    run.lose(0)
    until(run, lambda: 0 in run.run.recovery.dead)
    until(run, lambda: 0 in run.book.rollout)
    assert run.workers.devices[0].rollout.version is None
    assert run.recorder.gaps[-1][0] == 0
    assert any("device 0 (rollout) works again." in text for text in run.recorder.logs)
    finished(run)


@pytest.mark.parametrize("consume", ["stream", "whole_batch"])
def test_chunks_and_the_gradient_that_only_the_trainer_had_are_done_again(consume: str, tmp_path: Path) -> None:
    run = make_run(
        tmp_path,
        physics={"chunk_s": 1.0, "group_s": 0.2},
        schedule={"consume": consume, "max_chunk_groups": 1},
        devices={"partition": "1:2"},
        algorithm={"prompts_per_step": 12},
    )
    # it has trained one group, trains another, and a third waits behind it
    until(run, lambda: run.book.step.part_of(2) is not None and len(run.book.train[2].chunks) == 2)
    step = run.book.step
    part, chunks = list(step.part_of(2).groups), [group for chunk in run.book.train[2].chunks for group in chunk]
    run.lose(2)
    until(run, lambda: 2 in run.run.recovery.dead)
    others = [group for trainer in run.book.train.values() for chunk in trainer.chunks for group in chunk]
    done = [group for entry in step.parts for group in entry.groups]
    assert set(part + chunks) <= {*step.queue, *others, *done}
    assert step.part_of(2) is None
    finished(run)


def test_a_gradient_that_was_shipped_is_kept_although_its_trainer_dies(tmp_path: Path) -> None:
    run = make_run(tmp_path, physics={"chunk_s": 0.5, "group_s": 0.2}, devices={"partition": "1:2"})
    shipped = lambda: [p.device for p in run.book.step.parts if p.gradient is not None]  # noqa: E731
    until(run, lambda: shipped() == [2] and busy(run, "gradient") == [1])
    groups = [list(part.groups) for part in run.book.step.parts if part.device == 2]
    run.lose(2)
    until(run, lambda: 2 in run.run.recovery.dead)
    assert [list(part.groups) for part in run.book.step.parts if part.device == 2] == groups
    assert not set(groups[0]) & set(run.book.step.queue)
    finished(run)


@pytest.mark.parametrize("version", [0, 2], ids=["the first step", "a later step"])
@pytest.mark.parametrize("who", [[1], [2], [1, 2]], ids=["the one that publishes", "one that follows", "both"])
def test_a_step_whose_trainers_die_at_the_optimizer_is_made_again_by_whoever_lives(
    who: list[int], version: int, tmp_path: Path
) -> None:
    for seed in range(6):
        run = make_run(
            tmp_path / str(seed),
            physics={"chunk_s": 0.5, "group_s": 0.2},
            seed=seed,
            devices={"partition": "1:2"},
            schedule={"staleness": 0.5},
        )
        book = run.book
        until(run, lambda book=book: book.step.version == version and book.step.closing_since is not None)
        for device in who:
            run.lose(device)
        finished(run, deaths=len(who))


def test_a_step_is_made_again_as_often_as_those_who_publish_it_die(tmp_path: Path) -> None:
    for seed in range(10):
        run = make_run(
            tmp_path / str(seed),
            physics={"chunk_s": 0.5, "group_s": 0.2, "back_s": 0.1},
            seed=seed,
            devices={"partition": "1:3"},
            checkpoint={"every_steps": 1},
        )
        book = run.book
        until(run, lambda book=book: book.step.version == 1 and book.step.closing_since is not None)
        for attempt in range(3):
            until(run, lambda book=book: book.step.version > 1 or book.step.closing_since is not None)
            if book.step.version > 1:
                break
            # those who followed may still be on their way back to the step's beginning
            run.lose(book.step.finishing[0])
            until(run, lambda run=run, deaths=attempt + 1: run.run.recovery.count == deaths)
        finished(run, deaths=run.run.recovery.count)


def test_a_follower_that_is_back_before_the_step_is_made_does_not_pass_for_one_that_made_it(tmp_path: Path) -> None:
    run = make_run(tmp_path, physics={"chunk_s": 0.1, "group_s": 0.1}, devices={"partition": "1:2"})
    until(run, lambda: run.book.step.version == 1)
    publisher = run.workers.devices[1]
    until(run, lambda: isinstance(publisher.working, msg.FinishStep))
    publisher.delay(60.0)
    run.lose(2)
    until(run, lambda: not run.run.recovery.dead and 2 in run.book.joining and run.book.joining[2].version == 1)
    assert run.book.step.version == 1
    assert run.recorder.causes[2] == "weights_pending"
    assert run.book.step.finishing == (1,)
    until(run, lambda: run.book.step.version == 2)
    assert 2 in run.book.joining
    finished(run)


def test_a_trainer_on_its_way_to_a_version_is_not_sent_to_another_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # the report of the first way would be taken for that of the second one, after the trainer was handed work
    run = make_run(tmp_path, devices={"partition": "1:2"})
    until(run, lambda: run.book.step.version == 1)
    run.lose(2)
    until(run, lambda: 2 in run.book.joining and run.book.joining[2].restoring)
    sent: list[msg.Command] = []
    with monkeypatch.context() as patch:
        patch.setattr(run.workers, "submit", lambda run_id, device, command: sent.append(command))
        run.run.applier.make_primary(2)
    assert sent == []
    until(run, lambda: 2 in run.book.train)
    assert not run.book.train[2].restoring
    finished(run)


@pytest.mark.parametrize("what", ["evaluate", "checkpoint"])
def test_an_evaluation_and_a_checkpoint_wait_again_when_their_trainer_dies(what: str, tmp_path: Path) -> None:
    run = make_run(
        tmp_path,
        physics={"chunk_s": 0.5, "group_s": 0.5},
        eval={"items": 4, "every_steps": 1, "control_prefix": "<think>"},
        checkpoint={"every_steps": 1, "keep": 9},
    )
    until(run, lambda: run.book.step.version == 2 and busy(run, what) == [1])
    run.lose(1)
    until(run, lambda: 1 in run.run.recovery.dead)
    step = run.book.step
    assert (step.evals_running, step.checkpoint_running) == (0, False)
    assert step.checkpoint_due or what == "evaluate"
    assert step.evals_waiting == [("held_out", 1)] or what == "checkpoint"
    finished(run)
    assert sorted(version for version, _ in run.recorder.evals if version == 2) == [2]
    assert [version for version, _ in checkpoints.checkpoints(run.folder)] == [1, 2, 3, 4, 5]


LENT: dict[str, dict[str, Any]] = {
    "rollout_on_train": {"group_s": 3.0, "chunk_s": 0.05, "switch_s": 0.1},
    "train_on_rollout": {"group_s": 0.1, "chunk_s": 1.0, "switch_s": 0.1},
}


def lent_run(folder: Path, direction: str, seed: int = 0) -> SimulatedRun:
    return make_run(
        folder,
        physics=LENT[direction],
        seed=seed,
        algorithm={"prompts_per_step": 16, "steps": 8},
        schedule={"arm": "opportunistic", "staleness": 0, "max_chunk_groups": 2},
        devices={"partition": "2:2", "rollout_slots": 8},
        task={"items": 500},
    )


@pytest.mark.parametrize(
    ("direction", "state"),
    [
        *(("rollout_on_train", state) for state in ("preparing", "working", "releasing")),
        *(("train_on_rollout", state) for state in ("preparing", "working", "draining", "releasing")),
    ],
)
def test_a_lease_is_over_when_its_device_dies_and_the_device_comes_back_in_its_home_role(
    direction: str, state: str, tmp_path: Path
) -> None:
    run = lent_run(tmp_path, direction)

    def in_state() -> list[int]:
        leases = [entry.lease for entry in run.run.lending.entries.values() if entry.lease is not None]
        return [lease.device for lease in leases if (str(lease.life.state), lease.life.direction) == (state, direction)]

    if state == "draining":
        # greedy borrowing ends a lease when its auxiliary rests; an operator does not wait for that
        until(run, lambda: any(trainer.lease is not None and trainer.chunks for trainer in run.book.train.values()))
        run.book.paused = True
        run.at(10.0, lambda: setattr(run.book, "paused", False))
    until(run, lambda: bool(in_state()))
    device = in_state()[0]
    run.lose(device)
    until(run, lambda: device in run.run.recovery.dead)
    cut = [row for row in run.recorder.leases if row.ended_by == "died"]
    assert [(row.block, row.state) for row in cut] == [(device, "released")]
    assert next(block for block in run.run.lending.blocks() if block.block == device).lease_state == "dead"
    until(run, lambda: device not in run.run.recovery.dead)
    home = run.book.rollout if direction == "train_on_rollout" else {**run.book.joining, **run.book.train}
    assert device in home or run.run.lending.lease_on(device) is not None
    finished(run)


def test_what_kills_a_worker_again_and_again_ends_the_run(tmp_path: Path) -> None:
    run = make_run(tmp_path, physics={"group_s": 1000.0})
    until(run, lambda: run.groups.flying > 0)
    for deaths in range(1, MOST_DEATHS + 2):
        run.lose(0)
        if deaths <= MOST_DEATHS:
            until(run, lambda deaths=deaths: run.run.recovery.count == deaths and 0 in run.book.rollout)
    run.play()
    assert run.run.state == "failed"
    assert run.run.error == (
        "The worker of device 0 (rollout) is gone for the 4th time within one step: its process died: killed"
    )
    assert run.run.observer.closed == {1}


def test_deaths_of_different_steps_do_not_add_up(tmp_path: Path) -> None:
    run = make_run(tmp_path, algorithm={"steps": MOST_DEATHS + 3})
    for version in range(1, MOST_DEATHS + 3):
        until(run, lambda version=version: run.book.step.version == version and not run.run.recovery.dead)
        run.lose(0)
    finished(run, deaths=MOST_DEATHS + 2)


def test_a_worker_that_dies_while_another_is_started_in_its_place_is_replaced_too(tmp_path: Path) -> None:
    run = make_run(tmp_path, physics={"back_s": 5.0})
    until(run, lambda: run.book.step.version == 1)
    run.lose(1)
    until(run, lambda: 1 in run.run.recovery.dead)
    run.lose(1)
    until(run, lambda: run.run.recovery.count == 2)
    finished(run, deaths=2)


@pytest.mark.parametrize("device", [0, 1])
@pytest.mark.parametrize("then", ["pause", "stop"])
def test_a_run_can_be_paused_and_stopped_while_a_worker_is_dead(then: str, device: int, tmp_path: Path) -> None:
    run = make_run(tmp_path, physics={"back_s": 5.0})
    until(run, lambda: run.book.step.version == 2)
    run.lose(device)
    until(run, lambda: device in run.run.recovery.dead)
    if then == "pause":
        run.book.paused = True
        until(run, lambda: run.run.state == "paused")
        run.book.paused = False
        finished(run)
        return
    run.run.request_stop()
    run.play()
    assert (run.run.state, run.run.error, run.book.step.version) == ("stopped", None, 2)
    found = checkpoints.newest(run.folder)
    assert found is not None
    assert found[1].version == 2


def test_a_run_that_fails_while_devices_are_lent_takes_in_what_their_workers_still_say(tmp_path: Path) -> None:
    run = lent_run(tmp_path, "rollout_on_train")
    until(run, lambda: sum(row.state == "preparing" for row in run.recorder.leases) > 3 and run.run.lending.out)
    run.run._fail("something went wrong")
    run.play()
    assert (run.run.state, run.run.error) == ("failed", "something went wrong")
    assert run.run.observer.closed == {0, 1, 2, 3}
