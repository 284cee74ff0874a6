"""The rollouter of one device: holds groups, scores the finished ones, and times what it generates."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from engine.learning.tasks import ReasoningGymTask, RewardFailed
from engine.worker import messages as msg

if TYPE_CHECKING:
    from engine.learning.sequences import FinishedGroup, GroupRequest
    from engine.learning.transformers_rollouter import TransformersRollouter
    from engine.learning.weights import Vector
    from engine.worker.device_worker import DeviceWorker


FEW_GROUPS = 4
"""With so many in hand or fewer, slots that wait for a report are a fifth of the replica or more."""


class RolloutRole:
    """Primary on a rollout device, auxiliary under a lease."""

    def __init__(self, worker: DeviceWorker, rollouter: TransformersRollouter, task: ReasoningGymTask) -> None:
        self._worker = worker
        self._rollouter = rollouter
        self._task = task
        self._lease: int | None = None
        self._loaded = False
        self._added = 0
        self._room = 0
        """Groups that find free slots, when last looked at."""
        worker.rollout_load = self.load_now
        self._steps = self._sequences = self._starts = self._resumes = 0
        self._seconds = 0.0

    @property
    def version(self) -> int:
        """Of its weights; -1 before the first ones: those that its model was built with are nobody's."""
        return self._rollouter.version if self._loaded else -1

    @property
    def nbytes(self) -> int:
        return self._rollouter.nbytes

    @property
    def generating(self) -> bool:
        """There is a next token to generate."""
        return self._rollouter.active_groups > 0

    def load_now(self) -> msg.RolloutLoad:
        """How full it is; asked by another thread. A group that is added between the two readings counts twice, so the
        room that is left is never told too large."""
        added = self._added
        return msg.RolloutLoad(added=added, active=self._rollouter.active_sequences)

    def under(self, lease: int | None) -> None:
        """From now on it works under this lease, or for its own pool."""
        self.report()
        self._lease = lease

    def add(self, requests: Sequence[GroupRequest]) -> None:
        self._enter()
        begin = time.perf_counter()
        for request in requests:
            self._rollouter.add(request)
            self._added += 1
            growing = [p for p in request.partial if p.finished_by is None]
            self._resumes += len(growing)
            self._starts += 0 if request.partial else self._worker.spec.job.algorithm.group_size
        self._seconds += time.perf_counter() - begin

    def step(self) -> None:
        """One token for every sequence; finished groups are scored and reported."""
        self._enter()
        begin = time.perf_counter()
        self._sequences += self._rollouter.active_sequences
        finished = self._rollouter.step()
        self._steps += 1
        for group in finished:
            self._worker.ledger.enter("scoring", ref=f"group {group.group_id}")
            self._score(group)
        self._note_room()
        self._seconds += time.perf_counter() - begin
        if self._seconds >= msg.UNIT_S or not self.generating:
            self.report()

    def _note_room(self) -> None:
        """Free slots that another group would fill are told: at once where few groups are left to wait for, since then
        they are a large part of the replica."""
        job = self._worker.spec.job
        room = (job.slots - self._rollouter.active_sequences) // job.algorithm.group_size
        if room > self._room:
            self._worker.room(at_once=self._rollouter.active_groups <= FEW_GROUPS)
        self._room = room

    def abort(self) -> None:
        """All groups go back with their prefixes."""
        self.report()
        self._worker.emit(msg.GroupsAborted(groups=tuple(self._rollouter.abort())))

    def load(self, vector: Vector, version: int) -> None:
        self._rollouter.load(vector, version)
        self._loaded = True

    def rehearse(self, vector: Vector) -> None:
        """Go once through what waking needs, so that the first time is like the others."""
        self._rollouter.load(vector, 0)
        self._rollouter.greedy([self._task.prompt(0)])

    def report(self) -> None:
        """Hand on the timing of what was generated since the last report."""
        if self._steps:
            unit = msg.DecodeUnit(
                steps=self._steps,
                sequences=self._sequences,
                starts=self._starts,
                resumes=self._resumes,
                seconds=self._seconds,
                lease=self._lease,
            )
            self._worker.timed(unit)
        self._steps = self._sequences = self._starts = self._resumes = 0
        self._seconds = 0.0

    def _enter(self) -> None:
        role = "primary" if self._lease is None else "auxiliary"
        self._worker.ledger.enter("rollout", role=role, version=self._rollouter.version)

    def _score(self, group: FinishedGroup) -> None:
        try:
            rewards = [self._task.score(group.item, response.text) for response in group.responses]
        except RewardFailed as error:
            sealed = msg.SealedGroup.seal(group, excluded=True)
            self._worker.emit(msg.GroupExcluded(group=sealed, reason="reward_failed", detail=str(error)))
            return
        self._worker.emit(msg.GroupScored(group=msg.SealedGroup.seal(group.with_rewards(rewards))))
