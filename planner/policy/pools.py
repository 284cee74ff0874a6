"""Arm `no_borrow`: a RollPool and a TrainPool that overlap, each doing its own work only."""

from __future__ import annotations

from heapq import heapify, heappop, heapreplace

from planner.policy.actions import Action, LoadWeights, StartGroups, TakeGroups
from planner.policy.prefixes import resumes
from planner.policy.staleness import choose_many, may_start
from planner.policy.state import RolloutReplica, State
from planner.policy.training import shared_chunks, train_actions


def decide(state: State, now: float) -> list[Action]:
    """Load weights, start groups, take groups, train; see each part for its rule."""
    actions: list[Action] = []
    if not state.stopping:
        loads = weight_loads(state)
        actions += loads
        if not state.paused:
            actions += group_starts(state, {load.device: load.version for load in loads})
    taken = take_groups(state)
    actions += taken
    queue = state.step.queue + tuple(g for take in taken for g in take.group_ids)
    complete = len(state.step.taken) + sum(len(take.group_ids) for take in taken) == state.bound.prompts_per_step
    if not (complete or state.streaming):
        queue = ()
    return actions + train_actions(state, shared_chunks(state, queue, now, batch_complete=complete))


def must_drain(replica: RolloutReplica, published: int | None) -> bool:
    """Newer weights exist, and its groups may not continue under them: it finishes them and starts nothing."""
    behind = published is not None and replica.version is not None and replica.version < published
    return behind and replica.in_flight > 0 and not replica.may_update_in_flight


def weight_loads(state: State) -> list[LoadWeights]:
    """Every replica that is behind takes the newest version, between two tokens when its groups allow it."""
    loads: list[LoadWeights] = []
    for replica in state.rollout:
        if state.published is None or replica.version == state.published or must_drain(replica, state.published):
            continue
        how = f"its {replica.in_flight} groups go on under it" if replica.in_flight else "it holds no group"
        loads.append(
            LoadWeights(
                device=replica.device,
                version=state.published,
                reason=f"version {state.published} is published, the replica has {replica.version}: {how}",
            )
        )
    return loads


def group_starts(state: State, loading: dict[int, int]) -> list[Action]:
    """Returned groups first, then new ones while the starting rule of section 4 allows, on the replica with the most
    room first.

    A replica that was handed weights counts at their version: it takes them before the first token of what follows.
    """
    free: dict[int, int] = {}
    version: dict[int, int] = {}
    for replica in state.rollout:
        held = loading.get(replica.device, replica.version)
        if held is None or (replica.device not in loading and must_drain(replica, state.published)):
            continue
        free[replica.device], version[replica.device] = replica.free_groups, held
    actions: list[Action] = [*resumes(state, free, version)] if state.returned else []
    counts = dict.fromkeys(free, 0)
    started, left = state.started, state.prompts_left
    roomy = [(-room, device) for device, room in free.items() if room > 0]
    heapify(roomy)
    while left > 0 and roomy:
        room, device = roomy[0]
        if not may_start(loaded_version=version[device], started=started, excluded=state.excluded, bound=state.bound):
            heappop(roomy)  # and it stays so: what is started only grows
            continue
        free[device] -= 1
        counts[device] += 1
        started, left = started + 1, left - 1
        if room == -1:
            heappop(roomy)
        else:
            heapreplace(roomy, (room + 1, device))
    cap = state.bound.prompts_per_step + state.bound.start_allowance
    return actions + [
        StartGroups(
            device=device,
            count=count,
            reason=f"room for {count + free[device]} groups; {started - state.excluded} started of at most "
            f"{version[device] * state.bound.prompts_per_step + cap} at version {version[device]}",
        )
        for device, count in counts.items()
        if count
    ]


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
