"""The engine's real run loop over simulated workers, with every decision and every step checked on the way.

The checks do their own arithmetic on what was handed out, trained and excluded; they trust none of the run's counts.
"""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

from engine.config import Job, check_job
from engine.learning.data_order import DataOrder
from engine.run.book import Group, StartPoint, StepEntry
from engine.run.run import Run
from planner.policy import actions as act
from planner.policy.staleness import step_violations
from storage import words
from tests.engine.recording import RecordingRecorder
from tests.engine.simulated import Physics, SimulatedWorkers

GROUP_SIZE = 2

TRANSITIONS = {
    "starting": {"warming_up"},
    "warming_up": {"running"},
    "running": {"pausing", "paused", "stopping"},
    "pausing": {"paused", "running", "stopping"},
    "paused": {"running", "pausing", "stopping"},
    "stopping": set(),
}
"""States of a run as its loop writes them; the end is written by the service."""

TICK_S = 0.25
"""The service's longest wait; a second one in a row without news is skipped by going to the next event at once."""


def make_job(**sections: dict[str, Any]) -> Job:
    """A small job: 4 groups a step, 5 steps, one device each, no evaluation, no periodic checkpoint."""
    document: dict[str, dict[str, Any]] = {
        "algorithm": {"group_size": GROUP_SIZE, "prompts_per_step": 4, "steps": 5},
        "task": {"items": 64},
        "eval": {"items": 0},
        "devices": {"partition": "1:1", "rollout_slots": 8 * GROUP_SIZE},
        "checkpoint": {"every_steps": 0},
    }
    for name, values in sections.items():
        document[name] = document.get(name, {}) | values
    return check_job(document)


