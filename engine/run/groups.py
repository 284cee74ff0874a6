"""Every group of a run from start to consumption, and the counts that the staleness rules stand on.

    started -> in flight on a device -> finished -> taken by a step -> consumed (when the step is made)
                  |  ^                      \\-> excluded (counted, with its reason)
                  v  | (its prefix goes along; lost: it begins anew)
                returned

No Ray, no clock, no telemetry: a wrong entry is an AssertionError.
"""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from engine.learning.sequences import GroupRequest, PartialGroup
from engine.worker.messages import RolloutLoad, SealedGroup
from planner.policy.counted import Counted, Tally
from planner.policy.staleness import Bound, Unconsumed
from planner.policy.state import Returned

DataOrder = Callable[[int], tuple[int, int, int]]
"""Index in the data order -> (epoch, position in the epoch, training item)."""


@dataclass(slots=True)
class Group:
    """A group from start to consumption."""

    group_id: int
    index: int
    """Place in the data order over all epochs."""
    device: int
    """That holds it, or held it last."""
    bound: Bound
    version: int
    """Of its first token: that of the replica until the worker reports it."""
    began_at: float
    """When it began to grow, unix seconds; the time in which nobody held it is left out."""
    finished: SealedGroup | None = None
    order: int = 0
    grown_s: float = 0.0
    """How long it had grown when it came back."""


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


