"""Feeds the online profiler with what workers report, and takes from it what the policy and the pages are told.

Units on primaries and auxiliaries count alike: a device is as fast in either role.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from engine.config import Job
from engine.config.profile import ProfileConfig, from_profile, to_profile
from engine.run.lending import LiveLease
from engine.worker import messages as msg
from planner.measuring import Profiler
from planner.policy.state import Estimates

WAY_S = 0.01
"""What a rehearsed switch lacks each way: a message, and the token or the chunk under way. Without it the first leases
are too short to win anything, and it is them that the guard looks at."""


@dataclass(slots=True)
class _Chunks:
    """Chunks of one device in a row."""

    chunks: int = 0
    groups: int = 0
    tokens: int = 0
    carried: float = 0.0
    seconds: float = 0.0


class Profiling:
    """What one run measures of itself."""

    def __init__(self, job: Job, given: ProfileConfig | None) -> None:
        """`given`: of a calibration; the job's own goes before it."""
        given = job.profile or given
        self._emulated = job.emulated
        self.switched = False
        """A switch was measured since this was last taken back."""
        self._scale = job.devices.time_scale if job.emulated else 1.0
        longest = given.response_tokens.max if job.emulated and given else job.sampling.max_response_tokens
        self._profiler = Profiler(
            group_size=job.algorithm.group_size,
            slots=job.slots,
            max_chunk_groups=job.max_chunk_groups,
            prompts_per_step=job.algorithm.prompts_per_step,
            max_response_tokens=longest,
            given=None if given is None else to_profile(given).scaled(self._scale),
        )
        self._tokens = self._groups = 0
        self._chunks: dict[int, _Chunks] = {}
        self._train_speed = self._profiler.train_speed()
        self.problem: str | None = None
        """Why what was measured cannot be told as a profile."""

    def ready(self, rehearsal: msg.Rehearsal | None, home: str | None) -> None:
        """A device tried what switching costs."""
        if rehearsal is None:
            return
        direction = "rollout_on_train" if home == "train" else "train_on_rollout"
        way_s = 0.0 if self._emulated else WAY_S
        self._profiler.rehearsed(
            direction, in_s=rehearsal.in_s + way_s, out_s=rehearsal.out_s + way_s, grad_s=rehearsal.grad_s
        )

    def decoded(self, unit: msg.DecodeUnit) -> None:
        """A stretch of generation."""
        if unit.steps >= msg.UNIT_STEPS:
            self._profiler.decoded(
                steps=unit.steps,
                sequences=unit.sequences,
                starts=unit.starts,
                resumes=unit.resumes,
                seconds=unit.seconds,
            )

    def finished(self, group: msg.SealedGroup) -> None:
        """A group ended."""
        lengths = [response["tokens"] for response in group.responses]
        if lengths:
            self._tokens, self._groups = self._tokens + sum(lengths), self._groups + 1
            self._profiler.finished(lengths, group.prompt_tokens)

    def trained(self, device: int, event: msg.ChunkDone) -> None:
        """A chunk ended. Only groups with signal go through the model. Short chunks of a device count together."""
        stats = event.stats
        if not event.trained or event.given_back or not stats.tokens:
            return
        unit = self._chunks.setdefault(device, _Chunks())
        unit.chunks, unit.groups = unit.chunks + 1, unit.groups + len(event.trained)
        unit.tokens += stats.prompt_tokens + stats.response_tokens
        unit.carried += stats.tokens + stats.prompt_tokens * (stats.groups - stats.no_signal) / stats.groups
        unit.seconds += event.seconds
        if unit.seconds >= msg.UNIT_S:
            self._enter(self._chunks.pop(device))

    def _enter(self, unit: _Chunks) -> None:
        self._profiler.trained(
            groups=unit.groups, tokens=unit.tokens, seconds=unit.seconds, carried=unit.carried, chunks=unit.chunks
        )
        self._train_speed = self._profiler.train_speed()

    def stepped(self, event: msg.StepDone) -> None:
        """A step was made; the snapshot belongs to it, merging is counted apart. While too little was measured to lend
        at all, short units are better than none."""
        while self._profiler.missing and self._chunks:
            self._enter(self._chunks.popitem()[1])
        self._profiler.optimized(event.optimizer_s + event.snapshot_s)

    def merged(self, seconds: float) -> None:
        """Primaries fetched the gradients of auxiliaries."""
        self._profiler.switched("train_on_rollout", grad_s=seconds)

    def synced(self, seconds: float) -> None:
        """Rollouters hold a new version."""
        self._profiler.synced(seconds)

    def released(self, lease: LiveLease) -> None:
        """A lease has ended. One that came too late to work took at least as long as its preparation: leaving it out
        would make switching look cheaper than it is."""
        if lease.ready_at is None:
            return
        self.switched = True
        in_s = lease.in_s if lease.in_s is not None else lease.ready_at - lease.since
        self._profiler.switched(lease.life.direction, in_s=in_s, out_s=lease.out_s)

    @property
    def group_tokens(self) -> float | None:
        """Mean response tokens of a group; None before the first one."""
        return self._tokens / self._groups if self._groups else None

    def estimates(self) -> Estimates | None:
        """What the policy knows; None while too little was measured."""
        return self._profiler.estimates()

    def chunk_seconds(self, tokens: int) -> float | None:
        """How long a chunk of so many tokens will take; None while too little was measured."""
        speed = self._train_speed
        return None if speed is None else speed.chunk_s + tokens / speed.tokens_per_s

    def columns(self) -> dict[str, Any]:
        """Of the run's row: the measured profile and the error of its forecasts."""
        errors = self._profiler.errors()
        return {
            "profile": self._document(),
            "model_error": {
                stage: {"median": error.median, "p90": error.p90, "count": error.count} if error else None
                for stage, error in errors.items()
            },
        }

    def _document(self) -> dict[str, Any] | None:
        """The measured profile as a job file has it: an emulated device's in the seconds that it stands for."""
        profile = self._profiler.profile()
        if profile is None:
            return None
        try:
            return from_profile(profile.scaled(1 / self._scale)).model_dump(mode="json")
        except ValueError as error:
            self.problem = f"What was measured is no profile: {' '.join(str(error).split())[:300]}"
            return None
