"""The engine's real run loop over simulated workers, with every decision and every step checked on the way."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

from engine.config import Job, check_job
from engine.learning.data_order import DataOrder
from engine.run.book import Group, StartPoint
from engine.run.run import Run
from planner.policy import actions as act
from tests.engine.recording import RecordingRecorder
from tests.engine.run_checks import Checks
from tests.engine.simulated import Physics, SimulatedWorkers

GROUP_SIZE = 2

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
        self._checks = Checks(self)
        self._apply = self.run.applier.apply
        self.run.applier.apply = self._checked_apply  # type: ignore[method-assign]

    @property
    def book(self) -> Any:
        return self.run.book

    @property
    def groups(self) -> Any:
        return self.run.book.groups

    @property
    def used_up(self) -> bool:
        """The items ended before the steps did."""
        return self.book.steps_left == 0 and self.book.step.version < self.job.algorithm.steps

    def at(self, seconds: float, action: Callable[[], None]) -> None:
        """The operator does something `seconds` after the start, unless the run is over."""

        def act_and_wake() -> None:
            if not (self.run.over or self.run.closing):
                action()
                self.workers.wake()

        self.workers.clock.after(seconds, act_and_wake)

    def lose(self, device: int) -> None:
        """A worker dies, unless the run is not under way: that would end it."""
        if self.run.state in ("running", "pausing", "paused", "stopping") and not self.run.closing:
            self.workers.lose(device, "its process died: killed")

    def play(self, until: Callable[[], bool] = lambda: False) -> None:
        """Run the loop as the service does."""
        if self.ticks == 0:
            self.run.begin()
        quiet = 0
        while not (self.run.over or until()):
            if quiet and math.isfinite(due := self.run.next_due):
                self.workers.clock.at(due, self.workers.wake)
            reports = self.workers.wait(math.inf if quiet else TICK_S)
            quiet = 0 if reports or self.workers.woken else quiet + 1
            self.run.observe(reports)
            self.run.tick()
            self.each_tick()
            self.ticks += 1
            self._checks.idle()
            stuck = quiet > 1 and self.workers.clock.empty and not self.run.over
            assert not stuck, f"deadlock: {self.describe()}"
        if self.run.over:
            self._checks.history()

    def describe(self) -> str:
        book, groups = self.run.book, self.run.book.groups
        return (
            f"{self.run.state} at version {book.step.version}, {len(book.step.taken)} of {book.B} taken, "
            f"{book.step.trained} trained, {groups.flying} in flight, {groups.buffered} buffered, "
            f"{len(groups.returned)} returned, bound {book.bound}, "
            f"started {book.started}, excluded {book.excluded}, rollouters {list(book.rollout.values())}, "
            f"trainers {list(book.train.values())}, joining {list(book.joining.values())}, "
            f"lent {[entry for entry in self.run.lending.entries.values() if entry.lease]}, "
            f"dead {self.run.recovery.dead}, causes {self.recorder.causes}, error {self.run.error}"
        )

    def _checked_apply(self, action: act.Action, now: float) -> None:
        self._checks.action(action)
        self._apply(action, now)

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
    order = DataOrder(size=job.task.size, seed=job.seed, shuffle=job.task.shuffle)
    return all(group.finished is not None and group.finished.item == order.item_at(group.index)[2] for group in groups)
