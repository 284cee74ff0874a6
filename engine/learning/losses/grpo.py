"""GRPO, as in Shao et al. 2024 (arXiv 2402.03300), with one mean over all tokens of a step in place of one a response.

    L = 1 / N * sum over tokens of the token loss,    A_i = (r_i - mean(r)) / (std(r) + 1e-4)

N counts the response tokens of the groups that carry a gradient.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from engine.learning.grpo.advantages import advantages


@dataclass(frozen=True, slots=True, kw_only=True)
class Grpo:
    """See `engine.learning.losses.loss.Loss`."""

    scale_rewards: str
    """`group`: divide by the group's standard deviation; `none`: do not."""

    def shaped(self, rewards_G: npt.NDArray[np.float64], lengths_G: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
        return rewards_G

    def advantages(self, rewards_G: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        return advantages(rewards_G, scale_rewards=self.scale_rewards)

    def divisor(self, tokens: int) -> float:
        return tokens
