"""The frozen picture of a run that the policy decides on. Reads the books and changes nothing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from engine.run.book import Book, RolloutEntry, TrainEntry
from engine.run.homes import Homes
from engine.run.lending import Lending
from planner.policy.colocated import share_of
from planner.policy.improvements import Improvements
from planner.policy.state import ColocatedDevice, Estimates, Limits, RolloutReplica, State, Step, TrainReplica

HANDOVER_S = 0.04
"""What a report and an answer may take on a busy machine: a trainer gets its next chunk so much before the end of its
present one, and earlier by the share that the forecast may be wrong."""

FORECAST_ERROR = 0.15

SEEN_SHARE = 0.02
"""Of a group's latency: how much older a rollouter's picture may get while nothing happens on it."""

LEAST_LEFT = 0.1
"""Share of a group's work that is taken to be left, however long it has been running: it is not finished."""


@dataclass(slots=True)
class Picture:
    """Makes states."""

    book: Book
    lending: Lending
    homes: Homes
    improvements: Improvements
    estimates: Estimates | None = field(default=None)
    """What was measured so far; None: too little."""
    chunk_seconds: Callable[[int], float | None] = field(default=lambda tokens: None)
    """Tokens of a chunk -> how long it will take; None while that is not known, and it is handed out ahead at once."""
    _known: dict[int, tuple[tuple[object, ...], float, RolloutReplica]] = field(default_factory=dict)
    """Device -> what its picture depends on, until when it holds (unix seconds), and the picture."""

    def state(self, now: float) -> State:
        """The picture at `now`, unix seconds."""
        book, step, schedule = self.book, self.book.step, self.book.job.schedule
        groups = book.groups
        wanted = max(0, book.steps_wanted * book.B - (groups.started - groups.excluded))
        awaited, leaving = self._awaited(), self.homes.leaving
        return State(
            arm=schedule.arm,
            streaming=schedule.consume_resolved == "stream",
            bound=book.bound,
            max_chunk_groups=book.job.max_chunk_groups,
            published=book.published,
            started=groups.started,
            excluded=groups.excluded,
            prompts_left=int(min(wanted, groups.places_left)),
            steps_left=book.steps_left,
            paused=book.paused,
            stopping=book.stopping,
            rollout=tuple(self._rollouter(entry, now) for entry in book.rollout.values()),
            train=tuple(self._trainer(entry, leaving) for entry in book.train.values()),
            step=Step(
                version=step.version,
                taken=step.counted.picture(),
                queue=tuple(step.queue),
                trained=step.trained,
                evals_waiting=tuple(step.evals_waiting),
                evals_running=step.evals_running,
                checkpoint_due=step.checkpoint_due,
                checkpoint_running=step.checkpoint_running,
            ),
            unconsumed=groups.counted,
            colocated=tuple(self._colocated(device) for device in book.role),
            blocks=self.lending.blocks(awaited),
            returned=groups.returned,
            estimates=self.estimates,
            improvements=self.improvements,
            directions=self.lending.open_directions(now),
            refused=frozenset(self.lending.refused),
            closing_since=step.closing_since,
            moving=self.homes.moving(self.lending, awaited),
            recalled=self.lending.recalled,
            limits=self.limits,
        )

    @property
    def limits(self) -> Limits:
        """What operators allow; an emulated run's times are those of this machine here."""
        job = self.book.job
        borrow, scale = job.schedule.borrow, job.devices.time_scale if job.emulated else 1.0
        return Limits(lend_cap=borrow.lend_cap, min_lease_s=borrow.min_lease_s * scale)

    def _awaited(self) -> set[int]:
        """Trainers that an evaluation or the checkpoint of this version waits for, or that are on their way to it."""
        step = self.book.step
        awaited = {device for _, device in step.evals_waiting} | set(self.book.joining)
        if step.checkpoint_due:
            awaited |= set(self.book.trainers[:1])
        return awaited

    def _rollouter(self, entry: RolloutEntry, now: float) -> RolloutReplica:
        """As it was when last looked at, unless something has changed or its groups have grown visibly."""
        key = (self.book.groups.changes(entry.device), entry.version, entry.loading, entry.lease, self.estimates)
        known = self._known.get(entry.device)
        if known is None or known[0] != key or now >= known[1]:
            latency_s = self.estimates.group_latency_s if self.estimates else 0.0
            known = self._known[entry.device] = key, now + SEEN_SHARE * latency_s, self._looked_at(entry, now)
        return known[2]

    def _looked_at(self, entry: RolloutEntry, now: float) -> RolloutReplica:
        held = self.book.groups.in_flight.get(entry.device, {})
        may_update = self.book.in_flight_updates is not False and all(
            group.bound.staleness > 0 for group in held.values()
        )
        latency_s = self.estimates.group_latency_s if self.estimates else 0.0
        ages = [now - group.began_at for group in held.values()] if latency_s > 0 else []
        return RolloutReplica(
            device=entry.device,
            version=entry.version,
            loading=entry.loading,
            in_flight=len(held),
            may_update_in_flight=may_update,
            free_groups=self.book.groups.room(
                entry.device,
                slots=self.book.job.slots * self.homes.layout.copies,
                group_size=self.book.job.algorithm.group_size,
            ),
            block=self.lending.block_of(entry.device),
            lease=entry.lease,
            left_groups=sum(max(LEAST_LEFT, 1 - age / latency_s) for age in ages),
        )

    def _trainer(self, entry: TrainEntry, leaving: frozenset[int]) -> TrainReplica:
        return TrainReplica(
            device=entry.device,
            ready=entry.ready and not entry.leaving and self.book.role.get(entry.device) != "rollout",
            busy=entry.busy,
            chunks=len(entry.chunks),
            shipped=entry.shipped,
            block=self.lending.block_of(entry.device),
            lease=entry.lease,
            groups=sum(len(chunk) for chunk in entry.chunks),
            busy_since=entry.busy_since,
            leaving=entry.lease is None and entry.device in leaving,
            ahead_at=self.ahead_at(entry),
        )

    def ahead_at(self, entry: TrainEntry) -> float:
        """When the trainer may be handed its next chunk, unix seconds; 0: at once."""
        seconds = self.chunk_seconds(entry.tokens[0]) if entry.tokens else None
        return 0.0 if seconds is None else entry.busy_since + seconds * (1 - FORECAST_ERROR) - HANDOVER_S

    def next_due(self, now: float) -> float:
        """When the policy is to be asked again though nothing has happened, unix seconds; infinite: not at all."""
        young = self.lending.youngest_end(self.limits.min_lease_s, now)
        if not (self.book.step.queue or self.book.groups.buffered):
            return young
        due = (self.ahead_at(entry) for entry in self.book.train.values() if len(entry.chunks) == 1)
        return min([young, *(at for at in due if at > now)])

    def _colocated(self, device: int) -> ColocatedDevice:
        book = self.book
        own = book.groups.of_device(device)
        taken = {group.group_id for group in book.step.taken}
        queue = tuple(group_id for group_id in book.step.queue if book.groups[group_id].device == device)
        finished = sorted((g for g in own if g.finished and g.group_id not in taken), key=lambda g: g.order)
        return ColocatedDevice(
            device=device,
            role=book.role[device],
            share=share_of(list(book.role).index(device), len(book.role), book.B),
            started=len(own),
            finished=tuple(group.group_id for group in finished),
            queue=queue,
            trained=sum(group.device == device for group in book.step.taken) - len(queue),
        )
