"""Arms that lend idle devices to the other pool: `opportunistic`, `bidirectional_paper`, `bidirectional`, and the last
one in a single direction: `rollout_on_train`, `train_on_rollout`.

    ends of leases -> gates -> weights, groups -> chunks, the step
    (where gates do not come before pulls, they come when nothing else is left to do)

Which leases open and end is decided in `leases_paper.py` and `leases_ours.py`; who gets groups is in `pulls.py`.
"""

from __future__ import annotations

from planner.policy import leases_ours, leases_paper
from planner.policy.actions import Action, EndLease, Lend, Refuse
from planner.policy.arms import gates_first
from planner.policy.pools import batch_with, take_groups
from planner.policy.pulls import OURS, group_pulls
from planner.policy.state import State
from planner.policy.steered import AT_WORK, within
from planner.policy.training import shared_chunks, train_actions
from planner.policy.weights import weight_loads


def decide(state: State, now: float) -> list[Action]:
    """Everything that may be done now; what a lease changes is seen at the next round."""
    if state.stopping or state.paused:
        return _at_rest(state)
    lending = leases_ours.lending if state.arm in OURS else leases_paper.lending
    early = gates_first(state.arm, state.improvements)
    actions: list[Action] = []
    taken = take_groups(state)
    trainable, complete = batch_with(state, taken)
    if early:
        moves = within(state, now, lending(state, now, len(trainable)))
        if any(isinstance(move, Lend | EndLease) for move in moves):
            return moves
        actions += moves
    loads = weight_loads(state)
    pulls = group_pulls(state, now, {load.device: load.version for load in loads})
    actions += [*loads, *pulls, *taken]
    chunks = shared_chunks(state, trainable, now, batch_complete=complete)
    actions += train_actions(state, chunks)
    if not early and all(isinstance(action, Refuse) for action in actions):
        actions += within(state, now, lending(state, now, len(trainable)))
    return actions


def _at_rest(state: State) -> list[Action]:
    """A run that pauses or stops takes its leases back."""
    actions: list[Action] = [
        EndLease(block=block.block, lease=block.lease, revoke=True, reason="the run is pausing or stopping")
        for block in state.blocks
        if block.lease is not None and block.lease_state in AT_WORK
    ]
    if not state.stopping:
        actions += weight_loads(state)
    return actions + train_actions(state, [])
