"""Rollouters on the TrainPool, as `bidirectional` decides: which idle training blocks leave, and when they come home.

At s >= 1 the question is how much of its time the block would be used at home: while the rollouters are the slower
role it is not needed, and a lease goes on over many steps. Below s = 1 the question is when this step ends (`returns`).
"""

from __future__ import annotations

from planner.policy.actions import Action, EndLease, Lend, Refuse
from planner.policy.gates import split_groups
from planner.policy.leases import Direction
from planner.policy.outlook import Outlook
from planner.policy.returns import best, counts_to_try, end_lending, end_returning, plan_of, work_of
from planner.policy.state import Block, State
from planner.policy.wording import told

SHORTEST_SHARE = 0.25
"""Share of a group's latency below which a lease is not called home: the next group to finish would lend it again."""

MOST_USED = 0.9
"""Share of the time in use at home from which on a block is not lent; it is called back at all of it. What the last
tenth could gain is less than what a pool loses that works in bursts."""

DIRECTION: Direction = "rollout_on_train"


def lends(state: State, view: Outlook) -> list[Action]:
    """New leases."""
    if DIRECTION not in state.directions or view.trainable > 0 or view.lent_rollout or not view.rollouters:
        return []
    work = view.startable + view.returned - view.room
    if work <= 0 or not view.home_train:
        return []
    idle = _idle(state, view)
    if not idle:
        return []
    found = _lends_steady(state, view, idle, work) if state.bound.k >= 1 else _lends_step(state, view, idle)
    if not state.improvements.fill_auxiliary:
        # an auxiliary that no group is kept for would have nothing to do: the published Q_a = 0
        found = [action for action in found if isinstance(action, Refuse) or action.reserved_groups > 0]
    return [*found]


def _idle(state: State, view: Outlook) -> list[Block]:
    early = state.improvements.prepare_early
    busy = {r.block for r in state.train if not (r.busy is None or (early and r.busy == "optimizer"))}
    idle = [block for block in view.home_train if block.block not in busy and not block.awaited]
    whole = state.improvements.block_leases or (len(idle) == len(view.home_train) and not view.lent_train)
    return idle if whole else []


def _lends_steady(state: State, view: Outlook, idle: list[Block], work: int) -> list[Lend | Refuse]:
    costs = view.estimates.rollout_on_train
    found: list[Lend | Refuse] = []
    refusal: list[Lend | Refuse] = []
    trainers, lent = view.trainers, 0
    for block in idle:
        length_s = view.lease_length(work, block, trainers, lent)
        if length_s <= 0:
            break
        used = view.use_at_home(block, trainers, length_s, view.supply_over(length_s, lent))
        net_s = length_s - costs.out_s - used * (length_s + costs.in_s)
        horizon_s = view.round_trip_s
        reason = (
            f"{work} groups last its rollouters {told(length_s)}; its trainers would be busy for {used:.0%} of that at "
            f"home, and it is away for {told(costs.in_s + costs.out_s)} more"
        )
        needed = view.use_at_home(block, trainers, horizon_s, view.supply_over(horizon_s, lent)) >= MOST_USED
        if net_s <= 0 or needed:
            why = f"its trainers would be busy for all of the next {told(horizon_s)}" if needed else reason
            refusal = _refuse(state, length_s, length_s - net_s, why)
            break
        found.append(_lend(state, view, block, length_s, length_s - net_s, reason))
        trainers -= block.primaries
        lent += block.auxiliaries
        work -= block.auxiliaries * view.estimates.slot_groups
        if work <= 0:
            break
    if not state.improvements.block_leases and len(found) < len(idle):
        found = []
    return found or refusal


def _lends_step(state: State, view: Outlook, idle: list[Block]) -> list[Lend | Refuse]:
    work, plan = work_of(view, helpers="train_on_rollout" in state.directions), plan_of(view)
    counts = counts_to_try(len(idle)) if state.improvements.block_leases else [0, len(idle)]
    ends = {count: end_lending(work, plan, count) for count in counts}
    end_s, count = best((end, count) for count, end in ends.items())
    cost_s = plan.in_s + plan.out_s
    reason = f"the step ends in {told(end_s)} with {count} blocks lent, in {told(ends[0])} with none"
    gain_s = ends[0] - end_s + cost_s
    if count == 0:
        why = f"no number of lent blocks ends the step before {told(ends[0])}"
        return _refuse(state, 0.0, cost_s, why, alone_s=ends[0])
    return [_lend(state, view, block, gain_s, cost_s, reason, alone_s=ends[0]) for block in idle[:count]]


