"""The rollouter of a simulated worker: groups that grow token by token, from the start or from a prefix.

Holding more than fits, or continuing a strictly on-policy group under other weights, is an AssertionError here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from engine.learning.sequences import GroupRequest, Partial, PartialGroup, oldest_version
from engine.worker import messages as msg

if TYPE_CHECKING:
    from tests.engine.simulated_device import Device

TOKENS_PER_S = 40.0
"""Of one sequence, however many run beside it."""

PROMPT_TOKENS = 3


@dataclass(eq=False)
class Running:
    """A group that a device generates."""

    request: GroupRequest
    started_at: float | None
    """Of its first token."""
    length: int = 1
    """Tokens of each response in the end."""
    token_s: float = 1.0
    begins_at: float = 0.0
    """When the next token of this stretch was due at its beginning."""
    before: int = 0
    """Tokens that it had then."""
    versions: tuple[tuple[int, int], ...] = ()
    """Of the tokens so far, as ranges."""

    @property
    def tokens(self) -> int:
        return sum(count for _, count in self.versions)

    @property
    def version(self) -> int | None:
        return oldest_version([self.versions])

    def grow(self, tokens: int, version: int) -> None:
        """It has this many tokens now, the new ones of this version."""
        new = tokens - self.tokens
        if new > 0:
            self.versions = (*self.versions, (version, new))


class Rollouter:
    """Active or passive."""

    def __init__(self, device: Device) -> None:
        self._device = device
        self.active: dict[int, Running] = {}
        self.version: int | None = None
        self.name: str | None = None
        """Which weights these are; a version has one name."""
        self.lease: int | None = None
        self._since = 0.0
        self._starts = self._resumes = self._sequences = 0
        self._seconds = 0.0
        self._units: list[msg.DecodeUnit] = []

    # -- commands -----------------------------------------------------------------------------------------------------

    def add(self, requests: tuple[GroupRequest, ...]) -> None:
        device = self._device
        self.advance()
        for request in requests:
            assert request.group_id not in self.active, f"group {request.group_id} is held already"
            self._add(request)
        job = device.spec.job
        slots = job.devices.rollout_slots // job.algorithm.group_size
        assert len(self.active) <= slots, f"device {device.spec.device} holds {len(self.active)} groups of {slots}"

    def _add(self, request: GroupRequest) -> None:
        device, workers = self._device, self._device.workers
        seconds, _ = workers.group_s(request.epoch, request.position)
        most = device.spec.job.sampling.max_response_tokens
        length = min(most, max(1, round(seconds * TOKENS_PER_S)))
        running = Running(request, request.started_at, length=length, token_s=seconds / length)
        running.begins_at = workers.clock.now + min(seconds, workers.rng.expovariate(20))
        if request.partial:
            running.versions = request.partial[0].versions
            running.before = running.tokens
            assert 0 < running.tokens < length, (
                f"group {request.group_id} came with {running.tokens} of {length} tokens"
            )
            versions = {version for version, _ in running.versions}
            assert max(versions) <= self.held, f"group {request.group_id} has tokens of newer weights"
            on_policy = request.bound > 0 or versions == {self.version}
            assert on_policy, f"group {request.group_id} of bound 0 goes on under version {self.version}: {versions}"
            self._resumes += len(request.partial)
        else:
            self._starts += device.spec.job.algorithm.group_size
        self.active[request.group_id] = running
        end_s = (length - 1 - running.before) * running.token_s
        workers.clock.at(running.begins_at + end_s, lambda: self._end(running))

    @property
    def held(self) -> int:
        assert self.version is not None, f"device {self._device.spec.device} was asked to generate without weights"
        return self.version

    def abort(self) -> None:
        """All groups go back with their prefixes."""
        self.advance()
        self.report()
        groups = tuple(partial_group(group) for group in self.active.values())
        self.active.clear()
        self._device.emit(msg.GroupsAborted(groups=groups))

    def load(self, version: int, name: str) -> None:
        self.advance()
        for group in self.active.values():
            assert group.request.bound > 0, f"group {group.request.group_id} of bound 0 got new weights in flight"
            asked = self._device.spec.job.schedule.in_flight_updates
            assert asked is not False, f"group {group.request.group_id} was to end under the weights it began with"
        self.version, self.name = version, name

    # -- time ---------------------------------------------------------------------------------------------------------

    def advance(self) -> None:
        """Everything that was sampled until now."""
        now = self._device.workers.clock.now
        if self.active:
            self._seconds += now - self._since
            size = self._device.spec.job.algorithm.group_size
            for group in self.active.values():
                if now >= group.begins_at:
                    due = group.before + int((now - group.begins_at) / group.token_s) + 1
                    self._grow(group, min(due, group.length - 1), size)
        self._since = now
        if self._seconds >= msg.UNIT_S:
            self.report()

    def _grow(self, group: Running, tokens: int, size: int) -> None:
        self._sequences += size * max(0, tokens - group.tokens)
        group.grow(tokens, self.held)
        if group.started_at is None and group.tokens:
            group.started_at = group.begins_at

    def _end(self, group: Running) -> None:
        device = self._device
        if device.lost or self.active.get(group.request.group_id) is not group:
            return  # taken back
        self.advance()
        self._grow(group, group.length, device.spec.job.algorithm.group_size)
        del self.active[group.request.group_id]
        if not self.active:
            self.report()
        sealed = sealed_group(group, device.workers.clock.now, size=device.spec.job.algorithm.group_size)
        _, fails = device.workers.group_s(group.request.epoch, group.request.position)
        if fails:
            device.emit(
                msg.GroupExcluded(group=sealed, reason=device.workers.physics.reason, detail="no answer could be read")
            )
        else:
            device.emit(msg.GroupScored(group=sealed))

    def report(self) -> None:
        """Hand on the timing of what was generated since the last report."""
        steps = round(self._seconds * TOKENS_PER_S)
        if steps and self._sequences:
            unit = msg.DecodeUnit(
                steps=steps,
                sequences=self._sequences,
                starts=self._starts,
                resumes=self._resumes,
                seconds=self._seconds,
                lease=self.lease,
            )
            self._units.append(unit)
            if self.lease is not None:
                self._device.span("rollout", self._seconds)
        self._starts = self._resumes = self._sequences = 0
        self._seconds = 0.0

    def take_units(self) -> tuple[msg.DecodeUnit, ...]:
        units, self._units = tuple(self._units), []
        return units


def sealed_group(group: Running, now: float, *, size: int = 2) -> msg.SealedGroup:
    assert group.version is not None
    request = group.request
    response = {"text": "", "reward": 0.5, "tokens": group.tokens, "versions": [list(part) for part in group.versions]}
    return msg.SealedGroup(
        group_id=request.group_id,
        epoch=request.epoch,
        item=request.item,
        version=group.version,
        prompt=f"question {request.item}",
        prompt_tokens=PROMPT_TOKENS,
        responses=(response,) * size,
        reward_mean=0.5,
        started_at=now if group.started_at is None else group.started_at,
        finished_at=now,
        data=b"",
    )


def partial_group(group: Running) -> PartialGroup:
    request = group.request
    tokens = group.tokens
    partial = Partial(
        tokens=np.zeros(tokens, dtype=np.int32),
        logprobs=np.zeros(tokens, dtype=np.float32),
        versions=group.versions,
    )
    return PartialGroup(
        group_id=request.group_id,
        epoch=request.epoch,
        position=request.position,
        item=request.item,
        bound=request.bound,
        version=group.version,
        partial=(partial, partial) if tokens else (),
        started_at=group.started_at if tokens else None,
    )
