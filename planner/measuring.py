"""Measures a run while it goes on: from its units to the profile that a simulator obeys and to what the policy knows.

    rollout unit: seconds = steps * h/R + sequences / R + starts * p + resumes * q     (b sequences: (b + h) / R a step)
    train unit:   seconds = chunks * chunk_s + carried tokens * token_s

Pure: told what was measured, it reads no clock. Units of all devices are mixed. It assumes nothing: without a profile
that was given, there is none until every part of one has been measured.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import replace
from statistics import median

import numpy as np

from planner.fitting import Errors
from planner.linear_fit import DECAY, LinearFit
from planner.policy.leases import DIRECTIONS
from planner.policy.state import Estimates
from planner.profile import Lengths, Profile, RolloutSpeed, SwitchCosts, TrainSpeed
from planner.profile_models import draw_lengths
from planner.recorded_lengths import RECENT, RecordedLengths
from planner.recorded_models import recorded_estimates

LEAST_DECODES = 8
"""Rollout units before speeds are told: four costs, and twice as many units."""

LEAST_CHUNKS = 4
"""Chunks before the trainer's speed is told: two costs, and twice as many units."""

LEAST_GROUPS = 8
"""Groups before lengths are told."""

COSTS_KEPT = 16
"""Measured switches, optimizer steps and weight syncs of which the median is taken: one slow one moves nothing."""

CARRIED_DECAY = 0.99
"""Per chunk, of the share of tokens that carry signal: it falls while a model learns."""

REFILL_S = 0.015
"""Free slots of a live replica stay free so long: a token step, a report, a decision and its answer."""

MOST_NOISE = 1.0
"""Largest noise that a profile may have."""

RESUMES = 3
"""Place of the continued sequences among the amounts of a rollout unit."""


