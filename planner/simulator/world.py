"""The books of a simulated run and the picture of them that `decide` reads."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from planner.policy.bound import Bound
from planner.policy.counted import Tally
from planner.policy.guard import Guard, is_off
from planner.policy.state import Block, Estimates, Limits, Returned, State, Step
from planner.simulator.replicas import Group, Rollouter, Trainer
from planner.simulator.setup import Setup
from planner.simulator.trace import Lease
from planner.simulator.workload import Workload


@dataclass(slots=True)
class BlockEntry:
    """A block and whatever is on it: home replicas, or auxiliaries under a lease."""

    block: int
    pool: str
    first_device: int
    lease: Lease | None = None
    lease_state: str = ""
    since: float = 0.0
    counted_until: float = 0.0
    """Its device time is accounted for until then: it was lent during the optimizer step, which was counted ahead."""
    reserved: int = 0
    dead_until: float | None = None
    picture: Block | None = None


@dataclass(slots=True)
class StepEntry:
    """The step being filled."""

    version: int
    began_at: float
    taken: list[Group] = field(default_factory=list)
    counted: Tally = field(default_factory=Tally)
    queue: deque[int] = field(default_factory=deque)
    trained: int = 0
    merges: bool = False
    """An auxiliary holds or shipped a part of its gradient."""
    closing_since: float | None = None


class World:
    """All counts of a simulated run."""

    def __init__(self, setup: Setup, estimates: Estimates, workload: Workload) -> None:
        self.setup = setup
        self.estimates = estimates
        self.bound = Bound(staleness=setup.staleness, prompts_per_step=setup.prompts_per_step)
        self.published = 0
        self.started = 0
        self.excluded = 0
        self.finished = 0
        self.tally = Tally()
        self.refused: set[str] = set()
        self.directions = setup.directions
        self.limits = Limits(lend_cap=setup.lend_cap, min_lease_s=setup.min_lease_s)
        self.guards: dict[str, Guard] = {name: Guard() for name in sorted(self.directions)}
        self.workload = workload
        self._next = 0
        self._skipped: list[int] = []
        self.groups: dict[int, Group] = {}
        self.returned: dict[int, Group] = {}
        self.step = StepEntry(0, 0.0)
        self.rollouters: dict[int, Rollouter] = {}
        self.trainers: dict[int, Trainer] = {}
        size = setup.block_size if setup.lendable else 0
        self.blocks: dict[int, BlockEntry] = {}
        if size:
            for first in range(0, setup.devices, size):
                pool = "rollout" if first < setup.rollout_devices else "train"
                self.blocks[first // size] = BlockEntry(first // size, pool, first)

    def block_of(self, device: int) -> int:
        """Number of the block with this device; -1 where nothing can be lent."""
        return device // self.setup.block_size if self.blocks else -1

    def has_work_for(self, replica: Rollouter) -> bool:
        """Room on the replica could be filled."""
        started = self.started - self.excluded
        return bool(self.returned) or started < self.bound.start_cap(replica.version)

    # -- pictures -----------------------------------------------------------------------------------------------------

    def state(self, now: float) -> State:
        """The frozen picture."""
        setup, step = self.setup, self.step
        steps_left = setup.steps - step.version
        return State(
            arm=setup.arm,
            streaming=setup.streaming,
            bound=self.bound,
            max_chunk_groups=setup.profile.train.max_chunk_groups,
            published=self.published,
            started=self.started,
            excluded=self.excluded,
            prompts_left=setup.steps * setup.prompts_per_step - (self.started - self.excluded),
            steps_left=steps_left,
            paused=False,
            stopping=False,
            rollout=tuple([replica.view or replica.picture() for replica in self.rollouters.values()]),
            train=tuple([replica.view or replica.picture() for replica in self.trainers.values()]),
            step=Step(
                version=step.version,
                taken=step.counted.picture(),
                queue=tuple(step.queue),
                trained=step.trained,
                evals_waiting=(),
                evals_running=0,
                checkpoint_due=False,
                checkpoint_running=False,
            ),
            unconsumed=self.tally.picture(),
            blocks=tuple([entry.picture or self._block(entry) for entry in self.blocks.values()]),
            returned=tuple(
                Returned(
                    group_id=group.group_id,
                    version=group.version if group.left else -1,
                    on_policy=bool(group.left) and group.bound.start_allowance == 0,
                )
                for group in self.returned.values()
            ),
            estimates=self.estimates,
            improvements=setup.improvements,
            directions=self.open_directions(now),
            upcoming=self.upcoming(),
            refused=frozenset(self.refused),
            closing_since=step.closing_since,
            chunks_ahead=setup.chunks_ahead,
            limits=self.limits,
        )

    def _block(self, entry: BlockEntry) -> Block:
        setup = self.setup
        home, away = setup.rollout_replica_size, setup.train_replica_size
        if entry.pool == "train":
            home, away = away, home
        since = entry.since
        if entry.lease is not None and setup.min_lease_s > 0:
            since = entry.lease.life.granted_at  # a least length counts from the grant, as it does live
        entry.picture = Block(
            block=entry.block,
            pool=entry.pool,
            primaries=setup.block_size // home,
            auxiliaries=setup.block_size // away,
            devices=setup.block_size,
            lease=entry.lease.lease if entry.lease else None,
            lease_state=entry.lease_state if entry.dead_until is None else "dead",
            since=since,
            reserved=entry.reserved,
        )
        return entry.picture

    # -- groups -------------------------------------------------------------------------------------------------------

    def open_directions(self, now: float) -> frozenset[str]:
        """Directions that the job allows and no guard holds off."""
        if not any(guard.off_until is not None for guard in self.guards.values()):
            return self.directions
        return frozenset(name for name in self.directions if not is_off(self.guards[name], now))

    def upcoming(self) -> tuple[float, ...]:
        """Expected tokens of the next places, as far as the starting rule reaches now."""
        if self.setup.length_hint is None:
            return ()
        cap = self.bound.start_cap(self.published)
        # to the end of the step that they fill: a group of the next one would only take a slot from it
        per_step = self.bound.prompts_per_step
        reach = min(cap - (self.started - self.excluded), per_step - (self.started - self.excluded) % per_step)
        return tuple(self.workload.expected(place) for place in self.next_places(reach))

    def next_places(self, count: int) -> list[int]:
        """The next places of the data order that nobody has started."""
        places = self._skipped[:count]
        return places + list(range(self._next, self._next + count - len(places)))

    def pull(self, count: int, picks: tuple[int, ...]) -> list[int]:
        """Places that are started now."""
        if not picks and not self._skipped:
            self._next += count
            return list(range(self._next - count, self._next))
        candidates = self.next_places(max(picks, default=count - 1) + 1)
        taken = [candidates[pick] for pick in picks] if picks else candidates[:count]
        last = max(*taken, self._next - 1)
        self._skipped = sorted((set(self._skipped) | set(range(self._next, last + 1))) - set(taken))
        self._next = last + 1
        return taken

    def start(self, replica: Rollouter, place: int) -> None:
        """The replica begins the group at a place of the data order."""
        group = Group(self.started, place, self.workload.group(place), self.bound)
        self.started += 1
        replica.begin(group)
        self.groups[group.group_id] = group
        self.tally.add(group.version, group.bound)

    def resume(self, replica: Rollouter, group_id: int) -> None:
        """The replica continues a returned group; one whose prefix was lost begins again under its weights."""
        group = self.returned.pop(group_id)
        again = not group.left
        if again:
            self.tally.remove(group_id, group.version, group.bound)
        assert again or group.version <= replica.version, f"group {group_id} is newer than replica {replica.device}"
        replica.begin(group)
        if again:
            self.tally.add(group.version, group.bound)

    def finish(self, group: Group, excluded: bool) -> None:
        """A group's last response has ended."""
        if excluded:
            self.tally.remove(group.group_id, group.version, group.bound)
            del self.groups[group.group_id]
            self.excluded += 1
            return
        self.finished += 1
        group.order = self.finished
        self.tally.finish(group.group_id, group.version, group.bound, group.order)

    def take(self, group_ids: tuple[int, ...]) -> None:
        """The step consumes these groups."""
        step = self.step
        for group_id in group_ids:
            group = self.groups[group_id]
            self.tally.remove(group_id, group.version, group.bound)
            step.taken.append(group)
            step.counted.add(group.version, group.bound)
        step.queue.extend(group_ids)
        assert len(step.taken) <= self.setup.prompts_per_step, f"step {step.version} took too many groups"

    def requeue(self, group_ids: list[int]) -> None:
        """Groups of the step whose gradient is not held by anybody any more: at the head of the queue again."""
        self.step.queue.extendleft(reversed(group_ids))
