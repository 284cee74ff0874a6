"""Leases of `bidirectional`: block by block, by what they do to the end of the step or to the steady rates."""

from __future__ import annotations

import math
from dataclasses import dataclass

from planner.policy.actions import Action, EndLease, Lend
from planner.policy.gates import gate_rollout_on_train, gate_train_on_rollout
from planner.policy.outlook import Outlook, outlook_of, slope
from planner.policy.pulls import startable
from planner.stage_model import StageModel
from planner.policy.state import Block, Estimates, State


SHORTEST_SHARE = 0.25
"""Share of a group's latency below which a lease is not called home: the next group to finish would lend it again."""


def lending(state: State, now: float, trainable: int) -> list[Action]:
    """Ends of leases, then new ones. `trainable`: groups that a trainer may take now."""
    if state.estimates is None or not state.blocks:
        return []
    view = outlook_of(state, now, trainable)
    ends = [end for block in state.blocks if (end := _end(state, view, block)) is not None]
    if ends:
        return ends
    return _lend_training(state, view) + _lend_rollout(state, view)


# -- rollouters on the TrainPool --------------------------------------------------------------------------------------


def _lend_training(state: State, view: Outlook) -> list[Action]:
    if not state.rollout_on_train or view.trainable > 0 or view.lent_rollout:
        return []
    idle = [block for block in view.home_train if _trainers_idle(state, view, block)]
    work = view.startable + view.returned - view.primary_room
    if not idle or work <= 0:
        return []
    costs = view.estimates.rollout_on_train
    cost_s = costs.in_s + costs.out_s
    if state.bound.k >= 1:
        lends: list[Action] = []
        trainers, lent = view.trainers, 0
        for block in idle:
            length_s = work * view.estimates.full_load_group_s / block.auxiliaries
            used = view.utilisation(trainers, block.primaries, view.supply_over(length_s, lent) + view.finished / length_s)
            net_s = length_s - costs.out_s - used * (length_s + costs.in_s)
            if net_s <= 0 or view.home_use(block, trainers, lent) >= 1.0:
                break
            reason = f"{work} groups last {length_s:.0f} s, its trainers would be busy for {used:.0%} of it"
            lends.append(_lend(block, "rollout_on_train", length_s, length_s - net_s, reason))
            trainers -= block.primaries
            lent += block.auxiliaries
            work -= block.auxiliaries * view.estimates.slot_groups
            if work <= 0:
                break
        return lends
    ends = [view.end_lending(count) for count in range(len(idle) + 1)]
    best = min(range(len(ends)), key=lambda count: (ends[count], count))
    gain_s = ends[0] - ends[best]
    return [
        _lend(block, "rollout_on_train", gain_s + cost_s, cost_s, f"the step ends {gain_s:.1f} s earlier")
        for block in idle[:best]
    ]


def _trainers_idle(state: State, view: Outlook, block: Block) -> bool:
    early = state.improvements.prepare_early
    return all(
        replica.busy is None or (early and replica.busy == "optimizer")
        for replica in state.train
        if replica.block == block.block
    )


# -- trainers on the RollPool -----------------------------------------------------------------------------------------


def _lend_rollout(state: State, view: Outlook) -> list[Action]:
    if not state.train_on_rollout or view.trainable == 0 or view.lent_train or state.closing_since is not None:
        return []
    if view.startable + view.returned > 0:
        return []
    held: dict[int, int] = {}
    for replica in state.rollout:
        held[replica.block] = held.get(replica.block, 0) + replica.in_flight
    room = view.room
    costs, estimates = view.estimates.train_on_rollout, view.estimates
    out_s = costs.out_s
    if state.improvements.cheap_return:
        out_s = max(0.0, out_s - (costs.grad_s + estimates.optimizer_s + estimates.sync_s))
    lends: list[Action] = []
    trainers = view.trainers
    for block in sorted(view.home_rollout, key=lambda block: (held.get(block.block, 0), block.block)):
        moved = held.get(block.block, 0)
        if moved:
            room -= sum(replica.free_groups for replica in state.rollout if replica.block == block.block)
            if not state.improvements.block_leases or moved > room or len(view.home_rollout) - len(lends) < 2:
                break
            room -= moved
        verdict = gate_train_on_rollout(
            units=(1.0,) * view.trainable,
            primaries=trainers,
            auxiliaries=block.auxiliaries,
            model=StageModel(a=0.0, b=slope(estimates.train)),
            in_s=costs.in_s,
            out_s=out_s,
            grad_s=costs.grad_s,
        )
        if not verdict.admit:
            break
        lends.append(_lend(block, "train_on_rollout", verdict.gain_s, verdict.cost_s, verdict.reason))
        trainers += block.auxiliaries
    return lends


# -- ends -------------------------------------------------------------------------------------------------------------


def _end(state: State, view: Outlook, block: Block) -> EndLease | None:
    if block.lease is None or block.lease_state not in ("preparing", "working"):
        return None
    reason = _rollout_over(state, view, block) if block.pool == "train" else _train_over(state, view, block)
    return EndLease(block=block.block, lease=block.lease, revoke=False, reason=reason) if reason else None


def _rollout_over(state: State, view: Outlook, block: Block) -> str:
    if block.lease_state == "preparing":
        return ""
    own = [replica for replica in state.rollout if replica.block == block.block]
    held = sum(replica.in_flight for replica in own)
    room = sum(replica.free_groups for replica in own)
    if view.startable + view.returned == 0:
        if not state.improvements.keep_lease and held == 0:
            return "its groups are finished and none may be started"
        if held == 0 or (state.bound.k >= 1 and held <= room):
            return f"none may be started and its rollouters hold {held} groups"
    if state.bound.k >= 1 and block == _first_working(view) and _needed_at_home(view, block):
        return "its trainers would be busy all the time at home"
    if state.bound.k < 1 and view.trainable > 0 and block == _first_working(view):
        now_s, later_s = view.end_returning()
        if now_s <= later_s:
            return f"the step ends in {now_s:.1f} s with its trainers at home, in {later_s:.1f} s later"
    return ""


def _first_working(view: Outlook) -> Block | None:
    """One block a decision goes home: the next decision sees it on its way."""
    return next((block for block in view.lent_train if block.lease_state == "working"), None)


def _needed_at_home(view: Outlook, block: Block) -> bool:
    costs = view.estimates.rollout_on_train
    shortest_s = costs.in_s + max(costs.in_s + costs.out_s, SHORTEST_SHARE * view.estimates.group_latency_s)
    return view.now - block.since >= shortest_s and view.home_use(block, view.trainers + block.primaries, 0) >= 1.0


def _train_over(state: State, view: Outlook, block: Block) -> str:
    if state.closing_since is not None:
        return "" if block.block in view.kept_training else "the step is complete"
    own = [replica for replica in state.train if replica.block == block.block]
    if not own or any(replica.busy is not None for replica in own) or view.startable == 0:
        return ""
    if view.trainable == 0 and view.needed > 0:
        return "its trainers have nothing to do and groups may be started"
    if state.bound.k >= 1 and block.block not in view.kept_training:
        return "the trainers will run dry before its rollouters deliver"
    return ""


def _lend(block: Block, direction: str, gain_s: float, cost_s: float, reason: str) -> Lend:
    return Lend(block=block.block, direction=direction, gain_s=gain_s, cost_s=cost_s, reason=reason)
