"""The losses a job may ask for, one short file each, and what all of them have in common.

A loss says what an answer's advantage is and what a step's summed gradient is divided by. Gradients of chunks and
replicas are sums and are divided once, when the step ends, so a loss may not depend on who trained what (design.md
section 5): its divisor is made of the step's token count and of what the job fixes.
"""

from __future__ import annotations

from engine.config import AlgorithmConfig
from engine.learning.losses.dapo import Dapo
from engine.learning.losses.dr_grpo import DrGrpo
from engine.learning.losses.grpo import Grpo
from engine.learning.losses.loss import Loss

__all__ = ["Loss", "loss_of"]


def loss_of(algorithm: AlgorithmConfig, *, max_response_tokens: int) -> Loss:
    """The loss that the algorithm names, for responses of at most so many tokens."""
    match algorithm.loss:
        case "grpo":
            return Grpo(scale_rewards=algorithm.scale_rewards_resolved)
        case "dapo":
            return Dapo(
                scale_rewards=algorithm.scale_rewards_resolved,
                overlong_tokens=algorithm.overlong_tokens,
                max_response_tokens=max_response_tokens,
            )
        case "dr_grpo":
            responses = algorithm.prompts_per_step * algorithm.group_size
            return DrGrpo(responses=responses, max_response_tokens=max_response_tokens)
        case other:
            raise AssertionError(other)
