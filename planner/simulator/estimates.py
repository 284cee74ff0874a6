"""What the policy of a simulated run knows beforehand: stage-time models and lengths that follow from the profile.

A live engine fits the same figures from what it measures. None of this looks at the lengths that a run will draw.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from planner.policy.state import Estimates
from planner.profile import Lengths, Profile
from planner.profile_models import draw_lengths, full_load_group_s, models_of

SAMPLES = 20_000
"""Responses drawn for the figures below: their means are then known to better than 1%."""

GRID = 64
"""Places at which the residual length is tabulated; between two of them it is taken from the one before."""


def estimates_of(profile: Profile, *, prompts_per_step: int, group_size: int) -> Estimates:
    """Everything a policy may know of this profile."""
    models = models_of(profile, prompts_per_step, group_size)
    rollout = profile.rollout
    token_s = (rollout.slots + rollout.half_batch) / rollout.tokens_per_s
    return Estimates(
        rollout=models.rollout,
        train=models.train,
        rollout_on_train=profile.rollout_on_train,
        train_on_rollout=profile.train_on_rollout,
        full_load_group_s=full_load_group_s(profile, group_size),
        group_latency_s=(longest_tokens(profile.response_tokens, group_size) + rollout.start_tokens) * token_s,
        slot_groups=max(1, rollout.slots // group_size),
        half_groups=rollout.half_batch / group_size,
        optimizer_s=profile.optimizer_s,
        sync_s=profile.weight_sync_s,
    )


@lru_cache(maxsize=64)
def longest_tokens(lengths: Lengths, group_size: int) -> float:
    """Mean length of a group's longest response."""
    return float(draw_lengths(lengths, SAMPLES // group_size, group_size, seed=1).max(axis=1).mean())


@lru_cache(maxsize=64)
def residual_tokens(lengths: Lengths) -> tuple[float, ...]:
    """Mean tokens that a response still needs after i * max / GRID tokens, for i from 0 to GRID - 1."""
    rng = np.random.default_rng(2)
    sigma = float(np.hypot(lengths.sigma_group, lengths.sigma_response))
    drawn = np.minimum(lengths.median * np.exp(rng.normal(0.0, sigma, SAMPLES)), lengths.max)
    table = []
    for done in np.arange(GRID) * lengths.max / GRID:
        longer = drawn[drawn > done]
        table.append(float(longer.mean() - done) if len(longer) else 1.0)
    return tuple(table)
