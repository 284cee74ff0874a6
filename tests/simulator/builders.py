"""Small fast simulated runs with everything filled in: 12 devices as 8 + 4, a step of 8 groups of 4 responses, 5 steps.

A step's rollout and its training take about the same time, some tens of seconds; a switch takes about a tenth of that.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from planner.profile import Lengths, Profile, RolloutSpeed, SwitchCosts, TrainSpeed
from planner.simulator.setup import Setup
from planner.simulator.simulator import Simulator
from planner.simulator.trace import Trace

OURS = ("bidirectional", "rollout_on_train", "train_on_rollout")
"""Arms that stream unless told otherwise."""

ARMS = ("no_borrow", "opportunistic", "bidirectional_paper", *OURS)
"""Every arm that the simulator runs."""

STALENESSES = (0, 0.25, 0.5, 1, 1.5, 2, 4)
"""Whole values and fractions."""


def make_profile(**overrides: Any) -> Profile:
    fields: dict[str, Any] = {
        "rollout": RolloutSpeed(slots=8, tokens_per_s=200.0, half_batch=6.0, resume_tokens=20.0),
        "train": TrainSpeed(tokens_per_s=700.0, chunk_s=0.5, max_chunk_groups=2),
        "optimizer_s": 1.0,
        "weight_sync_s": 1.0,
        "rollout_on_train": SwitchCosts(in_s=1.5, out_s=1.0),
        "train_on_rollout": SwitchCosts(in_s=1.0, out_s=1.0, grad_s=0.2),
        "response_tokens": Lengths(median=200.0, max=1000, sigma_group=0.5, sigma_response=0.5),
        "prompt_tokens": 30.0,
        "noise": 0.03,
    }
    return Profile(**(fields | overrides))


def make_setup(profile: Profile | None = None, **overrides: Any) -> Setup:
    fields: dict[str, Any] = {
        "profile": profile or make_profile(),
        "arm": "bidirectional",
        "staleness": 1,
        "rollout_devices": 8,
        "train_devices": 4,
        "train_replica_size": 2,
        "prompts_per_step": 8,
        "group_size": 4,
        "steps": 5,
    }
    given = fields | overrides
    given.setdefault("streaming", given["arm"] in OURS)
    return Setup(**given)


def with_costs(setup: Setup, seconds: float) -> Setup:
    """The same run where each part of a switch takes so long."""
    costs = SwitchCosts(in_s=seconds, out_s=seconds, grad_s=seconds)
    return replace(setup, profile=replace(setup.profile, rollout_on_train=costs, train_on_rollout=costs))


def play(setup: Setup) -> Trace:
    """The run with everything that was decided."""
    return Simulator(setup, keep_actions=True).run()