class Profiler:
    """Everything that one run has measured of itself."""

    def __init__(
        self,
        *,
        group_size: int,
        slots: int,
        max_chunk_groups: int,
        prompts_per_step: int,
        max_response_tokens: int | None = None,
        given: Profile | None = None,
    ) -> None:
        """`slots`: sequences that a rollout replica takes at once. `max_response_tokens`: where responses are cut;
        None: the longest seen. `given`: holds for each part until that is measured."""
        self._group_size, self._slots = group_size, slots
        self._max_chunk_groups, self._prompts_per_step = max_chunk_groups, prompts_per_step
        self._given = given
        # a step's fixed part and its sequences share the time evenly until batches of different sizes say otherwise
        self._rollout = LinearFit(
            shares=(0.5, 0.5, 0.0, 0.0),
            floors=(0.0, 0.01, 0.0, 0.0),
            minimum=LEAST_DECODES,
            given=None if given is None else _decode_costs(given.rollout),
        )
        # full chunks alike tell nothing of a chunk's fixed part: until others do it is taken to be small, since whoever
        # believes in a large one shares no work out
        self._train = LinearFit(
            shares=(0.1, 0.9),
            floors=(0.0, 0.01),
            minimum=LEAST_CHUNKS,
            given=None if given is None else (given.train.chunk_s, 1 / given.train.tokens_per_s),
        )
        self._lengths = RecordedLengths(group_size=group_size, per_step=prompts_per_step, most=max_response_tokens)
        self._measured: dict[str, deque[float]] = {}
        self._rehearsed: dict[str, deque[float]] = {}
        self._steps = self._sequences = 0.0
        self._tokens = self._carried = 0.0

    # -- what was measured --------------------------------------------------------------------------------------------

    def decoded(self, *, steps: int, sequences: int, starts: int, resumes: int, seconds: float) -> None:
        """One unit of one rollout replica.

        `steps` decode steps that together generated `sequences` tokens, `starts` sequences whose prompt was computed
        anew, `resumes` that were continued from a prefix, in `seconds` of work. Raises ValueError for no measurement.
        """
        self._rollout.observe((steps, sequences, starts, resumes), seconds)
        self._steps = DECAY * self._steps + steps
        self._sequences = DECAY * self._sequences + sequences

    def trained(
        self, *, groups: int, tokens: int, seconds: float, carried: float | None = None, chunks: int = 1
    ) -> None:
        """Some chunks in a row: their groups, prompt plus response tokens and seconds. Raises ValueError likewise.

        `carried`: tokens that went through the model, where groups without signal do not; None: all of them.
        """
        if not chunks <= groups <= self._max_chunk_groups * chunks:
            most = self._max_chunk_groups * chunks
            raise ValueError(f"{chunks} chunks have {chunks} to {most} groups, got {groups!r}")
        carried = tokens if carried is None else carried
        self._train.observe((chunks, carried), seconds)
        self._tokens = CARRIED_DECAY * self._tokens + tokens
        self._carried = CARRIED_DECAY * self._carried + carried

    def finished(self, lengths: Sequence[int], prompt_tokens: float) -> None:
        """Response lengths of one finished group and the tokens of its prompt."""
        self._lengths.add(lengths, prompt_tokens)

    def optimized(self, seconds: float) -> None:
        """One step's optimizer."""
        self._enter("optimizer_s", seconds)

    def synced(self, seconds: float) -> None:
        """One publication, from the optimizer's end until rollouters hold the version."""
        self._enter("weight_sync_s", seconds)

    def switched(
        self,
        direction: str,
        *,
        in_s: float | None = None,
        out_s: float | None = None,
        grad_s: float | None = None,
    ) -> None:
        """Parts of a switch, as far as they were measured. Raises ValueError for a direction that does not exist."""
        if direction not in DIRECTIONS:
            raise ValueError(f"direction must be one of {', '.join(DIRECTIONS)}, got {direction!r}")
        for part, seconds in (("in_s", in_s), ("out_s", out_s), ("grad_s", grad_s)):
            if seconds is not None:
                self._enter(f"{direction}.{part}", seconds)

    def rehearsed(self, direction: str, *, in_s: float, out_s: float, grad_s: float) -> None:
        """A switch that was tried before the run began: it holds until a real one of the direction is measured."""
        for part, seconds in (("in_s", in_s), ("out_s", out_s), ("grad_s", grad_s)):
            self._rehearsed.setdefault(f"{direction}.{part}", deque(maxlen=COSTS_KEPT)).append(seconds)

    def _enter(self, name: str, seconds: float) -> None:
        if not 0 <= seconds < float("inf"):
            raise ValueError(f"{name} must be a number of seconds >= 0, got {seconds!r}")
        self._measured.setdefault(name, deque(maxlen=COSTS_KEPT)).append(seconds)

    # -- what follows -------------------------------------------------------------------------------------------------

    @property
    def missing(self) -> tuple[str, ...]:
        """What a profile still needs, in words; nothing where one was given."""
        if self._given is not None:
            return ()
        counts = (
            ("rollout units", self._rollout.count, LEAST_DECODES),
            ("chunks", self._train.count, LEAST_CHUNKS),
            ("finished groups", len(self._lengths), LEAST_GROUPS),
        )
        few = [f"{least - count} more {name}" for name, count, least in counts if count < least]
        needed = (
            "optimizer_s",
            "weight_sync_s",
            *(f"{way}.{part}" for way in DIRECTIONS for part in ("in_s", "out_s")),
        )
        return (*few, *(name for name in needed if name not in self._measured and name not in self._rehearsed))

    def profile(self) -> Profile | None:
        """What a simulator obeys; None while something is missing."""
        profile = self._costs()
        if profile is None or len(self._lengths) < LEAST_GROUPS:
            return profile
        return replace(
            profile, response_tokens=self._lengths.fit(), prompt_tokens=round(self._lengths.prompt_tokens, 3)
        )

    def estimates(self) -> Estimates | None:
        """What the policy knows, from the lengths of the last groups; None while something is missing. Costs a few
        milliseconds."""
        profile = self._costs(now=True)
        if profile is None:
            return None
        if len(self._lengths) < LEAST_GROUPS:
            lengths = draw_lengths(profile.response_tokens, RECENT, self._group_size, seed=0)
        else:
            lengths = self._lengths.recent()
            profile = replace(profile, prompt_tokens=self._lengths.prompt_tokens)
        known = np.asarray(lengths, dtype=np.float64)
        return recorded_estimates(profile, known, self._prompts_per_step, refill_s=REFILL_S)

    def train_speed(self) -> TrainSpeed | None:
        """Of the last few chunks; None while too few were measured."""
        if self._given is None and self._train.count < LEAST_CHUNKS:
            return None
        return self._train_speed(now=True)

    def errors(self) -> dict[str, Errors | None]:
        """Relative errors of each stage's last forecasts, every unit predicted before it was entered."""
        return {"rollout": self._rollout.errors, "train": self._train.errors}

    def _costs(self, *, now: bool = False) -> Profile | None:
        """The profile without the measured lengths. `now`: at the speed of the last few units instead of the usual."""
        if self.missing:
            return None
        given = self._given
        return Profile(
            rollout=self._rollout_speed(now=now),
            train=self._train_speed(now=now),
            optimizer_s=self._seconds("optimizer_s", given.optimizer_s if given else None),
            weight_sync_s=self._seconds("weight_sync_s", given.weight_sync_s if given else None),
            rollout_on_train=self._switch("rollout_on_train", given.rollout_on_train if given else None),
            train_on_rollout=self._switch("train_on_rollout", given.train_on_rollout if given else None),
            response_tokens=given.response_tokens if given else Lengths(median=1.0, max=1),
            prompt_tokens=given.prompt_tokens if given else 0.0,
            noise=self._noise(),
            models=given.models if given else None,
        )

    def _rollout_speed(self, *, now: bool) -> RolloutSpeed:
        if self._given is not None and not self._rollout.measured:
            return self._given.rollout
        assert self._rollout.costs is not None
        step_s, sequence_s, start_s, resume_s = self._rollout.costs_now if now else self._rollout.costs
        if self._given is None and not self._rollout.seen(RESUMES):
            resume_s = start_s  # nothing was continued yet: a prefix is computed again like a prompt
        half = step_s / sequence_s
        # a start keeps the whole replica, a token's worth of work only one of its b slots: as many tokens as the
        # replica generates in that time at the batch size that was measured
        batch = self._sequences / self._steps if self._steps else float(self._slots)
        tokens_per_s = batch / (batch + half) / sequence_s
        return RolloutSpeed(
            slots=self._slots,
            tokens_per_s=1 / sequence_s,
            half_batch=half,
            resume_tokens=resume_s * tokens_per_s,
            start_tokens=start_s * tokens_per_s,
        )

    def _train_speed(self, *, now: bool) -> TrainSpeed:
        if self._given is not None and not self._train.measured:
            return self._given.train
        assert self._train.costs is not None
        chunk_s, token_s = self._train.costs_now if now else self._train.costs
        # whoever plans counts all tokens of a group, and does not know which groups will carry no signal
        token_s *= self._carried / self._tokens if self._carried else 1.0
        return TrainSpeed(tokens_per_s=1 / token_s, chunk_s=chunk_s, max_chunk_groups=self._max_chunk_groups)

    def _noise(self) -> float:
        """Of a chunk: a rollout unit's is that of a few decode steps, which evens out over a response."""
        if self._train.noise is None:
            assert self._given is not None
            return self._given.noise
        return min(self._train.noise, MOST_NOISE)

    def _seconds(self, name: str, given: float | None) -> float:
        values = self._measured.get(name) or (None if given is not None else self._rehearsed.get(name))
        if values is None:
            assert given is not None, f"{name} was neither measured nor given"
            return given
        return median(values)

    def _switch(self, direction: str, given: SwitchCosts | None) -> SwitchCosts:
        return SwitchCosts(
            in_s=self._seconds(f"{direction}.in_s", given.in_s if given else None),
            out_s=self._seconds(f"{direction}.out_s", given.out_s if given else None),
            # a direction that never merged a gradient has not been charged for one
            grad_s=self._seconds(f"{direction}.grad_s", given.grad_s if given else 0.0),
        )


def _decode_costs(speed: RolloutSpeed) -> tuple[float, float, float, float]:
    """Seconds per step, sequence, start and resume, at full slots."""
    token_s = (speed.slots + speed.half_batch) / (speed.tokens_per_s * speed.slots)
    return (
        speed.half_batch / speed.tokens_per_s,
        1 / speed.tokens_per_s,
        speed.start_tokens * token_s,
        speed.resume_tokens * token_s,
    )
