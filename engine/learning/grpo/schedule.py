"""The learning rate of each update."""

from __future__ import annotations

from engine.config import AlgorithmConfig


def learning_rate(algorithm: AlgorithmConfig, version: int) -> float:
    """Rate of the update that starts at `version` (0 for the first).

    Warm-up is linear over `lr_warmup_steps` updates; `linear` falls from 1 to `lr_final_fraction` over `steps`
    updates and stays there.
    """
    rate = algorithm.learning_rate
    if algorithm.lr_warmup_steps:
        rate *= min(1.0, (version + 1) / algorithm.lr_warmup_steps)
    if algorithm.lr_schedule == "linear":
        final = algorithm.lr_final_fraction
        rate *= max(final, 1.0 - (1.0 - final) * version / algorithm.steps)
    return rate
