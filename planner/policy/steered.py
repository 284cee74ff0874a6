"""What operators asked for goes before what the arm decides: blocks called home, devices that change their home pool,
the cap on lent devices and the least length of a lease.

    recalled blocks end their leases -> blocks that are free move -> the arm decides, its leases within the limits
"""

from __future__ import annotations

from collections.abc import Sequence

from planner.policy.actions import Action, EndLease, Lend, Move, Refuse
from planner.policy.state import Block, State
from planner.policy.wording import POOLS

AT_WORK = ("granted", "preparing", "working")
"""States of a lease that has not been ended yet."""


def steering(state: State) -> list[Action]:
    """What is done before the arm is asked: ends of leases that may no longer be, and moves."""
    if state.stopping:
        return []
    return [*_recalls(state), *_moves(state)]


def _recalls(state: State) -> list[Action]:
    reasons = {moving.block: f"it goes to the {POOLS[moving.to]}" for moving in state.moving}
    reasons |= dict.fromkeys(state.recalled, "the settings lend in this direction no more")
    return [
        EndLease(block=block.block, lease=block.lease, revoke=False, reason=reasons[block.block])
        for block in state.blocks
        if block.lease is not None and block.block in reasons and block.lease_state in AT_WORK
    ]


def _moves(state: State) -> list[Action]:
    """A block of the RollPool may go at any moment, its groups go on elsewhere; one of the TrainPool when its trainers
    have done what they were handed and no evaluation or checkpoint waits for them."""
    lent = {block.block for block in state.blocks if block.lease is not None or block.lease_state == "dead"}
    busy = {replica.device for replica in state.train if replica.busy is not None}
    return [
        Move(block=moving.block, to=moving.to, reason=f"the partition changes: it goes to the {POOLS[moving.to]}")
        for moving in state.moving
        if moving.block not in lent and not moving.awaited and (moving.to == "train" or busy.isdisjoint(moving.home))
    ]


def within(state: State, now: float, actions: list[Action]) -> list[Action]:
    """What the arm would change in its leases, without those beyond the cap or of blocks that are to leave, and without
    ends of leases that are too young to end."""
    limits = state.limits
    if limits.lend_cap is None and not limits.min_lease_s and not state.moving and not state.recalled:
        return actions
    blocks = {block.block: block for block in state.blocks}
    out = sum(block.devices for block in state.blocks if block.lease is not None)
    kept: list[Action] = []
    for action in actions:
        match action:
            case Lend():
                block = blocks[action.block]
                if any(moving.block == action.block for moving in state.moving):
                    continue
                if limits.lend_cap is not None and out + block.devices > limits.lend_cap:
                    kept += _capped(state, action, kept)
                    continue
                out += block.devices
                kept.append(action)
            case EndLease(revoke=False) if _young(blocks[action.block], limits.min_lease_s, now):
                pass
            case _:
                kept.append(action)
    return kept


def _capped(state: State, action: Lend, kept: Sequence[Action]) -> list[Action]:
    """A refusal, once per idle window."""
    told = any(isinstance(other, Lend | Refuse) and other.direction == action.direction for other in kept)
    if told or action.direction in state.refused:
        return []
    cap = state.limits.lend_cap
    reason = f"an operator allows {cap} lent device{'' if cap == 1 else 's'} at a time; {action.reason}"
    return [
        Refuse(
            direction=action.direction,
            gain_s=action.gain_s,
            cost_s=action.cost_s,
            reason=reason,
            alone_s=action.alone_s,
        )
    ]


def _young(block: Block, min_lease_s: float, now: float) -> bool:
    return block.lease is not None and now - block.since < min_lease_s
