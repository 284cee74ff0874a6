"""Leases of the published rules and of greedy borrowing: the whole pool, once per idle window.

`bidirectional_paper` asks a gate with the stage-time models; `opportunistic` borrows whenever the other pool is idle.
"""

from __future__ import annotations

import math

from planner.policy.actions import Action, EndLease, Lend, Refuse
from planner.policy.counted import count_unconsumed
from planner.policy.gates import gate_rollout_on_train, gate_train_on_rollout
from planner.policy.improvements import PAPER, Improvements
from planner.policy.leases import Direction
from planner.policy.pulls import OURS, startable
from planner.policy.state import Block, Estimates, State
from planner.stage_model import StageModel


def lending(state: State, now: float, trainable: int) -> list[Action]:
    """Ends of leases, then new ones. `trainable`: groups that a trainer may take now.

    The arm `bidirectional` without its own gates comes here too, with those of its improvements that have a meaning.
    """
    parts = state.improvements if state.arm in OURS else PAPER
    ends = _ends(state, parts, trainable)
    early = parts.prepare_early and state.closing_since is not None
    if ends or state.estimates is None or (state.closing_since is not None and not early):
        return ends
    active = {block.pool for block in state.blocks if block.lease is not None}
    if (active and not parts.block_leases) or any(block.lease_state == "dead" for block in state.blocks):
        return []
    missing = _missing(state)
    if "rollout_on_train" in state.directions and trainable == 0 and "rollout" not in active:
        blocks = _idle_blocks(state, "train", parts)
        if blocks and (missing > 0 or early):
            return _rollout_on_train(state, parts, blocks, missing or state.bound.prompts_per_step, state.estimates)
    if "train_on_rollout" in state.directions and trainable > 0 and "train" not in active:
        blocks = _idle_blocks(state, "rollout", parts)
        if blocks and not state.returned and startable(state, state.published) == 0:
            return _train_on_rollout(state, parts, blocks, trainable, state.estimates)
    return []


def _missing(state: State) -> int:
    """Q: groups that the trainer lacks for its batch."""
    finished = count_unconsumed(state.unconsumed).finished
    return max(0, state.bound.prompts_per_step - len(state.step.taken) - finished)


def _idle_blocks(state: State, pool: str, parts: Improvements) -> list[Block]:
    """Blocks that may be lent: all of an idle pool, or with leases of their own those that are idle."""
    if pool == "train":
        free = (None, "optimizer") if parts.prepare_early else (None,)
        busy = {replica.block for replica in state.train if replica.busy not in free}
        busy |= {block.block for block in state.blocks if block.awaited}
    else:
        busy = {replica.block for replica in state.rollout if replica.in_flight > 0}
    blocks = [block for block in state.blocks if block.pool == pool and block.lease is None]
    idle = [block for block in blocks if block.block not in busy]
    return idle if parts.block_leases or len(idle) == len(blocks) else []


def _rollout_on_train(
    state: State, parts: Improvements, blocks: list[Block], missing: int, estimates: Estimates
) -> list[Action]:
    costs = estimates.rollout_on_train
    if state.arm == "opportunistic":
        if startable(state, state.published) + len(state.returned) == 0:
            return []
        cost_s = costs.in_s + costs.out_s
        return [_lend(block, "rollout_on_train", math.nan, cost_s, "the TrainPool is idle") for block in blocks]
    if "rollout_on_train" in state.refused:
        return []
    steady = parts.full_load_rate and state.bound.k >= 1
    verdict = gate_rollout_on_train(
        groups=missing,
        primaries=len(state.rollout),
        auxiliaries=sum(block.auxiliaries for block in blocks),
        model=StageModel(a=0.0, b=estimates.full_load_group_s) if steady else estimates.rollout,
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


def _train_on_rollout(
    state: State, parts: Improvements, blocks: list[Block], trainable: int, estimates: Estimates
) -> list[Action]:
    costs = estimates.train_on_rollout
    if state.arm == "opportunistic":
        cost_s = costs.in_s + costs.out_s + costs.grad_s
        return [_lend(block, "train_on_rollout", math.nan, cost_s, "the RollPool is idle") for block in blocks]
    if "train_on_rollout" in state.refused:
        return []
    hidden_s = costs.grad_s + estimates.optimizer_s + estimates.sync_s if parts.cheap_return else 0.0
    verdict = gate_train_on_rollout(
        units=(1.0,) * trainable,
        primaries=len(state.train),
        auxiliaries=sum(block.auxiliaries for block in blocks),
        model=estimates.train,
        in_s=costs.in_s,
        out_s=max(0.0, costs.out_s - hidden_s),
        grad_s=costs.grad_s,
    )
    if not verdict.admit:
        return [
            Refuse(direction="train_on_rollout", gain_s=verdict.gain_s, cost_s=verdict.cost_s, reason=verdict.reason)
        ]
    return [_lend(block, "train_on_rollout", verdict.gain_s, verdict.cost_s, verdict.reason) for block in blocks]


def _lend(block: Block, direction: Direction, gain_s: float, cost_s: float, reason: str, *, reserved: int = 0) -> Lend:
    return Lend(
        block=block.block, direction=direction, gain_s=gain_s, cost_s=cost_s, reason=reason, reserved_groups=reserved
    )


# -- ends -------------------------------------------------------------------------------------------------------------


def _ends(state: State, parts: Improvements, trainable: int) -> list[Action]:
    """A lease ends when its work is done, or when its home role has work."""
    ends: list[Action] = []
    for block in state.blocks:
        if block.lease is None or block.lease_state not in ("preparing", "working"):
            continue
        if block.pool == "train":
            reason = _rollout_over(state, parts, block, trainable)
        else:
            reason = _train_over(state, block, trainable)
        if reason:
            ends.append(EndLease(block=block.block, lease=block.lease, revoke=False, reason=reason))
    return ends


def _rollout_over(state: State, parts: Improvements, block: Block, trainable: int) -> str:
    if block.awaited:
        return "an evaluation or a checkpoint waits for its trainers"
    if trainable > 0 or (len(state.step.taken) == state.bound.prompts_per_step and state.closing_since is None):
        return "the trainer has a batch"
    missing = _missing(state)
    if missing == 0 and not state.streaming and state.closing_since is None:
        return "the trainer lacks no groups"
    if block.lease_state == "preparing":
        return ""
    own = [replica for replica in state.rollout if replica.block == block.block]
    done = all(replica.in_flight == 0 for replica in own) and not state.returned
    more = startable(state, state.published) > 0 and (block.reserved > 0 or parts.keep_lease)
    if done and not more:
        return "its groups are finished and none may be started"
    if parts.just_in_time_end and state.estimates is not None and 0 < missing <= _coming(state, state.estimates):
        return "the trainer's batch will be there when its trainers are"
    return ""


def _coming(state: State, estimates: Estimates) -> float:
    """Groups that finish while a block comes home, at full load."""
    return estimates.rollout_on_train.out_s * len(state.rollout) / estimates.full_load_group_s


def _train_over(state: State, block: Block, trainable: int) -> str:
    if trainable > 0 or not any(replica.block == block.block for replica in state.train):
        return "" if trainable > 0 or block.lease_state == "preparing" else "nothing is left to train"
    idle = all(replica.busy is None for replica in state.train if replica.block == block.block)
    return "no chunk of the step is left for it" if idle else ""
