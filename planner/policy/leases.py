"""The life of a lease: an auxiliary's right to work on devices of the other pool, for as long as it is worth it.

A lease is a value: `advance` gives the next one and refuses what cannot happen. Whether it is granted is the gates'
matter, what becomes of its work when it ends early that of `chunks`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Literal, get_args

Direction = Literal["rollout_on_train", "train_on_rollout"]

DIRECTIONS: tuple[Direction, ...] = get_args(Direction)
"""Both."""


# granted -> preparing -> working -> draining -> releasing -> released; revoked: granted, preparing -> draining, and
# granted, preparing, working -> releasing; the device dies: any -> released
class LeaseState(StrEnum):
    """Owned by whoever runs the devices; seconds in each are measured there."""

    GRANTED = "granted"
    """decided, and the device was not told yet"""
    PREPARING = "preparing"
    """the device changes its role and takes weights (C_in)"""
    WORKING = "working"
    """it generates or trains for the other pool"""
    DRAINING = "draining"
    """it begins nothing new and ends what it has"""
    RELEASING = "releasing"
    """it changes back to its home role (C_out)"""
    RELEASED = "released"
    """over: the device is home, or dead"""


TRANSITIONS: dict[LeaseState, tuple[LeaseState, ...]] = {
    LeaseState.GRANTED: (LeaseState.PREPARING, LeaseState.DRAINING, LeaseState.RELEASING, LeaseState.RELEASED),
    LeaseState.PREPARING: (LeaseState.WORKING, LeaseState.DRAINING, LeaseState.RELEASING, LeaseState.RELEASED),
    LeaseState.WORKING: (LeaseState.DRAINING, LeaseState.RELEASING, LeaseState.RELEASED),
    LeaseState.DRAINING: (LeaseState.RELEASING, LeaseState.RELEASED),
    LeaseState.RELEASING: (LeaseState.RELEASED,),
    LeaseState.RELEASED: (),
}
"""State -> the states that may follow it. None comes back: a device that is lent again has a new lease."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease:
    """One auxiliary replica's right to work. Raises ValueError for a direction or a block that cannot be."""

    lease_id: int
    """number in the run"""
    direction: Direction
    """rollout_on_train: a trainer's devices generate; train_on_rollout: a rollouter's devices train"""
    block: tuple[int, ...]
    """devices of the replica, at least one, each once"""
    state: LeaseState
    """where it is in its life"""
    granted_at: float
    """seconds of the run at the decision"""
    expected_end: float | None
    """seconds of the run at which the home role is expected to work again; None: not predicted"""
    gain_s: float
    """seconds that the gate predicts to win, switching not counted"""
    cost_s: float
    """seconds that the gate predicts for switching"""
    reason: str
    """why it was granted, one sentence"""

    def __post_init__(self) -> None:
        if self.direction not in DIRECTIONS:
            raise ValueError(f"direction must be one of {', '.join(DIRECTIONS)}, got {self.direction!r}")
        if not self.block or len(set(self.block)) < len(self.block):
            raise ValueError(f"a lease's block must be one or more different devices, got {self.block!r}")


def advance(lease: Lease, state: LeaseState) -> Lease:
    """The lease in its next state. Raises ValueError for one that cannot follow."""
    allowed = TRANSITIONS[lease.state]
    if state not in allowed:
        what = f"only {', '.join(allowed)} may follow" if allowed else "nothing follows it"
        raise ValueError(f"lease {lease.lease_id} cannot go from {lease.state} to {state}: {what}")
    return replace(lease, state=state)
