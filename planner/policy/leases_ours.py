"""Leases of `bidirectional`: ends first, then new ones in both directions."""

from __future__ import annotations

from planner.policy import leases_paper, lend_rollout, lend_training
from planner.policy.actions import Action
from planner.policy.outlook import outlook_of
from planner.policy.state import State


def lending(state: State, now: float, trainable: int) -> list[Action]:
    """What changes in the leases. `trainable`: groups that a trainer may take now."""
    if state.estimates is None or not state.blocks:
        return []
    if not state.improvements.outlook_gate:
        return leases_paper.lending(state, now, trainable)
    view = outlook_of(state, now, trainable)
    over = lend_training.ends(state, view) + lend_rollout.ends(state, view)
    return over or lend_training.lends(state, view) + lend_rollout.lends(state, view)
