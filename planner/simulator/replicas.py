"""Simulated replicas: continuous batching on one side, chunks on the other (design section 9). They decide nothing."""

from __future__ import annotations

from collections import deque
from heapq import heapify, heappop, heappush
from typing import Any

from planner.policy.bound import Bound
from planner.policy.state import RolloutReplica, TrainReplica

ROUNDING = 1e-6
"""Tokens: sequences that end within it end together; progress is a float of up to a few thousand tokens."""


class Group:
    """One group from its start to its step."""

    __slots__ = ("bound", "group_id", "left", "order", "place", "responses", "resumed", "tokens", "version")

    def __init__(self, group_id: int, place: int, responses: list[int], bound: Bound) -> None:
        self.group_id = group_id
        self.place = place
        self.responses = responses
        self.tokens = sum(responses)
        self.bound = bound
        self.version = 0
        self.left: list[tuple[float, float]] = []
        """(tokens to go, tokens it has) of each unfinished response while no replica holds the group; empty: none."""
        self.resumed = 0
        self.order = 0


class Rollouter:
    """A replica in the rollouter role: every active sequence advances at R / (b + h) tokens per second."""

    __slots__ = (
        "_progress",
        "_queue",
        "_starts",
        "_time",
        "block",
        "busy_since",
        "device",
        "devices",
        "generated",
        "group_size",
        "groups",
        "half",
        "idle_since",
        "in_flight_updates",
        "lease",
        "rate",
        "residual",
        "residual_step",
        "resume_tokens",
        "slots",
        "stamp",
        "start_tokens",
        "unfinished",
        "version",
        "view",
    )

    def __init__(
        self,
        *,
        device: int,
        devices: int,
        block: int,
        lease: int | None,
        version: int,
        rate: float,
        half: float,
        resume_tokens: float,
        start_tokens: float,
        slots: int,
        group_size: int,
        in_flight_updates: bool,
        residual: tuple[float, ...],
        residual_step: float,
        now: float,
    ) -> None:
        self.device, self.devices, self.block, self.lease, self.version = device, devices, block, lease, version
        self.rate, self.half, self.resume_tokens = rate, half, resume_tokens
        self.start_tokens, self.slots, self.group_size = start_tokens, slots, group_size
        self.in_flight_updates = in_flight_updates
        self.residual, self.residual_step = residual, residual_step
        self.groups: dict[int, Group] = {}
        self.unfinished: dict[int, int] = {}
        self.stamp = 0
        self.view: RolloutReplica | None = None
        self.idle_since: float | None = now
        self.busy_since = now
        self.generated = 0.0
        """Tokens that it has generated."""
        self._queue: list[tuple[float, int, float]] = []
        self._starts = 0.0
        self._progress = 0.0
        self._time = now

    def advance(self, now: float) -> float:
        """Generate until `now`; the tokens by which each active sequence has grown since the last call."""
        active, step = len(self._queue), 0.0
        if active:
            step = (now - self._time) * self.rate / (active + self.half)
            self._progress += step
            self.generated += active * step
        self._time = now
        return step

    def next_end(self) -> float:
        """When the next sequence ends if nothing else happens."""
        return self._time + max(0.0, self._queue[0][0] - self._progress) * (len(self._queue) + self.half) / self.rate

    @property
    def room(self) -> int:
        """Groups whose sequences would all find a free slot."""
        return (self.slots - len(self._queue)) // self.group_size

    @property
    def active(self) -> int:
        """Sequences being generated."""
        return len(self._queue)

    def begin(self, group: Group) -> None:
        """Take a group: from its start, or from its prefixes."""
        queue, progress, group_id = self._queue, self._progress, group.group_id
        if group.left:
            lengths = [(left + self.resume_tokens, done) for left, done in group.left]
            group.left = []
            group.resumed += 1
        else:
            # until its prompt is computed it has less than no token
            start = self.start_tokens
            lengths = [(tokens + start, -start) for tokens in group.responses]
            group.version = self.version
        for length, done in lengths:
            heappush(queue, (progress + length, group_id, progress - done))
        self._starts += progress * len(lengths) - sum(done for _, done in lengths)
        self.groups[group_id] = group
        self.unfinished[group_id] = len(lengths)
        self.view = None

    def ended(self) -> list[Group]:
        """Remove the sequences that have ended; the groups that are finished with them."""
        queue = self._queue
        if queue:
            # this is called when the next one ends: at large times the clock is too coarse to say so to the token
            self._progress = max(self._progress, queue[0][0])
        limit = self._progress + ROUNDING
        finished: list[Group] = []
        unfinished = self.unfinished
        while queue and queue[0][0] <= limit:
            _, group_id, start = heappop(queue)
            self._starts -= start
            left = unfinished[group_id] - 1
            if left:
                unfinished[group_id] = left
            else:
                del unfinished[group_id]
                finished.append(self.groups.pop(group_id))
                self.view = None
        if not queue:
            self._progress = self._starts = 0.0
        if self.view is not None and self.view.free_groups != (self.slots - len(queue)) // self.group_size:
            self.view = None
        return finished

    def give_back(self, group_ids: tuple[int, ...], *, lost: bool = False) -> list[Group]:
        """Take groups out with their prefixes, or without when they are lost."""
        out = set(group_ids)
        back = [self.groups.pop(group_id) for group_id in group_ids]
        left: dict[int, list[tuple[float, float]]] = {group_id: [] for group_id in group_ids}
        kept = []
        for entry in self._queue:
            if entry[1] in out:
                # what is missing of its prompt is computed by whoever continues it, as part of resuming
                done = max(0.0, self._progress - entry[2])
                tokens = entry[0] - max(self._progress, entry[2])
                left[entry[1]].append((max(tokens, ROUNDING), done))
                self._starts -= entry[2]
            else:
                kept.append(entry)
        self._queue = kept
        heapify(kept)
        for group in back:
            del self.unfinished[group.group_id]
            group.left = [] if lost else left[group.group_id]
        self.view = None
        return back

    def _left_groups(self) -> float:
        """Expected work of the active sequences, in groups, from the mean of the tokens that they have."""
        active = len(self._queue)
        if not active:
            return 0.0
        done = max(0.0, self._progress - self._starts / active)
        return active * self.residual[min(int(done * self.residual_step), len(self.residual) - 1)]

    def picture(self) -> RolloutReplica:
        """What the policy sees."""
        if self.view is None:
            groups = self.groups
            self.view = RolloutReplica(
                device=self.device,
                version=self.version,
                loading=False,
                in_flight=len(groups),
                may_update_in_flight=self.in_flight_updates,
                free_groups=self.room,
                block=self.block,
                lease=self.lease,
                left_groups=self._left_groups(),
            )
        return self.view