def _refuse(
    state: State, gain_s: float, cost_s: float, reason: str, *, alone_s: float | None = None
) -> list[Lend | Refuse]:
    """A refusal, once per idle window."""
    if DIRECTION in state.refused:
        return []
    return [Refuse(direction=DIRECTION, gain_s=gain_s, cost_s=cost_s, reason=reason, alone_s=alone_s)]


def _lend(
    state: State,
    view: Outlook,
    block: Block,
    gain_s: float,
    cost_s: float,
    reason: str,
    *,
    alone_s: float | None = None,
) -> Lend:
    """A lease; with a reservation where auxiliaries own one."""
    reserved = 0
    if not (state.improvements.lazy_rollout_pull and state.improvements.fill_auxiliary):
        others = view.rollouters
        _, reserved = split_groups(
            groups=min(view.startable, max(view.needed, 1)), primaries=others, auxiliaries=block.auxiliaries
        )
    return Lend(
        block=block.block,
        direction=DIRECTION,
        gain_s=gain_s,
        cost_s=cost_s,
        reason=reason,
        reserved_groups=reserved,
        alone_s=alone_s,
    )


# -- ends -------------------------------------------------------------------------------------------------------------


def ends(state: State, view: Outlook) -> list[Action]:
    """Leases that end now."""
    working = [block for block in view.lent_train if block.lease_state == "working"]
    if not working:
        return []
    over = [(block, reason) for block in working if (reason := _nothing_to_do(state, view, block))]
    if not over and state.closing_since is not None and not state.improvements.keep_lease:
        over = [(block, "the step is complete") for block in working if block.since < state.closing_since]
    if not over and state.improvements.just_in_time_end:
        over = _needed_steady(view, working) if state.bound.k >= 1 else _needed_step(state, view, working)
    if not state.improvements.block_leases and len(over) < len(working):
        return []
    return [
        EndLease(block=block.block, lease=block.lease, revoke=False, reason=reason)
        for block, reason in over
        if block.lease is not None
    ]


def _nothing_to_do(state: State, view: Outlook, block: Block) -> str:
    """Nothing may be started, and the block's rollouters hold nothing, or at s >= 1 so little that the others, with as
    much room, take it over; or the home role is awaited."""
    if block.awaited:
        return "an evaluation or a checkpoint waits for its trainers"
    held = view.held.get(block.block, 0)
    quota_over = not state.improvements.fill_auxiliary and block.reserved == 0
    if view.startable + view.returned > 0 and not quota_over:
        return ""
    if held == 0 or (state.bound.k >= 1 and held <= view.free.get(block.block, 0)):
        return f"none may be started and its rollouters hold {held} groups"
    return ""


def _needed_steady(view: Outlook, working: list[Block]) -> list[tuple[Block, str]]:
    """Blocks whose trainers would be busy all the time at home."""
    costs = view.estimates.rollout_on_train
    shortest_s = costs.in_s + max(costs.in_s + costs.out_s, SHORTEST_SHARE * view.estimates.group_latency_s)
    found: list[tuple[Block, str]] = []
    trainers, gone = view.trainers, frozenset[int]()
    horizon_s = view.round_trip_s
    for block in working:
        if view.now - block.since < shortest_s:
            continue
        supply = view.supply_over(horizon_s, 0, gone | {block.block})
        if view.use_at_home(block, trainers + block.primaries, horizon_s, supply) < 1.0:
            break
        found.append((block, f"its trainers would be busy for all of the next {told(horizon_s)} at home"))
        trainers, gone = trainers + block.primaries, gone | {block.block}
    return found


def _needed_step(state: State, view: Outlook, working: list[Block]) -> list[tuple[Block, str]]:
    """Blocks without whose rollouters, and with whose trainers, the step ends no later."""
    if view.trainable == 0:
        return []
    work, plan = work_of(view, helpers="train_on_rollout" in state.directions), plan_of(view)
    stay_s = end_returning(work, plan, 0)
    counts = [count for count in counts_to_try(len(working)) if count > 0]
    if not state.improvements.block_leases:
        counts = [len(working)]
    end_s, count = best((end_returning(work, plan, count), count) for count in counts)
    if end_s > stay_s:
        return []
    reason = f"the step ends in {told(end_s)} with its trainers at home, in {told(stay_s)} if they stay away"
    return [(block, reason) for block in working[:count]]
