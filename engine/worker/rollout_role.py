"""The rollouter of one device: holds groups, has the finished ones scored, and times what it generates.

    growing -> finished, handed to the scoring -> scored, reported | excluded, with its reason
       \\          \\-> not scored yet when the role ends here: given back, whole, to whoever scores it next
        \\-> never, where the model cannot be asked its prompt: excluded, with its reason

It generates while answers are being scored; only when nothing grows it waits for rewards, and says so.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from itertools import islice
from typing import TYPE_CHECKING

import numpy as np

from engine.learning.grpo.advantages import has_signal
from engine.learning.prompts import PromptRefused
from engine.learning.rewards.reward import Question, RewardFailed
from engine.learning.rewards.scoring import Answers, Scoring, Verdict
from engine.learning.sequences import FinishedGroup
from engine.learning.tasks import Task
from engine.worker import messages as msg

if TYPE_CHECKING:
    from engine.learning.sequences import GroupRequest
    from engine.learning.slot_rollouter import SlotRollouter
    from engine.learning.weights import Vector
    from engine.worker.device_worker import DeviceWorker


FEW_GROUPS = 4
"""With so many in hand or fewer, slots that wait for a report are a fifth of the replica or more."""

MOST_LOOKED_AT = 64
"""Items among which a rehearsal looks for one that the model can be asked; where none is, it answers nothing."""

REWARDS_WAIT_S = 0.05
"""Longest single wait for rewards when nothing grows: a command is seen within that time."""

GIVE_BACK_S = 1.0
"""How long groups that are all but scored are waited for before they are given back: most take milliseconds."""


class RolloutRole:
    """Primary on a rollout device, auxiliary under a lease."""

    def __init__(self, worker: DeviceWorker, rollouter: SlotRollouter, task: Task, scoring: Scoring) -> None:
        self._worker = worker
        self._rollouter = rollouter
        self._task = task
        self._scoring = scoring
        self._unscored: dict[int, FinishedGroup] = {}
        """Groups that are finished and wait for their rewards, by number."""
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
        """There is a next token to generate, or a reward to wait for."""
        return self._rollouter.active_groups > 0 or bool(self._unscored)

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
            try:
                self._rollouter.add(request)
            except PromptRefused as refused:
                self._added += 1  # it has arrived, and takes no slot
                self._refuse(request, refused)
                continue
            self._added += 1  # after its slots are taken: see `load_now`
            growing = [p for p in request.partial if p.finished_by is None]
            self._resumes += len(growing)
            self._starts += 0 if request.partial else self._worker.spec.job.algorithm.group_size
        self._seconds += time.perf_counter() - begin

    def step(self) -> None:
        """One token for every sequence; groups that are finished are scored, and reported when they are."""
        if not self._rollouter.active_groups:
            self._worker.ledger.enter("idle", ref=msg.REWARDS)
            self._report_scored(REWARDS_WAIT_S)
            return
        self._enter()
        begin = time.perf_counter()
        self._sequences += self._rollouter.active_sequences
        finished = self._rollouter.step()
        self._steps += 1
        for group in finished:
            self._worker.ledger.enter("scoring", ref=f"group {group.group_id}")
            self._hand_in(group)
        self._report_scored(0.0)
        self._note_room()
        self._seconds += time.perf_counter() - begin
        whole = self._seconds >= msg.UNIT_S and self._steps >= msg.UNIT_STEPS
        if whole or not self._rollouter.active_groups:
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
        """All groups go back with their prefixes, those too that are finished and not scored."""
        self.report()
        until = time.perf_counter() + GIVE_BACK_S
        while self._unscored and (left := until - time.perf_counter()) > 0:
            self._report_scored(left)
        self._scoring.withdraw()
        whole = tuple(group.unscored() for group in self._unscored.values())
        self._unscored.clear()
        self._worker.emit(msg.GroupsAborted(groups=(*self._rollouter.abort(), *whole)))

    def rest(self) -> None:
        """The device is the other role's: memory that this one can do without is given back."""
        self._rollouter.sleep()

    def rise(self) -> None:
        """The device is this role's again."""
        self._rollouter.wake()

    def load(self, vector: Vector, version: int) -> None:
        self._rollouter.load(vector, version)
        self._loaded = True

    def rehearse(self, vector: Vector) -> None:
        """Go once through what waking needs, so that the first time is like the others."""
        self._rollouter.load(vector, 0)
        prompts = map(self._task.prompt, range(min(self._task.size, MOST_LOOKED_AT)))
        self._rollouter.greedy(list(islice((p for p in prompts if self._rollouter.refusal(p) is None), 1)))
        self._rollouter.sleep()

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

    def _hand_in(self, group: FinishedGroup) -> None:
        question = Question(item=group.item, prompt=group.prompt, entry=self._task.entry(group.item))
        texts = tuple(response.text for response in group.responses)
        self._unscored[group.group_id] = group
        self._scoring.submit(Answers(key=group.group_id, question=question, texts=texts))

    def _report_scored(self, wait_s: float) -> None:
        if self._unscored:
            for verdict in self._scoring.collect(wait_s):
                self._report_verdict(self._unscored.pop(verdict.key), verdict)

    def _report_verdict(self, group: FinishedGroup, verdict: Verdict) -> None:
        job = self._worker.spec.job
        weights = {reward.name: reward.weight for reward in job.task.scored_by}
        try:
            rewards = verdict.totals(weights)
        except RewardFailed as failure:
            self._exclude(group, failure.reason, str(failure))
            return
        scored = group.with_rewards(rewards, verdict.values if len(weights) > 1 else None)
        if job.algorithm.dynamic_sampling and not has_signal(np.array(rewards)):
            self._exclude(scored, msg.NO_SIGNAL, f"all of its answers earn {rewards[0]:g}")
        else:
            self._worker.emit(msg.GroupScored(group=msg.SealedGroup.seal(scored)))

    def _refuse(self, request: GroupRequest, refused: PromptRefused) -> None:
        """A group that never began is excluded as it is: with its prompt and no response."""
        now = self._worker.now()
        group = FinishedGroup(
            group_id=request.group_id,
            epoch=request.epoch,
            position=request.position,
            item=request.item,
            bound=request.bound,
            version=self._rollouter.version,
            prompt=self._task.prompt(request.item),
            prompt_tokens=np.zeros(0, dtype=np.int32),
            responses=(),
            started_at=now,
            finished_at=now,
        )
        self._exclude(group, refused.reason, f"{self._task.place(request.item)}: {refused}")

    def _exclude(self, group: FinishedGroup, reason: str, detail: str) -> None:
        sealed = msg.SealedGroup.seal(group, excluded=True)
        self._worker.emit(msg.GroupExcluded(group=sealed, reason=reason, detail=detail))
