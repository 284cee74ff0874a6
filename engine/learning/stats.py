"""Sums that the trainer reports per chunk; adding them up gives the step's, whatever the chunks and replicas were.

Only sums are stored, so that merging is exact; means are properties that are None when nothing was counted.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields


@dataclass(frozen=True, slots=True, kw_only=True)
class LagStats:
    """Sums over the response tokens of the trained groups of one lag."""

    groups: int = 0
    """Groups of that lag, those without signal included."""
    tokens: int = 0
    """Response tokens that went through the loss."""
    mismatch_kl_sum: float = 0.0
    """Sum over tokens of w - 1 - log w, w = pi_prox / pi_behaviour before capping (the k3 estimate), in nats."""
    clipped: int = 0
    """Tokens whose ratio pi_theta / pi_prox lay outside the clip range."""
    capped: int = 0
    """Tokens whose w lay above the cap."""
    weight_sum: float = 0.0
    """Sum of the capped w."""
    weight_square_sum: float = 0.0
    """Sum of the squared capped w."""

    @property
    def mismatch_kl(self) -> float | None:
        """Mean per token, in nats."""
        return self.mismatch_kl_sum / self.tokens if self.tokens else None

    @property
    def clip_share(self) -> float | None:
        return self.clipped / self.tokens if self.tokens else None

    @property
    def capped_share(self) -> float | None:
        return self.capped / self.tokens if self.tokens else None

    @property
    def effective_sample_share(self) -> float | None:
        """(sum w)^2 / (n * sum w^2): 1 when all weights are equal (Kish's effective sample size over n)."""
        if not self.tokens or self.weight_square_sum == 0:
            return None
        return self.weight_sum**2 / (self.tokens * self.weight_square_sum)

    def __add__(self, other: LagStats) -> LagStats:
        return LagStats(**{f.name: getattr(self, f.name) + getattr(other, f.name) for f in fields(LagStats)})


@dataclass(frozen=True, slots=True, kw_only=True)
class ChunkStats:
    """Sums over the groups of a chunk; `+` merges chunks and replicas."""

    groups: int = 0
    """Groups in the chunk."""
    responses: int = 0
    """Responses in the chunk."""
    no_signal: int = 0
    """Groups whose rewards are all equal: they carry no gradient."""
    prompt_tokens: int = 0
    """Prompt tokens, counted once per response."""
    response_tokens: int = 0
    """Tokens of all responses, those without signal included."""
    tokens: int = 0
    """Response tokens that went through the loss: what the gradient is divided by."""
    loss_sum: float = 0.0
    """Sum of the token losses, the KL term included."""
    entropy_sum: float = 0.0
    """Sum over the same tokens of the policy's entropy at the sampling temperature, in nats."""
    reference_kl_sum: float = 0.0
    """Sum over the same tokens of the k3 estimate of the KL to the reference, in nats; 0 when kl_coef is 0."""
    reward_sum: float = 0.0
    """Sum over responses."""
    reward_square_sum: float = 0.0
    """Sum over responses of the squared reward."""
    by_lag: Mapping[int, LagStats] = field(default_factory=dict)
    """Lag in versions -> sums of the groups of that lag."""

    @property
    def loss(self) -> float | None:
        """Mean per token."""
        return self.loss_sum / self.tokens if self.tokens else None

    @property
    def entropy(self) -> float | None:
        """Mean per token, in nats."""
        return self.entropy_sum / self.tokens if self.tokens else None

    @property
    def reward_mean(self) -> float | None:
        return self.reward_sum / self.responses if self.responses else None

    @property
    def response_len_mean(self) -> float | None:
        """Tokens per response."""
        return self.response_tokens / self.responses if self.responses else None

    @property
    def lag_max(self) -> int | None:
        return max(self.by_lag, default=None)

    @property
    def over_lags(self) -> LagStats:
        """The sums of all lags together."""
        return sum(self.by_lag.values(), LagStats())

    def __add__(self, other: ChunkStats) -> ChunkStats:
        sums = {f.name: getattr(self, f.name) + getattr(other, f.name) for f in fields(self) if f.name != "by_lag"}
        lags = sorted({*self.by_lag, *other.by_lag})
        empty = LagStats()
        return ChunkStats(
            **sums, by_lag={lag: self.by_lag.get(lag, empty) + other.by_lag.get(lag, empty) for lag in lags}
        )


def merge(chunks: Iterable[ChunkStats]) -> ChunkStats:
    """The step's sums from those of its chunks, in any order up to rounding."""
    return sum(chunks, ChunkStats())
