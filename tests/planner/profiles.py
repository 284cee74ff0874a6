"""The base profile of the regimes study, with whatever a test changes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from planner.profile import Lengths, Profile, RolloutSpeed, SwitchCosts, TrainSpeed

BASE = Profile(
    rollout=RolloutSpeed(slots=64, tokens_per_s=1250, half_batch=24, resume_tokens=25),
    train=TrainSpeed(tokens_per_s=2800, chunk_s=0.6, max_chunk_groups=8),
    optimizer_s=2.0,
    weight_sync_s=3.0,
    rollout_on_train=SwitchCosts(in_s=7.7, out_s=5.59),
    train_on_rollout=SwitchCosts(in_s=6.16, out_s=5.62, grad_s=1.21),
    response_tokens=Lengths(median=700, max=2048),
    prompt_tokens=400,
)


def make_profile(**overrides: Any) -> Profile:
    return replace(BASE, **overrides)
