"""Arm `no_borrow`: a RollPool and a TrainPool that overlap, each doing its own work only."""

from __future__ import annotations

from planner.policy.actions import Action, TakeGroups
from planner.policy.pulls import group_pulls
from planner.policy.staleness import choose_many
from planner.policy.state import State
from planner.policy.training import shared_chunks, train_actions
from planner.policy.weights import weight_loads


def decide(state: State, now: float) -> list[Action]:
    """Load weights, start groups, take groups, train; see each part for its rule."""
    actions: list[Action] = []
    if not state.stopping:
        loads = weight_loads(state)
        actions += loads
        if not state.paused:
            actions += group_pulls(state, now, {load.device: load.version for load in loads})
    taken = take_groups(state)
    actions += taken
    trainable, complete = batch_with(state, taken)
    return actions + train_actions(state, shared_chunks(state, trainable, now, batch_complete=complete))


def batch_with(state: State, taken: list[TakeGroups]) -> tuple[tuple[int, ...], bool]:
    """Groups that a trainer may take once these are taken too, and whether the step then has all its groups."""
    queue = state.step.queue + tuple(g for take in taken for g in take.group_ids)
    complete = len(state.step.taken) + sum(len(take.group_ids) for take in taken) == state.bound.prompts_per_step
    if not (complete or state.streaming):
        queue = ()
    return queue, complete


def take_groups(state: State) -> list[TakeGroups]:
    """The choosing rule of section 4, as far as it goes now."""
    slots = state.bound.prompts_per_step - len(state.step.taken)
    if state.stopping or state.paused or slots == 0 or state.steps_left == 0:
        return []
    chosen = choose_many(
        version=state.step.version, slots_left=slots, taken=state.step.taken, unconsumed=state.unconsumed
    )
    if not chosen.group_ids:
        return []
    reason = f"the oldest finished groups, {slots} slots of step {state.step.version} were free; now: {chosen.reason}"
    return [TakeGroups(group_ids=chosen.group_ids, reason=reason)]