class SimulatedRun:
    """One run; `play` until it is over. Raises AssertionError for whatever a run must never do."""

    def __init__(
        self,
        job: Job,
        folder: Path,
        *,
        seed: int = 0,
        physics: Physics | None = None,
        start: StartPoint | None = None,
    ) -> None:
        self.job = job
        self.start = start or StartPoint()
        self.workers = SimulatedWorkers(random.Random(seed), physics or Physics(), self.start.version)
        self.recorder = RecordingRecorder()
        self.folder = folder
        self.ticks = 0
        self.each_tick: Callable[[], None] = lambda: None
        """Called after every tick, where the service answers commands."""
        self.run = Run(
            run_id="run",
            job=job,
            start=self.start,
            resume_from=None,
            cores=[0, 1],
            base_dir=folder,
            cache_dir=folder,
            checkpoints_dir=folder,
            workers=self.workers,
            recorder=self.recorder,  # type: ignore[arg-type]
            clock=lambda: self.workers.clock.now,
            clock_offset_s=0.0,
        )
        self._apply = self.run.applier.apply
        self.run.applier.apply = self._checked_apply  # type: ignore[method-assign]
        self.taken: Counter[int] = Counter()

    @property
    def book(self) -> Any:
        return self.run.book

    @property
    def used_up(self) -> bool:
        """The items ended before the steps did."""
        return self.book.steps_left == 0 and self.book.step.version < self.job.algorithm.steps

    @property
    def at_rest(self) -> bool:
        """Nothing new may be handed out."""
        return bool(self.book.paused or self.book.stopping)

    def at(self, seconds: float, action: Callable[[], None]) -> None:
        """The operator does something `seconds` after the start, unless the run is over."""

        def act_and_wake() -> None:
            if not (self.run.over or self.run.closing):
                action()
                self.workers.wake()

        self.workers.clock.after(seconds, act_and_wake)

    def play(self, until: Callable[[], bool] = lambda: False) -> None:
        """Run the loop as the service does."""
        if self.ticks == 0:
            self.run.begin()
        quiet = 0
        while not (self.run.over or until()):
            reports = self.workers.wait(math.inf if quiet else TICK_S)
            quiet = 0 if reports or self.workers.woken else quiet + 1
            self.run.observe(reports)
            self.run.tick()
            self.each_tick()
            self.ticks += 1
            self._check_idle()
            stuck = quiet > 1 and self.workers.clock.empty and not self.run.over
            assert not stuck, f"deadlock: {self.describe()}"
        if self.run.over:
            self._check_history()

    def describe(self) -> str:
        book = self.run.book
        return (
            f"{self.run.state} at version {book.step.version}, {len(book.step.taken)} of {book.B} taken, "
            f"{book.step.trained} trained, {book.in_flight} in flight, {book.buffered} buffered, bound {book.bound}, "
            f"started {book.started}, excluded {book.excluded}, causes {self.recorder.causes}, error {self.run.error}"
        )

    # -- checks -------------------------------------------------------------------------------------------------------

    def _checked_apply(self, action: act.Action) -> None:
        book = self.run.book
        assert action.reason, f"{action} has no reason"
        assert not self.run.closing, f"{action} after the workers were told to end"
        match action:
            case act.StartGroups(device=device, count=count):
                replica = book.rollout[device]
                assert count > 0
                assert not book.paused, f"{action} while paused"
                assert not book.stopping, f"{action} while stopping"
                slots = self.job.devices.rollout_slots // GROUP_SIZE
                assert len(replica.in_flight) + count <= slots, f"{action}: there is no room"
                assert replica.version is not None
                allowed = (replica.version + 1) * book.B + math.floor(book.bound.staleness * book.B + 1e-9)
                assert book.started + count - book.excluded <= allowed, f"{action}: {self.describe()}"
            case act.TakeGroups(group_ids=ids):
                assert not self.at_rest, f"{action} while paused or stopping"
                self.taken.update(ids)
            case act.TrainChunk(device=device, group_ids=ids):
                trainer = book.train[device]
                assert not self.at_rest, f"{action} while paused or stopping"
                assert trainer.ready
                assert trainer.busy in (None, "chunk"), f"{action} to a device that is on {trainer.busy}"
                assert len(trainer.chunks) < 2, f"{action} to a device that holds {len(trainer.chunks)} chunks"
                assert 0 < len(ids) <= self.job.schedule.max_chunk_groups
                if self.job.schedule.consume_resolved == "whole_batch" and self.job.schedule.arm != "colocated":
                    assert len(book.step.taken) == book.B, "a whole-batch trainer began on a partial batch"
            case act.Evaluate(device=device) | act.ShipGradient(device=device):
                assert not self.at_rest, f"{action} while paused or stopping"
                assert book.train[device].busy is None, f"{action} to a device that is on {book.train[device].busy}"
            case act.Checkpoint(device=device):
                assert book.train[device].busy is None, f"{action} to a device that is on {book.train[device].busy}"
            case act.FinishStep(devices=devices):
                assert not self.at_rest, f"{action} while paused or stopping"
                assert devices == tuple(book.train)
                assert all(trainer.busy is None for trainer in book.train.values())
                assert book.step.trained == len(book.step.taken) == book.B
        self._apply(action)

    def _check_idle(self) -> None:
        """A cause is a legal word and names only devices without work; a device at rest has one."""
        if self.run.closing or self.run.state in ("starting", "warming_up"):
            return
        for device, cause in self.recorder.causes.items():
            worker, now = self.workers.devices[device], self.workers.clock.now
            if cause is None:
                told_and_heard = worker.arrival < now and worker.delivery < now
                assert not (worker.idle and told_and_heard), f"device {device} is at rest and nobody says why"
                continue
            assert cause in words.IDLE_CAUSES
            assert not worker.active, f"device {device} generates and is called idle ({cause})"
            trainer, replica = self.run.book.train.get(device), self.run.book.rollout.get(device)
            if trainer is not None and self.run.book.role.get(device) != "rollout":
                assert trainer.busy is None
            if replica is not None and self.run.book.role.get(device) != "train":
                assert not replica.in_flight

    def _check_history(self) -> None:
        states = self.recorder.states
        assert all(after in TRANSITIONS[before] for before, after in pairwise(states)), states
        assert self.run.state in words.TERMINAL
        for step, row in self.recorder.steps:
            self._check_step(step)
            assert row.step == step.version + 1
            assert row.groups == self.book.B
            assert sorted(self.workers.trained[row.step]) == sorted(group.group_id for group in step.taken)
        assert [row.step for _, row in self.recorder.steps] == [
            self.start.version + 1 + place for place in range(len(self.recorder.steps))
        ]
        assert max(self.taken.values(), default=1) == 1, "a group was taken twice"

    def _check_step(self, step: StepEntry) -> None:
        consumed = [(group.version, group.bound) for group in step.taken]
        assert step_violations(consumed, step.version) == []
        slipped: Counter[float] = Counter()
        for group in step.taken:
            s, lag = group.bound.staleness, step.version - group.version
            assert group.finished is not None
            assert group.finished.version == group.version
            assert 0 <= lag <= math.ceil(s), f"lag {lag} under staleness {s} in step {step.version + 1}"
            slipped[s] += lag == math.floor(s) + 1
            assert slipped[s] <= math.floor(s * self.book.B + 1e-9) - math.floor(s) * self.book.B

    # -- what was made of the data order ------------------------------------------------------------------------------

    def consumed(self, until_version: int | None = None) -> list[int]:
        """Places of the data order that steps up to a version consumed."""
        return [
            group.index
            for step, _ in self.recorder.steps
            if until_version is None or step.version < until_version
            for group in step.taken
        ]

    def excluded(self, point: StartPoint | None = None) -> list[int]:
        """Places that were excluded; with a resume point, those that it counts as such."""
        places = [group.index for group in self.recorder.excluded_groups]
        if point is None:
            return places
        return [place for place in places if place < point.next_index and place not in point.pending]


def items_are_those_of_the_order(groups: list[Group], job: Job) -> bool:
    """Each group asked for the item at its place."""
    order = DataOrder(size=job.task.items, seed=job.seed, shuffle=job.task.shuffle)
    return all(group.finished is not None and group.finished.item == order.item_at(group.index)[2] for group in groups)
