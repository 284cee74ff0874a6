"""`profile` of a job file: what emulated and simulated devices obey, and its pure conversion to the planner's and back.

Nothing is assumed that decides: speeds and costs are required, only the spread of lengths and the noise have defaults.
It refuses what is no time, no speed or no length.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

from pydantic import Field, model_validator

from engine.config.strict import Strict
from planner.profile import Lengths, Models, Profile, RolloutSpeed, SwitchCosts, TrainSpeed
from planner.stage_model import StageModel

MAX_LOG_SPREAD = 3.0
"""One standard deviation, or a drift, of 3 in the log is a factor of 20 either way: more is a misplaced number."""

MAX_S = 1e6
"""More than eleven days for one cost is a misplaced number."""

MIN_TOKENS_PER_S, MAX_TOKENS_PER_S = 0.1, 1e9
"""Slower than a token in ten seconds, or faster than any cluster: on such a clock a simulated run makes no way."""

MAX_SLOTS = 10**6
"""Sequences at once that no replica reaches."""

MAX_TOKENS = 10**8
"""Ten times the longest context that there is."""

Seconds = Annotated[float, Field(ge=0, le=MAX_S)]
Speed = Annotated[float, Field(ge=MIN_TOKENS_PER_S, le=MAX_TOKENS_PER_S)]


class RolloutProfile(Strict):
    """One rollout replica: R / (b + h) tokens per second for each of b active sequences."""

    slots: int = Field(ge=1, le=MAX_SLOTS)
    """Sequences that are generated at once."""
    tokens_per_s: Speed
    """R: tokens per second of the replica, in the limit of a large batch."""
    half_batch: float = Field(ge=0, le=MAX_SLOTS)
    """h: sequences at which the replica reaches half of R."""
    resume_tokens: float = Field(ge=0, le=MAX_TOKENS)
    """Tokens' worth of work that continuing an unfinished sequence on another replica costs."""
    start_tokens: float = Field(0.0, ge=0, le=MAX_TOKENS)
    """Tokens' worth of work that starting a sequence costs: its prompt is computed."""


class TrainProfile(Strict):
    """One trainer replica: seconds of a chunk = chunk_s + tokens / tokens_per_s."""

    tokens_per_s: Speed
    """Prompt plus response tokens per second of the replica."""
    chunk_s: Seconds
    """Seconds of a chunk, whatever its size."""
    max_chunk_groups: int = Field(ge=1)
    """Groups of the largest chunk."""


class RolloutLeaseProfile(Strict):
    """What lending a trainer's devices to rollout costs, in seconds."""

    in_s: Seconds
    """C_in: from the decision to the first useful token."""
    out_s: Seconds
    """C_out: until the trainer works again."""


class TrainLeaseProfile(Strict):
    """What lending a rollouter's devices to training costs, in seconds."""

    in_s: Seconds
    """C_in: from the decision to the first useful gradient."""
    out_s: Seconds
    """C_out: until the rollouter works again."""
    grad_s: Seconds
    """C_grad: merging the gradients that auxiliaries ship."""


class SwitchProfile(Strict):
    rollout_on_train: RolloutLeaseProfile
    train_on_rollout: TrainLeaseProfile


class ResponseTokensProfile(Strict):
    """Response lengths: lognormal per group and per response, drifting over the run, cut at `max`."""

    median: float = Field(gt=0, le=MAX_TOKENS)
    """Tokens."""
    max: int = Field(ge=1, le=MAX_TOKENS)
    """Tokens."""
    sigma_group: float = Field(0.45, ge=0, le=MAX_LOG_SPREAD)
    """Standard deviation of the log over groups."""
    sigma_response: float = Field(0.45, ge=0, le=MAX_LOG_SPREAD)
    """Standard deviation of the log over the responses of a group."""
    drift: float = Field(0.1, ge=0, le=MAX_LOG_SPREAD)
    """Standard deviation of the log over steps: it wanders, as an AR(1) process."""
    linear_drift: float = Field(0.0, ge=-MAX_LOG_SPREAD, le=MAX_LOG_SPREAD)
    """Growth of the log from the first step to the last."""

    @model_validator(mode="after")
    def _median_below_the_cut(self) -> ResponseTokensProfile:
        if self.median > self.max:
            raise ValueError(f"median {self.median:g} is more than max {self.max}, where lengths are cut")
        return self


class StageModelProfile(Strict):
    """Given stage-time model: seconds = a + b * groups / replicas."""

    a: Seconds
    """Seconds, whatever the workload."""
    b: Seconds
    """Seconds per group and replica."""

    @model_validator(mode="after")
    def _takes_time(self) -> StageModelProfile:
        if self.a == self.b == 0:
            raise ValueError("a and b are both 0, so a step would take no time; allowed: one of them above 0")
        return self


class StageModelsProfile(Strict):
    rollout: StageModelProfile
    train: StageModelProfile


class ProfileConfig(Strict):
    """Stage times and switch costs of a job, in seconds and tokens."""

    rollout: RolloutProfile
    train: TrainProfile
    optimizer_s: Seconds
    """Seconds of an optimizer step."""
    weight_sync_s: Seconds
    """Seconds from the optimizer's end until rollouters hold the new version."""
    switch: SwitchProfile
    response_tokens: ResponseTokensProfile
    prompt_tokens: float = Field(ge=0, le=MAX_TOKENS)
    """Tokens of a prompt, counted once per response."""
    noise: float = Field(0.03, ge=0, le=1)
    """Standard deviation of the log of a chunk's and of a replica's seconds."""
    models: StageModelsProfile | None = None
    """Where the planner shall use given stage models; null: they are fitted to the physics above."""


def to_profile(config: ProfileConfig) -> Profile:
    """The same numbers as the planner and the simulator take them."""
    to_rollout, to_train, models = config.switch.rollout_on_train, config.switch.train_on_rollout, config.models
    return Profile(
        rollout=RolloutSpeed(**config.rollout.model_dump()),
        train=TrainSpeed(**config.train.model_dump()),
        optimizer_s=config.optimizer_s,
        weight_sync_s=config.weight_sync_s,
        rollout_on_train=SwitchCosts(**to_rollout.model_dump()),
        train_on_rollout=SwitchCosts(**to_train.model_dump()),
        response_tokens=Lengths(**config.response_tokens.model_dump()),
        prompt_tokens=config.prompt_tokens,
        noise=config.noise,
        models=Models(rollout=_model(models.rollout), train=_model(models.train)) if models else None,
    )


def from_profile(profile: Profile) -> ProfileConfig:
    """The planner's numbers as a job file has them. Raises pydantic's ValidationError for what no job file may say."""
    to_rollout = profile.rollout_on_train
    return ProfileConfig.model_validate(
        {
            "rollout": asdict(profile.rollout),
            "train": asdict(profile.train),
            "optimizer_s": profile.optimizer_s,
            "weight_sync_s": profile.weight_sync_s,
            "switch": {
                "rollout_on_train": {"in_s": to_rollout.in_s, "out_s": to_rollout.out_s},
                "train_on_rollout": asdict(profile.train_on_rollout),
            },
            "response_tokens": asdict(profile.response_tokens),
            "prompt_tokens": profile.prompt_tokens,
            "noise": profile.noise,
            "models": asdict(profile.models) if profile.models else None,
        }
    )


def _model(config: StageModelProfile) -> StageModel:
    return StageModel(a=config.a, b=config.b)
