"""Leases of the published rules and of greedy borrowing: the whole pool, once per idle window.

`bidirectional_paper` asks a gate with the stage-time models; `opportunistic` borrows whenever the other pool is idle.
"""

from __future__ import annotations

import math

from planner.policy.actions import Action, EndLease, Lend, Refuse
from planner.policy.counted import count_unconsumed
from planner.policy.gates import gate_rollout_on_train, gate_train_on_rollout
from planner.policy.pulls import startable
from planner.policy.state import Block, Estimates, State


def lending(state: State, now: float, trainable: int) -> list[Action]:
    """Ends of leases, then at most one new lease of a whole pool. `trainable`: groups that a trainer may take now."""
    ends = _ends(state, trainable)
    if ends or state.estimates is None or state.closing_since is not None:
        return ends
    active = {block.pool for block in state.blocks if block.lease is not None}
    if active or any(block.lease_state == "dead" for block in state.blocks):
        return []
    missing = _missing(state)
    if "rollout_on_train" in state.directions and trainable == 0 and missing > 0 and _trainers_idle(state):
        return _rollout_on_train(state, missing, state.estimates)
    if "train_on_rollout" in state.directions and trainable > 0 and _rollouters_idle(state):
        return _train_on_rollout(state, trainable, state.estimates)
    return []


def _missing(state: State) -> int:
    """Q: groups that the trainer lacks for its batch."""
    finished = count_unconsumed(state.unconsumed).finished
    return max(0, state.bound.prompts_per_step - len(state.step.taken) - finished)


def _trainers_idle(state: State) -> bool:
    return bool(state.train) and all(replica.busy is None for replica in state.train)


def _rollouters_idle(state: State) -> bool:
    return (
        bool(state.rollout)
        and all(replica.in_flight == 0 for replica in state.rollout)
        and not state.returned
        and startable(state, state.published) == 0
    )


def _of(state: State, pool: str) -> list[Block]:
    return [block for block in state.blocks if block.pool == pool]


def _rollout_on_train(state: State, missing: int, estimates: Estimates) -> list[Action]:
    blocks = _of(state, "train")
    costs = estimates.rollout_on_train
    primaries, auxiliaries = len(state.rollout), sum(block.auxiliaries for block in blocks)
    if state.arm == "opportunistic":
        if startable(state, state.published) + len(state.returned) == 0:
            return []
        return [
            _lend(block, "rollout_on_train", math.nan, costs.in_s + costs.out_s, "the TrainPool is idle")
            for block in blocks
        ]
    if "rollout_on_train" in state.refused:
        return []
    verdict = gate_rollout_on_train(
        groups=missing,
        primaries=primaries,
        auxiliaries=auxiliaries,
        model=estimates.rollout,
        in_s=costs.in_s,
        out_s=costs.out_s,
    )
    if not verdict.admit:
        return [
            Refuse(direction="rollout_on_train", gain_s=verdict.gain_s, cost_s=verdict.cost_s, reason=verdict.reason)
        ]
    share, rest = divmod(verdict.auxiliary_groups, len(blocks))
    return [
        _lend(
            block, "rollout_on_train", verdict.gain_s, verdict.cost_s, verdict.reason, reserved=share + (place < rest)
        )
        for place, block in enumerate(blocks)
    ]


def _train_on_rollout(state: State, trainable: int, estimates: Estimates) -> list[Action]:
    blocks = _of(state, "rollout")
    costs = estimates.train_on_rollout
    cost_s = costs.in_s + costs.out_s + costs.grad_s
    if state.arm == "opportunistic":
        return [_lend(block, "train_on_rollout", math.nan, cost_s, "the RollPool is idle") for block in blocks]
    if "train_on_rollout" in state.refused:
        return []
    verdict = gate_train_on_rollout(
        units=(1.0,) * trainable,
        primaries=len(state.train),
        auxiliaries=sum(block.auxiliaries for block in blocks),
        model=estimates.train,
        in_s=costs.in_s,
        out_s=costs.out_s,
        grad_s=costs.grad_s,
    )
    if not verdict.admit:
        return [
            Refuse(direction="train_on_rollout", gain_s=verdict.gain_s, cost_s=verdict.cost_s, reason=verdict.reason)
        ]
    return [_lend(block, "train_on_rollout", verdict.gain_s, verdict.cost_s, verdict.reason) for block in blocks]


def _lend(block: Block, direction: str, gain_s: float, cost_s: float, reason: str, *, reserved: int = 0) -> Lend:
    return Lend(
        block=block.block, direction=direction, gain_s=gain_s, cost_s=cost_s, reason=reason, reserved_groups=reserved
    )


def _ends(state: State, trainable: int) -> list[Action]:
    """A lease ends when its work is done, or when its home role has work."""
    ends: list[Action] = []
    for block in state.blocks:
        if block.lease is None or block.lease_state not in ("preparing", "working"):
            continue
        reason = (
            _rollout_over(state, block, trainable) if block.pool == "train" else _train_over(state, block, trainable)
        )
        if reason:
            ends.append(EndLease(block=block.block, lease=block.lease, revoke=False, reason=reason))
    return ends


def _rollout_over(state: State, block: Block, trainable: int) -> str:
    if trainable > 0 or len(state.step.taken) == state.bound.prompts_per_step:
        return "the trainer has a batch"
    if _missing(state) == 0 and state.streaming is False:
        return "the trainer lacks no groups"
    if block.lease_state == "preparing":
        return ""
    own = [replica for replica in state.rollout if replica.block == block.block]
    done = all(replica.in_flight == 0 for replica in own) and not state.returned
    if done and (block.reserved == 0 or startable(state, state.published) == 0):
        return "its groups are finished and none may be started"
    return ""


def _train_over(state: State, block: Block, trainable: int) -> str:
    if trainable > 0 or not any(replica.block == block.block for replica in state.train):
        return "" if trainable > 0 or block.lease_state == "preparing" else "nothing is left to train"
    idle = all(replica.busy is None for replica in state.train if replica.block == block.block)
    return "no chunk of the step is left for it" if idle else ""
