"""DAPO: Yu et al. 2025, arXiv 2503.14476. Token-level mean, clip-higher, no KL term, and overlong shaping.

    L = 1 / (sum_i |o_i|) * sum_i sum_t of the token loss, clipped to [1 - clip_low, 1 + clip_high]    (their eq. 8)
    A_i = (r_i - mean(r)) / std(r)    (their eq. 9)

Overlong shaping adds to the reward of a response of |o| tokens, with L the longest allowed and C the last tokens before
it (their eq. 13): 0 up to L - C, then ((L - C) - |o|) / C, which is -1 at L. Their dynamic sampling is not of the loss
(`algorithm.dynamic_sampling`): it goes by rewards before shaping, as theirs goes by whether an answer is right.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from engine.learning.grpo.advantages import advantages


@dataclass(frozen=True, slots=True, kw_only=True)
class Dapo:
    """See `engine.learning.losses.loss.Loss`."""

    scale_rewards: str
    """`group`: divide by the group's standard deviation; `none`: do not."""
    overlong_tokens: int
    """C; 0 turns overlong shaping off."""
    max_response_tokens: int
    """L."""

    def shaped(self, rewards_G: npt.NDArray[np.float64], lengths_G: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
        if not self.overlong_tokens:
            return rewards_G
        over_G = lengths_G - (self.max_response_tokens - self.overlong_tokens)
        return rewards_G - np.clip(over_G / self.overlong_tokens, 0.0, 1.0)

    def advantages(self, rewards_G: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        return advantages(rewards_G, scale_rewards=self.scale_rewards)

    def divisor(self, tokens: int) -> float:
        return tokens
