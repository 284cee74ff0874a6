"""The books of a run: who is in which role, the step being filled, and where its gradient lies.

Facts come in (a replica loaded, a group finished, a chunk is done), actions are entered when they are handed out;
`picture.py` makes of it the frozen state that the policy decides on. Groups are counted in `groups.py`, leases in
`lending.py`. No Ray, no clock, no telemetry: a wrong entry is an AssertionError, because it would break the count that
the staleness rules stand on.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field

from engine.config import Job
from engine.learning.stats import ChunkStats, merge
from engine.run.groups import DataOrder, Group, Groups, StartPoint
from engine.worker.messages import SealedGroup, ShippedGradient
from planner.policy.counted import Tally
from planner.policy.staleness import Bound

__all__ = ["Book", "Group", "Part", "RolloutEntry", "StartPoint", "StepEntry", "TrainEntry"]


@dataclass(slots=True)
class RolloutEntry:
    """What the engine knows of a rollouter."""

    device: int
    version: int | None = None
    loading: bool = False
    lease: int | None = None


@dataclass(slots=True)
class TrainEntry:
    """What the engine knows of a trainer."""

    device: int
    version: int | None = None
    """Of its weights; it can work on the step of that version only."""
    ready: bool = False
    busy: str | None = None
    busy_since: float = 0.0
    """When it began that, unix seconds."""
    shipped: bool = False
    evaluating: str | None = None
    """Name of the evaluation it is busy with."""
    lease: int | None = None
    leaving: bool = False
    """It was told to leave the role: it begins nothing new."""
    restoring: bool = False
    """It was told to become a primary of some version and has not reported that it is."""
    chunks: deque[tuple[int, ...]] = field(default_factory=deque)
    """Groups of the chunk it works on and of those behind it."""
    tokens: deque[int] = field(default_factory=deque)
    """Prompt and response tokens of each of those chunks."""


@dataclass(slots=True)
class Part:
    """What one replica accumulated of a step's gradient."""

    device: int
    groups: list[int] = field(default_factory=list)
    by_role: dict[str, ChunkStats] = field(default_factory=dict)
    """Role that it trained them in, primary or auxiliary -> their sums; a device may change its home in the step."""
    gradient: ShippedGradient | None = None
    """Where it lies; None: only the replica has it."""

    @property
    def stats(self) -> ChunkStats:
        """Of its groups."""
        return merge(self.by_role.values())


@dataclass(slots=True)
class StepEntry:
    """The step being filled."""

    version: int
    began_at: float
    taken: list[Group] = field(default_factory=list)
    counted: Tally = field(default_factory=Tally)
    """The taken ones by version and bound."""
    queue: deque[int] = field(default_factory=deque)
    parts: list[Part] = field(default_factory=list)
    finishing: tuple[int, ...] = ()
    """Primaries that were told to make the step; the first one publishes."""
    closing_since: float | None = None
    """When they were told, unix seconds."""
    evals_waiting: list[tuple[str, int]] = field(default_factory=list)
    evals_running: int = 0
    eval_parts: dict[str, tuple[int, ...]] = field(default_factory=dict)
    """Evaluation of this version -> the trainers that share its items, in order."""
    checkpoint_due: bool = False
    checkpoint_running: bool = False

    @property
    def trained(self) -> int:
        """Groups whose gradient is accumulated."""
        return sum(len(part.groups) for part in self.parts)

    @property
    def stats(self) -> ChunkStats:
        """Of the groups that are trained."""
        return merge(part.stats for part in self.parts)

    @property
    def by_role(self) -> dict[str, ChunkStats]:
        """Role of the trainers, primary or auxiliary -> sums of the groups that they trained; only roles that did."""
        roles = sorted({role for part in self.parts for role in part.by_role})
        return {role: merge(part.by_role[role] for part in self.parts if role in part.by_role) for role in roles}

    def part_of(self, device: int) -> Part | None:
        """What the device accumulated and did not ship."""
        return next((part for part in self.parts if part.device == device and part.gradient is None), None)


