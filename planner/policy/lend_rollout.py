"""Trainers on the RollPool, as `bidirectional` decides: which rollout blocks leave, and when they come home.

A block may leave when nothing may be started. Unfinished groups on it move to the other rollouters (their tails are
consolidated): the chance that a block becomes free by itself is small. A lease goes on into the next step while the
trainers would not run dry before a block that is sent home now delivers.
"""

from __future__ import annotations

from planner.policy.actions import Action, EndLease, Lend, Refuse
from planner.policy.gates import gate_train_on_rollout
from planner.policy.leases import Direction
from planner.policy.outlook import Outlook
from planner.policy.returns import counts_to_try
from planner.policy.state import Block, State
from planner.policy.training import about_to_rest
from planner.stage_model import StageModel

DELIVERY_SHARE = 0.75
"""Share of a group's mean latency after which a rollouter that begins delivers: short groups come first."""

DIRECTION: Direction = "train_on_rollout"


def lends(state: State, view: Outlook) -> list[Action]:
    """New leases."""
    if DIRECTION not in state.directions or view.trainable == 0 or view.lent_train or state.closing_since is not None:
        return []
    if view.startable > 0 or not view.home_rollout:
        return []
    # each trainer is to have a group: more replicas than groups do not share them
    most = max(0, view.trainable - view.trainers) // view.home_rollout[0].auxiliaries
    blocks = _free(state, view)[:most] if state.improvements.block_leases else _free(state, view)
    costs, estimates = view.estimates.train_on_rollout, view.estimates
    out_s = costs.out_s
    if state.improvements.cheap_return:
        # home cannot start before the next version anyway
        out_s = max(0.0, out_s - (costs.grad_s + estimates.optimizer_s + estimates.sync_s))
    # one merge a step, however many blocks take part: it is not charged twice
    grad_s = 0.0 if view.lent_rollout and state.improvements.cheap_return else costs.grad_s
    verdicts = {
        count: gate_train_on_rollout(
            units=(1.0,) * view.trainable,
            primaries=view.trainers,
            auxiliaries=sum(block.auxiliaries for block in blocks[:count]),
            model=StageModel(a=0.0, b=view.train_s),
            in_s=costs.in_s,
            out_s=out_s,
            grad_s=grad_s,
        )
        for count in (counts_to_try(len(blocks)) if state.improvements.block_leases else [len(blocks)])
        if count > 0
    }
    if not verdicts:
        return []
    count = min(verdicts, key=lambda count: (verdicts[count].borrow_s, count))
    verdict = verdicts[count]
    if not verdict.admit:
        if DIRECTION in state.refused:
            return []
        return [Refuse(direction=DIRECTION, gain_s=verdict.gain_s, cost_s=verdict.cost_s, reason=verdict.reason)]
    return [
        Lend(
            block=block.block,
            direction=DIRECTION,
            gain_s=verdict.gain_s,
            cost_s=verdict.cost_s,
            reason=verdict.reason,
        )
        for block in blocks[:count]
    ]


def _free(state: State, view: Outlook) -> list[Block]:
    """Blocks that may leave, those with the fewest groups first; what they hold fits on the others."""
    some = view.home_rollout[0]
    room = view.room - view.returned
    if room < some.primaries * view.estimates.slot_groups:
        return []  # a block that leaves takes its room along, and what it holds needs room elsewhere
    held, free = view.held, view.free
    blocks = sorted(view.home_rollout, key=lambda block: (held.get(block.block, 0), block.block))
    if not state.improvements.block_leases:
        return blocks if view.in_flight + view.returned == 0 and not view.lent_rollout else []
    able: list[Block] = []
    rollouters, trainers = view.rollouters, view.trainers
    wait_s = _delivers_in(view)
    for block in blocks:
        moved = held.get(block.block, 0)
        room -= free.get(block.block, 0) + moved
        trainers += block.auxiliaries
        rollouters -= block.primaries
        if moved and state.bound.k >= 1 and view.dry_in(rollouters, trainers, at_close=False) < wait_s:
            break
        if (moved and (room < 0 or len(able) + 1 == len(blocks))) or (not moved and view.returned):
            break
        able.append(block)
    return able


def ends(state: State, view: Outlook) -> list[Action]:
    """Leases that end now."""
    working = [block for block in view.lent_rollout if block.lease_state in ("preparing", "working")]
    if not working:
        return []
    closing = state.closing_since is not None
    kept = _kept(view, working, closing) if state.improvements.keep_lease else frozenset[int]()
    found: list[Action] = []
    busy: dict[int, bool] = {}
    for replica in state.train:
        if replica.lease is not None:
            busy[replica.block] = busy.get(replica.block, False) or not about_to_rest(state, replica, view.now)
    for block in working:
        reason = ""
        if closing:
            reason = "" if block.block in kept else "the step is complete"
        elif view.startable > 0 and busy.get(block.block) is False:
            if view.trainable == 0 and view.needed > 0:
                reason = "its trainers have nothing to do and groups may be started"
            elif state.bound.k >= 1 and state.improvements.just_in_time_end and block.block not in kept:
                reason = "the trainers would run dry before its rollouters deliver"
        if reason and block.lease is not None:
            found.append(EndLease(block=block.block, lease=block.lease, revoke=False, reason=reason))
    if not state.improvements.block_leases and len(found) < len(working):
        return []
    return found


def _kept(view: Outlook, working: list[Block], closing: bool) -> frozenset[int]:
    """Blocks that go on training: as many as leave the trainers fed until one that is sent home now delivers."""
    kept = {block.block for block in working}
    rollouters, trainers = view.rollouters, view.trainers
    wait_s = _delivers_in(view)
    for block in reversed(working):
        # once it has left it trains no more: what is there must last the others until it delivers. Below s = 1 the
        # next step's groups cannot be there before it is back, so it leaves early
        others = trainers - block.auxiliaries if view.steps_ahead >= 1 else trainers
        if view.dry_in(rollouters, others, at_close=closing) >= wait_s:
            break
        kept.discard(block.block)
        rollouters, trainers = rollouters + block.primaries, trainers - block.auxiliaries
    return frozenset(kept)


def _delivers_in(view: Outlook) -> float:
    """Seconds until a block that is sent home now delivers groups."""
    return view.estimates.train_on_rollout.out_s + DELIVERY_SHARE * view.estimates.group_latency_s
