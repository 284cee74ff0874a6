"""The decision ledger: a row for every lease that was granted, refused, ended or revoked, and the state behind it.

The state is kept as it was handed to the policy, with the actions that came of it, so that anybody can ask the policy
again and must get the same answer (`planner/replay.py`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from engine.run.recorder import Recorder
from planner.policy import actions as act
from planner.policy.counted import count_unconsumed
from planner.policy.state import State
from planner.replay import encode
from storage.records import DecisionRow, StateRow


class Decisions:
    """Writes the rows of one run."""

    def __init__(self, recorder: Recorder, *, every_state: bool) -> None:
        """`every_state`: keep also the states in which nothing was decided about a lease."""
        self._recorder = recorder
        self._every_state = every_state
        self._count = 0
        self._states = 0

    def record(self, state: State, now: float, actions: Sequence[act.Action], next_lease: int) -> None:
        """Enter what the policy decided at `now`, unix seconds; `next_lease`: number of the next lease granted."""
        rows: list[DecisionRow] = []
        for action in actions:
            if isinstance(action, act.Lend):
                rows.append(self._row(state, now, action, "lend", block=action.block, lease=next_lease))
                next_lease += 1
            elif isinstance(action, act.Refuse):
                rows.append(self._row(state, now, action, "refuse"))
            elif isinstance(action, act.EndLease):
                word = "revoke" if action.revoke else "end"
                rows.append(self._row(state, now, action, word, block=action.block, lease=action.lease))
        if rows:
            self._recorder.decisions(rows)
        if rows or (self._every_state and actions):
            row = StateRow(run_id=self._recorder.run_id, seq=self._states, at=now, data=encode(state, now, actions))
            self._states += 1
            self._recorder.states([row])

    def _row(
        self,
        state: State,
        now: float,
        action: act.Lend | act.Refuse | act.EndLease,
        word: str,
        *,
        block: int | None = None,
        lease: int | None = None,
    ) -> DecisionRow:
        direction = _direction(state, block) if isinstance(action, act.EndLease) else action.direction
        gain_s, cost_s = (None, None) if isinstance(action, act.EndLease) else (action.gain_s, action.cost_s)
        self._count += 1
        return DecisionRow(
            run_id=self._recorder.run_id,
            id=self._count - 1,
            at=now,
            step=state.step.version + 1,
            action=word,
            direction=direction,
            block=block,
            lease=lease,
            gain_s=gain_s if gain_s is None or math.isfinite(gain_s) else None,
            cost_s=cost_s,
            reason=action.reason,
            inputs=inputs_of(state),
        )


def _direction(state: State, block: int | None) -> str:
    pool = next(entry.pool for entry in state.blocks if entry.block == block)
    return "rollout_on_train" if pool == "train" else "train_on_rollout"


def inputs_of(state: State) -> dict[str, Any]:
    """The short numbers that a decision about a lease stands on."""
    numbers: dict[str, Any] = {
        "version": state.step.version,
        "taken": len(state.step.taken),
        "queued": len(state.step.queue),
        "trained": state.step.trained,
        "finished": count_unconsumed(state.unconsumed).finished,
        "in_flight": sum(replica.in_flight for replica in state.rollout),
        "returned": len(state.returned),
        "rollouters": len(state.rollout),
        "trainers": len(state.train),
        "started": state.started - state.excluded,
        "start_cap": None if state.published is None else state.bound.start_cap(state.published),
    }
    estimates = state.estimates
    if estimates is not None:
        numbers |= {
            "group_s": estimates.full_load_group_s,
            "train_s": estimates.train.seconds(1, 1),
            "latency_s": estimates.group_latency_s,
            "optimizer_s": estimates.optimizer_s,
            "sync_s": estimates.sync_s,
        }
    return {name: round(value, 6) if isinstance(value, float) else value for name, value in numbers.items()}