class Trainer:
    """A replica in the trainer role."""

    __slots__ = (
        "block",
        "boundaries",
        "busy",
        "busy_since",
        "chunks",
        "device",
        "devices",
        "idle_since",
        "lease",
        "ready",
        "shipped",
        "stamp",
        "trained",
        "view",
    )

    def __init__(self, *, device: int, devices: int, block: int, lease: int | None, now: float) -> None:
        self.device, self.devices, self.block, self.lease = device, devices, block, lease
        self.busy: str | None = None
        self.busy_since = now
        self.chunks: deque[tuple[int, ...]] = deque()
        self.boundaries: list[float] = []
        """When each group of the running chunk is done."""
        self.trained: list[int] = []
        """Groups of this step whose gradient it holds."""
        self.ready = True
        """It may begin something: its lease is not ending."""
        self.shipped = False
        self.stamp = 0
        self.view: TrainReplica | None = None
        self.idle_since: float | None = now

    def picture(self) -> TrainReplica:
        """What the policy sees."""
        if self.view is None:
            self.view = TrainReplica(
                device=self.device,
                ready=self.ready,
                busy=self.busy,
                chunks=len(self.chunks),
                shipped=self.shipped,
                block=self.block,
                lease=self.lease,
                groups=sum(map(len, self.chunks)),
                busy_since=self.busy_since,
            )
        return self.view

    def changed(self, **values: Any) -> None:
        """Set attributes and forget the picture."""
        for name, value in values.items():
            setattr(self, name, value)
        self.view = None