class Groups:
    """All groups that no step has consumed."""

    def __init__(self, start: StartPoint, *, prompts_per_step: int, order: DataOrder, places: int | None) -> None:
        """`places`: how many the data order has over all epochs; None: no limit."""
        self.started = start.version * prompts_per_step + start.excluded
        self.excluded = start.excluded
        self.in_flight: dict[int, dict[int, Group]] = {}
        """Device -> its groups by number."""
        self._handed: dict[int, int] = {}
        self._loads: dict[int, RolloutLoad] = {}
        self._order = order
        self._places = places
        self._pending = deque(start.pending)
        self._next_index = start.next_index
        self._unconsumed: dict[int, Unconsumed] = {}
        self._tally = Tally()
        """The same, counted: what a decision reads at every tick."""
        self._changes: Counter[int] = Counter()
        self._groups: dict[int, Group] = {}
        self._returned: dict[int, PartialGroup | None] = {}
        self._finished_count = 0
        self._boundary = start

    def __getitem__(self, group_id: int) -> Group:
        return self._groups[group_id]

    # -- facts --------------------------------------------------------------------------------------------------------

    def finish(self, group: SealedGroup) -> Group:
        """The worker scored a group; its own version counts from now on."""
        entry = self._end_flight(group)
        if group.version != entry.version:
            self._tally.remove(entry.group_id, entry.version, entry.bound)
            self._tally.add(group.version, entry.bound)
        entry.finished, entry.version = group, group.version
        self._finished_count += 1
        entry.order = self._finished_count
        self._tally.finish(entry.group_id, entry.version, entry.bound, entry.order)
        self._unconsumed[entry.group_id] = Unconsumed(
            group_id=entry.group_id, version=entry.version, bound=entry.bound, finished=True, order=entry.order
        )
        return entry

    def exclude(self, group: SealedGroup) -> Group:
        """The group leaves the count, or the starting rule would starve the run."""
        entry = self._end_flight(group)
        self._tally.remove(entry.group_id, entry.version, entry.bound)
        entry.finished, entry.version = group, group.version
        del self._groups[entry.group_id], self._unconsumed[entry.group_id]
        self.excluded += 1
        return entry

    def _end_flight(self, group: SealedGroup) -> Group:
        entry = self._groups[group.group_id]
        assert entry.version <= group.version, f"group {group.group_id} is older than the weights it was started on"
        del self.in_flight[entry.device][group.group_id]
        self._changes[entry.device] += 1
        return entry

    def come_back(self, device: int, partials: Iterable[PartialGroup], now: float) -> None:
        """A device gave unfinished groups back with their prefixes."""
        self._changes[device] += 1
        for partial in partials:
            group = self.in_flight[device].pop(partial.group_id)
            group.grown_s = now - group.began_at if partial.partial else 0.0
            self._returned[partial.group_id] = partial if partial.partial else None

    def lose(self, device: int) -> int:
        """A device is gone: what it held begins anew elsewhere. Returns how many."""
        lost = self.in_flight.pop(device, {})
        self._changes[device] += 1
        self._handed.pop(device, None)
        self._loads.pop(device, None)
        self._returned |= dict.fromkeys(lost)
        return len(lost)

    # -- actions ------------------------------------------------------------------------------------------------------

    def start(self, device: int, version: int, bound: Bound, count: int, now: float) -> tuple[GroupRequest, ...]:
        """Enter the next groups of the data order as in flight on the device, whose weights have this version."""
        requests = []
        for _ in range(count):
            index = self._pending.popleft() if self._pending else self._next_index
            self._next_index = max(self._next_index, index + 1)
            group = Group(self.started, index, device, bound, version, now)
            self.started += 1
            self._groups[group.group_id] = group
            self._tally.add(version, bound)
            requests.append(self._fly(group))
        return tuple(requests)

    def resume(self, device: int, version: int, group_ids: Iterable[int], now: float) -> tuple[GroupRequest, ...]:
        """Returned groups go on on this device; one whose prefix is lost begins anew, at this version."""
        requests = []
        for group_id in group_ids:
            group, partial = self._groups[group_id], self._returned.pop(group_id)
            group.device, group.began_at = device, now - (group.grown_s if partial is not None else 0.0)
            if partial is None:
                self._tally.remove(group_id, group.version, group.bound)
                self._tally.add(version, group.bound)
                group.version = version
            else:
                assert group.version <= version, f"group {group_id} is newer than the weights of device {device}"
            fresh = self._fly(group)
            requests.append(fresh if partial is None else partial.request())
        return tuple(requests)

    def _fly(self, group: Group) -> GroupRequest:
        epoch, position, item = self._order(group.index)
        self.in_flight.setdefault(group.device, {})[group.group_id] = group
        self._handed[group.device] = self._handed.get(group.device, 0) + 1
        self._changes[group.device] += 1
        self._unconsumed[group.group_id] = Unconsumed(
            group_id=group.group_id, version=group.version, bound=group.bound, finished=False
        )
        return GroupRequest(
            group_id=group.group_id, epoch=epoch, position=position, item=item, bound=group.bound.staleness
        )

    def take(self, group_ids: Iterable[int]) -> list[Group]:
        """A step consumes these finished groups; they stay known until it is made."""
        taken = [self._groups[group_id] for group_id in group_ids]
        for group in taken:
            del self._unconsumed[group.group_id]
            self._tally.remove(group.group_id, group.version, group.bound)
        return taken

    def retire(self, groups: Iterable[Group], version: int) -> None:
        """The step that took these groups is made; `version` is the new one."""
        for group in groups:
            del self._groups[group.group_id]
        pending = sorted(group.index for group in self._groups.values())
        self._boundary = StartPoint(
            version=version,
            excluded=self.excluded,
            next_index=self._next_index,
            pending=(*pending, *self._pending),
        )

    # -- counts -------------------------------------------------------------------------------------------------------

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

    @property
    def places_left(self) -> float:
        """Prompts of the data order that nobody has started; infinite without a limit."""
        return math.inf if self._places is None else self._places - self._next_index + len(self._pending)

    def loaded(self, device: int, load: RolloutLoad) -> None:
        """A device said how full its rollouter is."""
        if self._loads.get(device) != load:
            self._loads[device] = load
            self._changes[device] += 1

    def changes(self, device: int) -> int:
        """Grows whenever something of what the device holds, or how full it is, changes."""
        return self._changes[device]

    def room(self, device: int, *, slots: int, group_size: int) -> int:
        """Groups that the device can take at once: those that wait for a slot until their last response has ended
        would leave slots empty, so free slots count, not groups. What is on its way to it takes whole groups' room."""
        load, held = self._loads.get(device), len(self.in_flight.get(device, {}))
        if load is None:
            return max(0, slots // group_size - held)
        on_its_way = self._handed.get(device, 0) - load.added
        return max(0, (slots - load.active) // group_size - on_its_way)

    @property
    def flying(self) -> int:
        """Groups in flight."""
        return sum(len(groups) for groups in self.in_flight.values())

    @property
    def buffered(self) -> int:
        """Finished groups that no step has taken."""
        return len(self._unconsumed) - self.flying - len(self._returned)

    @property
    def open(self) -> int:
        """Groups started, not excluded and not taken."""
        return len(self._unconsumed)

    @property
    def unconsumed(self) -> tuple[Unconsumed, ...]:
        """Those groups."""
        return tuple(self._unconsumed.values())

    @property
    def counted(self) -> Counted:
        """The same, counted by version and bound."""
        return self._tally.picture()

    @property
    def returned(self) -> tuple[Returned, ...]:
        """Unfinished groups that no device holds, as the policy sees them."""
        return tuple(
            Returned(
                group_id=group_id,
                version=self._groups[group_id].version if partial is not None else -1,
                on_policy=partial is not None and self._groups[group_id].bound.start_allowance == 0,
            )
            for group_id, partial in self._returned.items()
        )

    def of_device(self, device: int) -> list[Group]:
        """Known groups that the device holds or held last."""
        return [group for group in self._groups.values() if group.device == device]
