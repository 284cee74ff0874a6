"""Leases of `bidirectional`: ends first, then new ones in both directions."""

from __future__ import annotations

from planner.policy import leases_paper, lend_rollout, lend_training
from planner.policy.actions import Action
from planner.policy.outlook import outlook_of
from planner.policy.pulls import startable
from planner.policy.state import State


def lending(state: State, now: float, trainable: int) -> list[Action]:
    """What changes in the leases. `trainable`: groups that a trainer may take now."""
    if state.estimates is None or not state.blocks:
        return []
    if not state.improvements.outlook_gate:
        return leases_paper.lending(state, now, trainable)
    lent = any(block.lease is not None for block in state.blocks)
    may_lend_training = trainable == 0 and any(replica.busy in (None, "optimizer") for replica in state.train)
    may_lend_rollout = trainable > 0 and startable(state, state.published) == 0
    if not (lent or may_lend_training or may_lend_rollout):
        return []
    view = outlook_of(state, now, trainable)
    over = lend_training.ends(state, view) + lend_rollout.ends(state, view)
    return over or lend_training.lends(state, view) + lend_rollout.lends(state, view)
