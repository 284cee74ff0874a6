"""The books of a run: every group from start to consumption, and the step being filled.

Facts come in (a replica loaded, a group finished, a chunk is done), actions are entered when they are handed out, and
`state` gives the frozen picture that the policy decides on. No Ray, no clock, no telemetry: a wrong entry is an
AssertionError, because it would break the count that the staleness rules stand on.

    in flight -> finished -> taken -> in a chunk -> trained -> consumed (when the step is made)
        \\-> excluded (counted, with its reason)
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from engine.config import Job
from engine.learning.sequences import GroupRequest
from engine.learning.stats import ChunkStats
from engine.worker.messages import SealedGroup
from planner.policy.colocated import share_of
from planner.policy.staleness import Bound, Unconsumed
from planner.policy.state import ColocatedDevice, RolloutReplica, State, Step, TrainReplica

DataOrder = Callable[[int], tuple[int, int, int]]
"""Index in the data order -> (epoch, position in the epoch, training item)."""


@dataclass(slots=True)
class Group:
    """A group from start to consumption."""

    group_id: int
    index: int
    """Place in the data order over all epochs."""
    device: int
    bound: Bound
    version: int
    """Of its first token: that of the replica until the worker reports it."""
    finished: SealedGroup | None = None
    order: int = 0


@dataclass(slots=True)
class RolloutEntry:
    """What the engine knows of a rollouter."""

    device: int
    version: int | None = None
    loading: bool = False
    in_flight: dict[int, Group] = field(default_factory=dict)


@dataclass(slots=True)
class TrainEntry:
    """What the engine knows of a trainer."""

    device: int
    ready: bool = False
    busy: str | None = None
    shipped: bool = False
    chunks: deque[tuple[int, ...]] = field(default_factory=deque)
    """Groups of the chunk it works on and of those behind it."""


@dataclass(slots=True)
class StepEntry:
    """The step being filled."""

    version: int
    began_at: float
    taken: list[Group] = field(default_factory=list)
    queue: deque[int] = field(default_factory=deque)
    trained: int = 0
    stats: ChunkStats = field(default_factory=ChunkStats)
    evals_waiting: list[tuple[str, int]] = field(default_factory=list)
    evals_running: int = 0
    checkpoint_due: bool = False
    checkpoint_running: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class StartPoint:
    """Where a run begins: zero, or what a checkpoint recorded."""

    version: int = 0
    """Version of the weights."""
    excluded: int = 0
    """Groups excluded before."""
    next_index: int = 0
    """First place of the data order that was never started."""
    pending: tuple[int, ...] = ()
    """Places that were started and neither consumed nor excluded: generated again."""


class Book:
    """All counts of a run."""

    def __init__(self, job: Job, start: StartPoint, *, order: DataOrder, now: float, places: int | None = None) -> None:
        """`places`: how many the data order has over all epochs; None: no limit."""
        self.job = job
        self._places = places
        self.B = job.algorithm.prompts_per_step
        self.bound = Bound(staleness=job.schedule.staleness_resolved, prompts_per_step=self.B)
        self.in_flight_updates = job.schedule.in_flight_updates
        self.start = start
        self.excluded = start.excluded
        self.started = start.version * self.B + start.excluded
        self.published: int | None = None
        self.paused = False
        self.stopping = False
        self.step = StepEntry(start.version, now)
        self.rollout: dict[int, RolloutEntry] = {}
        self.train: dict[int, TrainEntry] = {}
        self.role: dict[int, str] = {}
        self._order = order
        self._pending = deque(start.pending)
        self._next_index = start.next_index
        self._unconsumed: dict[int, Unconsumed] = {}
        self._groups: dict[int, Group] = {}
        self._finished_count = 0
        self._boundary = start

    def add_devices(self, *, rollout: Iterable[int], train: Iterable[int], pools: bool) -> None:
        """Enter the devices of each role; without pools each device has both and begins as a trainer."""
        self.rollout = {device: RolloutEntry(device) for device in rollout}
        self.train = {device: TrainEntry(device) for device in train}
        self.role = {} if pools else dict.fromkeys(self.train, "train")

    # -- facts --------------------------------------------------------------------------------------------------------

    def group_finished(self, group: SealedGroup) -> Group:
        """The worker scored a group; its own version counts from now on."""
        entry = self._end_flight(group)
        entry.finished, entry.version = group, group.version
        self._finished_count += 1
        entry.order = self._finished_count
        self._unconsumed[entry.group_id] = Unconsumed(
            group_id=entry.group_id, version=entry.version, bound=entry.bound, finished=True, order=entry.order
        )
        return entry

    def group_excluded(self, group: SealedGroup) -> Group:
        """The group leaves the count, or the starting rule would starve the run."""
        entry = self._end_flight(group)
        entry.finished, entry.version = group, group.version
        del self._groups[entry.group_id], self._unconsumed[entry.group_id]
        self.excluded += 1
        return entry

    def groups_aborted(self, device: int, group_ids: Iterable[int]) -> None:
        """A stopping run took its groups back: their prompts are pending again for whoever resumes."""
        for group_id in group_ids:
            self._pending.append(self._groups[group_id].index)
            del self.rollout[device].in_flight[group_id], self._groups[group_id], self._unconsumed[group_id]

    def _end_flight(self, group: SealedGroup) -> Group:
        entry = self._groups[group.group_id]
        assert entry.version <= group.version, f"group {group.group_id} is older than the weights it was started on"
        del self.rollout[entry.device].in_flight[group.group_id]
        return entry

    def chunk_done(self, device: int, stats: ChunkStats) -> None:
        trainer = self.train[device]
        assert trainer.chunks, f"device {device} reported a chunk while it was on {trainer.busy}"
        self.step.trained += len(trainer.chunks.popleft())
        self.step.stats += stats
        trainer.busy = "chunk" if trainer.chunks else None

    def step_done(self, now: float) -> StepEntry:
        """The optimizer made the step; returns it and opens the next one."""
        done = self.step
        for group in done.taken:
            del self._groups[group.group_id]
        for trainer in self.train.values():
            trainer.busy, trainer.shipped = None, False
        # a checkpoint asked for while the optimizer was at work is one of the version that it made
        self.step = StepEntry(done.version + 1, now, checkpoint_due=done.checkpoint_due)
        self._boundary = self._start_point()
        return done

    def _start_point(self) -> StartPoint:
        pending = sorted(group.index for group in self._groups.values())
        return StartPoint(
            version=self.step.version,
            excluded=self.excluded,
            next_index=self._next_index,
            pending=(*pending, *self._pending),
        )

    @property
    def resume_point(self) -> StartPoint:
        """What a run that continues from the present version needs."""
        boundary = self._boundary
        if self.excluded == boundary.excluded:
            return boundary
        # exclusions of the step under way are final: their prompts are not asked again
        open_indices = {group.index for group in self._groups.values()} | set(self._pending)
        pending = tuple(i for i in boundary.pending if i in open_indices)
        started_since = range(boundary.next_index, self._next_index)
        pending += tuple(i for i in started_since if i in open_indices)
        return StartPoint(
            version=boundary.version, excluded=self.excluded, next_index=self._next_index, pending=pending
        )

    # -- actions ------------------------------------------------------------------------------------------------------

    def start_groups(self, device: int, count: int) -> tuple[GroupRequest, ...]:
        """Enter the next groups of the data order as in flight on the device."""
        replica = self.rollout[device]
        assert replica.version is not None, f"device {device} has no weights to start groups with"
        requests = []
        for _ in range(count):
            index = self._pending.popleft() if self._pending else self._next_index
            self._next_index = max(self._next_index, index + 1)
            epoch, position, item = self._order(index)
            group = Group(self.started, index, device, self.bound, replica.version)
            self.started += 1
            self._groups[group.group_id] = group
            replica.in_flight[group.group_id] = group
            self._unconsumed[group.group_id] = Unconsumed(
                group_id=group.group_id, version=group.version, bound=group.bound, finished=False
            )
            requests.append(
                GroupRequest(
                    group_id=group.group_id,
                    epoch=epoch,
                    position=position,
                    item=item,
                    bound=self.bound.staleness,
                )
            )
        return tuple(requests)

    def take(self, group_ids: Iterable[int]) -> None:
        for group_id in group_ids:
            del self._unconsumed[group_id]
            self.step.taken.append(self._groups[group_id])
            self.step.queue.append(group_id)
        assert len(self.step.taken) <= self.B, f"step {self.step.version} took more than its {self.B} groups"

    def hand_chunk(self, device: int, group_ids: tuple[int, ...]) -> tuple[SealedGroup, ...]:
        """Enter a chunk as running and return its groups."""
        trainer = self.train[device]
        trainer.busy = "chunk"
        trainer.chunks.append(group_ids)
        groups = []
        for group_id in group_ids:
            self.step.queue.remove(group_id)
            finished = self._groups[group_id].finished
            assert finished is not None, f"group {group_id} was taken before it was finished"
            groups.append(finished)
        return tuple(groups)

    def discard_step(self) -> None:
        """A stopping run gives the unfinished step back; its groups are pending again for whoever resumes."""
        self.step.trained = 0
        self.step.queue.clear()

    # -- the picture --------------------------------------------------------------------------------------------------

    @property
    def places_left(self) -> float:
        """Prompts of the data order that nobody has started; infinite without a limit."""
        return math.inf if self._places is None else self._places - self._next_index + len(self._pending)

    @property
    def steps_left(self) -> int:
        """Steps to make; fewer than the job asks for where exclusions leave too few prompts to fill them."""
        groups = len(self.step.taken) + len(self._unconsumed) + self.places_left
        return int(min(self.job.algorithm.steps - self.step.version, groups // self.B))

    @property
    def in_flight(self) -> int:
        return sum(len(replica.in_flight) for replica in self.rollout.values())

    @property
    def buffered(self) -> int:
        """Finished groups that no step has taken."""
        return len(self._unconsumed) - self.in_flight

    @property
    def unconsumed(self) -> tuple[Unconsumed, ...]:
        return tuple(self._unconsumed.values())

    def state(self) -> State:
        """The frozen picture for the policy."""
        step = self.step
        slots = self.job.devices.rollout_slots // self.job.algorithm.group_size
        return State(
            arm=self.job.schedule.arm,
            streaming=self.job.schedule.consume_resolved == "stream",
            bound=self.bound,
            max_chunk_groups=self.job.schedule.max_chunk_groups,
            published=self.published,
            started=self.started,
            excluded=self.excluded,
            prompts_left=int(min(self.job.algorithm.steps * self.B - (self.started - self.excluded), self.places_left)),
            steps_left=self.steps_left,
            paused=self.paused,
            stopping=self.stopping,
            rollout=tuple(self._rollout_replica(entry, slots) for entry in self.rollout.values()),
            train=tuple(
                TrainReplica(
                    device=entry.device,
                    ready=entry.ready and self.role.get(entry.device) != "rollout",
                    busy=entry.busy,
                    chunks=len(entry.chunks),
                    shipped=entry.shipped,
                )
                for entry in self.train.values()
            ),
            step=Step(
                version=step.version,
                taken=tuple((group.version, group.bound) for group in step.taken),
                queue=tuple(step.queue),
                trained=step.trained,
                evals_waiting=tuple(step.evals_waiting),
                evals_running=step.evals_running,
                checkpoint_due=step.checkpoint_due,
                checkpoint_running=step.checkpoint_running,
            ),
            unconsumed=self.unconsumed,
            colocated=tuple(self._colocated(device) for device in self.role),
        )

    def _rollout_replica(self, entry: RolloutEntry, slots: int) -> RolloutReplica:
        may_update = self.in_flight_updates is not False and all(
            group.bound.staleness > 0 for group in entry.in_flight.values()
        )
        return RolloutReplica(
            device=entry.device,
            version=entry.version,
            loading=entry.loading,
            in_flight=len(entry.in_flight),
            may_update_in_flight=may_update,
            free_groups=max(0, slots - len(entry.in_flight)),
        )

    def _colocated(self, device: int) -> ColocatedDevice:
        own = [group for group in self._groups.values() if group.device == device]
        taken = {group.group_id for group in self.step.taken}
        queue = tuple(group_id for group_id in self.step.queue if self._groups[group_id].device == device)
        finished = sorted((g for g in own if g.finished and g.group_id not in taken), key=lambda g: g.order)
        return ColocatedDevice(
            device=device,
            role=self.role[device],
            share=share_of(list(self.role).index(device), len(self.role), self.B),
            started=len(own),
            finished=tuple(group.group_id for group in finished),
            queue=queue,
            trained=sum(group.device == device for group in self.step.taken) - len(queue),
        )
