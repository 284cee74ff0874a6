"""Leases of `bidirectional`: ends first, then new ones in both directions."""

from __future__ import annotations

from planner.policy import leases_paper, lend_rollout, lend_training
from planner.policy.actions import Action
from planner.policy.outlook import outlook_of
from planner.policy.pulls import startable
from planner.policy.state import State
from planner.policy.training import about_to_rest


def lending(state: State, now: float, trainable: int) -> list[Action]:
    """What changes in the leases. `trainable`: groups that a trainer may take now."""
    if state.estimates is None or not state.blocks:
        return []
    if not state.improvements.outlook_gate:
        return leases_paper.lending(state, now, trainable)
    if not _matters(state, now, trainable):
        return []
    view = outlook_of(state, now, trainable)
    over = lend_training.ends(state, view) + lend_rollout.ends(state, view)
    return over or lend_training.lends(state, view) + lend_rollout.lends(state, view)


def _matters(state: State, now: float, trainable: int) -> bool:
    """Something in the leases may change; most decisions are not about them, and the outlook is what costs time."""
    lent = {block.pool for block in state.blocks if block.lease is not None}
    if "train" in lent:
        return True
    nothing_to_start = startable(state, state.published) == 0
    if trainable > 0 and nothing_to_start:
        return True  # rollout blocks may leave
    if trainable == 0 and any(replica.busy in (None, "optimizer") for replica in state.train):
        return True  # training blocks may leave
    if "rollout" not in lent:
        return False
    idle = any(replica.lease is not None and about_to_rest(state, replica, now) for replica in state.train)
    return state.closing_since is not None or (idle and not nothing_to_start)
