"""Dr. GRPO: Liu et al. 2025, arXiv 2503.20783. GRPO without its two biases: no std, and no length of a response.

    L = 1 / (P * G * L_max) * sum over all tokens of the token loss,    A_i = r_i - mean(r)

P prompts a step, G responses each, L_max the longest allowed response (their code divides by such a constant): all of
them fixed by the job, groups without signal included, so nothing of a response's own length is left in its weight.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from engine.learning.grpo.advantages import advantages


@dataclass(frozen=True, slots=True, kw_only=True)
class DrGrpo:
    """See `engine.learning.losses.loss.Loss`."""

    responses: int
    """Of a step: P * G."""
    max_response_tokens: int
    """L_max."""

    def shaped(self, rewards_G: npt.NDArray[np.float64], lengths_G: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
        return rewards_G

    def advantages(self, rewards_G: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        return advantages(rewards_G, scale_rewards="none")

    def divisor(self, tokens: int) -> float:
        return self.responses * self.max_response_tokens
