"""Who generates what: returned prefixes and new groups, for primaries and auxiliaries."""

from __future__ import annotations

from heapq import heapify, heappop, heapreplace

from planner.policy.actions import Action, StartGroups
from planner.policy.prefixes import resumes
from planner.policy.staleness import may_start
from planner.policy.state import State
from planner.policy.weights import must_drain

OURS = ("bidirectional", "rollout_on_train", "train_on_rollout")
"""Arms with our rules; the last two lend in one direction only."""


def startable(state: State, version: int | None) -> int:
    """Groups that a replica with this version may still start."""
    if version is None:
        return 0
    return max(0, min(state.bound.start_cap(version) - (state.started - state.excluded), state.prompts_left))


def reserved_groups(state: State, now: float) -> int:
    """Groups kept for rollouters that prepare; a reservation expires after twice C_in."""
    if state.estimates is None or (state.arm in OURS and state.improvements.lazy_rollout_pull):
        return 0
    life = 2 * state.estimates.rollout_on_train.in_s
    return sum(
        block.reserved
        for block in state.blocks
        if block.lease is not None and block.pool == "train" and now - block.since <= life
    )


def group_pulls(state: State, now: float, loading: dict[int, int]) -> list[Action]:
    """Returned groups first, then new ones while the starting rule allows, on the replica with the most room first.

    `loading`: device -> version of the weights that it is handed now; it takes them before the first token of what
    follows, so it counts at that version. With reservations, primaries leave the reserved groups alone unless they have
    run dry, and an auxiliary takes no more than its share of them.
    """
    if not state.returned and startable(state, state.published) == 0:
        return []
    free: dict[int, int] = {}
    version: dict[int, int] = {}
    dry: set[int] = set()
    auxiliary: dict[int, int] = {}
    for replica in state.rollout:
        held = loading.get(replica.device, replica.version)
        if held is None or replica.free_groups <= 0:
            continue
        if replica.device not in loading and must_drain(replica, state.published):
            continue
        free[replica.device], version[replica.device] = replica.free_groups, held
        if replica.in_flight == 0:
            dry.add(replica.device)
        if replica.lease is not None:
            auxiliary[replica.device] = replica.block
    if not free:
        return []
    actions: list[Action] = [*resumes(state, free, version)]
    newest = max(version.values())
    if startable(state, newest) == 0:
        return actions
    quota = _quotas(state)
    kept = reserved_groups(state, now)
    counts = dict.fromkeys(free, 0)
    started, left = state.started, state.prompts_left
    roomy = [(-room, device) for device, room in free.items() if room > 0]
    heapify(roomy)
    while left > 0 and roomy:
        room, device = roomy[0]
        block = auxiliary.get(device)
        allowed = may_start(
            loaded_version=version[device],
            started=started + (kept if block is None and device not in dry else 0),
            excluded=state.excluded,
            bound=state.bound,
        )
        if not allowed or (block is not None and quota.get(block, 1) <= 0):
            heappop(roomy)
            continue
        if block in quota:
            quota[block] -= 1
            kept = max(0, kept - 1)
        counts[device] += 1
        dry.discard(device)
        started, left = started + 1, left - 1
        if room == -1:
            heappop(roomy)
        else:
            heapreplace(roomy, (room + 1, device))
    picks = _longest_first(state, counts)
    return actions + [
        StartGroups(
            device=device,
            count=count,
            reason=f"room for {free[device]} groups; {started - state.excluded} started of at most "
            f"{state.bound.start_cap(version[device])} at version {version[device]}",
            picks=picks.get(device, ()),
        )
        for device, count in counts.items()
        if count
    ]


def _longest_first(state: State, counts: dict[int, int]) -> dict[int, tuple[int, ...]]:
    """Which of the next groups each replica starts: those expected to be longest first, one for each replica in turn.

    A group that starts late and is long holds up its step; the short ones fill in behind.
    """
    if not (state.upcoming and state.arm in OURS and state.improvements.longest_first):
        return {}
    known, total = len(state.upcoming), sum(counts.values())
    order = sorted(range(known), key=lambda place: (-state.upcoming[place], place)) + list(range(known, total))
    order = order[:total]
    picks: dict[int, list[int]] = {device: [] for device, count in counts.items() if count}
    while order:
        for device, picked in picks.items():
            if len(picked) < counts[device] and order:
                picked.append(order.pop(0))
    return {device: tuple(picked) for device, picked in picks.items()}


def _quotas(state: State) -> dict[int, int]:
    """Groups that the auxiliaries of a block may still start, where they own a reservation."""
    if state.arm in OURS and state.improvements.fill_auxiliary:
        return {}
    if state.arm == "opportunistic":
        return {}
    return {block.block: block.reserved for block in state.blocks if block.lease is not None and block.pool == "train"}