class Book:
    """All counts of a run."""

    def __init__(self, job: Job, start: StartPoint, *, order: DataOrder, now: float, places: int | None = None) -> None:
        """`places`: how many the data order has over all epochs; None: no limit."""
        self.job = job
        self.B = job.algorithm.prompts_per_step
        self.bound = Bound(staleness=job.schedule.staleness_resolved, prompts_per_step=self.B)
        self.in_flight_updates = job.schedule.in_flight_updates
        self.start = start
        self.groups = Groups(start, prompts_per_step=self.B, order=order, places=places)
        self.published: int | None = None
        self.paused = False
        self.stopping = False
        self.last_step: int | None = None
        """Number of the step after which the run stops, where an operator asked for that."""
        self.step = StepEntry(start.version, now)
        self.rollout: dict[int, RolloutEntry] = {}
        """Devices in the rollouter role."""
        self.train: dict[int, TrainEntry] = {}
        """Devices in the trainer role, those included that are leaving it and whose gradient is still to come."""
        self.joining: dict[int, TrainEntry] = {}
        """Primaries that are not at the present version yet: back from a lease, or started anew."""
        self.role: dict[int, str] = {}
        """Role of each device without pools."""
        self.trainers: tuple[int, ...] = ()
        """Devices whose home role is trainer."""

    def add_devices(self, *, rollout: Iterable[int], train: Iterable[int], pools: bool) -> None:
        """Enter the devices of each role; without pools each device has both and begins as a trainer."""
        self.rollout = {device: RolloutEntry(device) for device in rollout}
        self.train = {device: TrainEntry(device) for device in train}
        self.trainers = tuple(self.train)
        self.role = {} if pools else dict.fromkeys(self.train, "train")

    # -- groups -------------------------------------------------------------------------------------------------------

    def group_finished(self, group: SealedGroup) -> Group:
        """The worker scored a group."""
        return self.groups.finish(group)

    def group_excluded(self, group: SealedGroup) -> Group:
        """The group leaves the count."""
        return self.groups.exclude(group)

    def take(self, group_ids: Iterable[int]) -> None:
        """The step consumes these groups."""
        taken = self.groups.take(group_ids)
        self.step.taken += taken
        for group in taken:
            self.step.counted.add(group.version, group.bound)
        self.step.queue.extend(group.group_id for group in taken)
        assert len(self.step.taken) <= self.B, f"step {self.step.version} took more than its {self.B} groups"

    # -- the step's gradient ------------------------------------------------------------------------------------------

    def hand_chunk(self, device: int, group_ids: tuple[int, ...], now: float) -> tuple[SealedGroup, ...]:
        """Enter a chunk as running and return its groups."""
        trainer = self.train[device]
        if trainer.busy is None:
            trainer.busy_since = now
        trainer.busy, trainer.shipped = "chunk", False
        trainer.chunks.append(group_ids)
        groups: list[SealedGroup] = []
        for group_id in group_ids:
            self.step.queue.remove(group_id)
            finished = self.groups[group_id].finished
            assert finished is not None, f"group {group_id} was taken before it was finished"
            groups.append(finished)
        trainer.tokens.append(sum(group.tokens for group in groups))
        return tuple(groups)

    def chunk_done(
        self, device: int, trained: tuple[int, ...], given_back: tuple[int, ...], stats: ChunkStats, now: float
    ) -> None:
        """A chunk ended; groups that it did not come to are queued again."""
        trainer = self.train[device]
        assert trainer.chunks, f"device {device} reported a chunk while it was on {trainer.busy}"
        chunk = trainer.chunks.popleft()
        trainer.tokens.popleft()
        assert chunk == trained + given_back, f"device {device} was handed {chunk}, reported {trained + given_back}"
        part = self.step.part_of(device)
        if trained and part is None:
            part = Part(device)
            self.step.parts.append(part)
        if trained and part is not None:
            part.groups += trained
            role = "primary" if trainer.lease is None else "auxiliary"
            part.by_role[role] = part.by_role.get(role, ChunkStats()) + stats
        self.requeue(given_back)
        trainer.busy = "chunk" if trainer.chunks else None
        trainer.busy_since = now
        if trainer.leaving and trainer.busy is None:
            self.leave(device)

    def requeue(self, group_ids: Iterable[int]) -> None:
        """Groups of the step whose gradient nobody holds any more: at the head of its queue again."""
        self.step.queue.extendleft(reversed(tuple(group_ids)))

    def leave(self, device: int) -> None:
        """A trainer that begins nothing new goes out of the role, or waits there until its gradient is shipped."""
        trainer = self.train[device]
        trainer.leaving = True
        if trainer.chunks:
            return
        if self.step.part_of(device) is not None and trainer.busy != "optimizer":
            trainer.busy = "gradient"
        else:
            del self.train[device]

    def gradient_shipped(self, device: int, gradient: ShippedGradient) -> None:
        """What the device accumulated lies where the primaries can fetch it."""
        part = self.step.part_of(device)
        if part is not None:
            part.gradient = gradient
        trainer = self.train.get(device)
        if trainer is None:
            return
        trainer.busy, trainer.shipped = None, True
        if trainer.leaving:
            del self.train[device]

    def forget_part(self, device: int) -> None:
        """What the device alone had accumulated is lost: its groups are trained again."""
        part = self.step.part_of(device)
        if part is not None:
            self.step.parts.remove(part)
            self.requeue(part.groups)

    def step_done(self, now: float) -> StepEntry:
        """The optimizer made the step; returns it and opens the next one."""
        done = self.step
        self.groups.retire(done.taken, done.version + 1)
        for device, trainer in self.train.items():
            trainer.shipped = False
            if device in done.finishing:
                trainer.busy, trainer.version = None, done.version + 1
        # a checkpoint asked for while the optimizer was at work is one of the version that it made
        self.step = StepEntry(done.version + 1, now, checkpoint_due=done.checkpoint_due)
        return done

    def discard_step(self) -> None:
        """A stopping run gives the unfinished step back; its groups are pending again for whoever resumes."""
        self.step.parts.clear()
        self.step.queue.clear()

    def at_version(self, device: int, version: int) -> bool:
        """A trainer holds this version; it takes part while that is the present one. Returns whether it is.

        While the step is being made nobody joins it: whoever comes then is brought to the version that it makes.
        """
        trainer = self.train.get(device) or self.joining.get(device)
        if trainer is None:
            return True
        trainer.version = version
        trainer.ready = version == self.step.version
        if trainer.ready and device in self.joining and self.step.closing_since is not None:
            return True
        if trainer.ready and self.joining.pop(device, None) is not None:
            self.train[device] = trainer
            self.train = dict(sorted(self.train.items()))
        elif not trainer.ready and trainer.lease is None and self.train.pop(device, None) is not None:
            self.joining[device] = trainer
        return trainer.ready

    # -- counts -------------------------------------------------------------------------------------------------------

    @property
    def started(self) -> int:
        """Groups started over the run, excluded ones included."""
        return self.groups.started

    @property
    def excluded(self) -> int:
        return self.groups.excluded

    @property
    def steps_left(self) -> int:
        """Steps to make; fewer than the job asks for where exclusions leave too few prompts to fill them."""
        groups = len(self.step.taken) + self.groups.open + self.groups.places_left
        return int(min(self.steps_wanted - self.step.version, groups // self.B))

    @property
    def steps_wanted(self) -> int:
        """Number of the last step, as long as there are prompts."""
        asked = self.job.algorithm.steps
        return asked if self.last_step is None else min(asked, self.last_step)
