"""What a decision can ask for. Each action is data with a reason in one sentence; a shell applies it."""

from __future__ import annotations

from dataclasses import dataclass

from planner.policy.leases import Direction


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadWeights:
    """The replica takes the version before its next token."""

    device: int
    version: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StartGroups:
    """The replica starts the next `count` groups of the data order, or those of the next ones that are picked."""

    device: int
    count: int
    reason: str
    picks: tuple[int, ...] = ()
    """Places among the next groups, as `State.upcoming` lists them; empty: the first ones."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TakeGroups:
    """The step being filled consumes these finished groups."""

    group_ids: tuple[int, ...]
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainChunk:
    """The trainer accumulates the gradient of these groups."""

    device: int
    group_ids: tuple[int, ...]
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluate:
    """The trainer evaluates its part of the held-out items with the step's version."""

    device: int
    name: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ShipGradient:
    """The trainer puts its accumulated gradient where the other trainers can fetch it."""

    device: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FinishStep:
    """Every trainer merges all gradients in replica order and makes the optimizer step; the first one publishes."""

    devices: tuple[int, ...]
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """The trainer writes a checkpoint of the step's version."""

    device: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SwitchRole:
    """A device of the arm `colocated` changes its role."""

    device: int
    role: str
    """rollout or train."""
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Lend:
    """The block's devices leave their home role and prepare for the other one, under a new lease."""

    block: int
    direction: Direction
    gain_s: float
    """Predicted gain, costs not deducted, in seconds; nan where no model was asked."""
    cost_s: float
    """Predicted cost in seconds."""
    reason: str
    reserved_groups: int = 0
    """Groups of the data order that are kept for its rollouters while they prepare."""
    alone_s: float | None = None
    """Seconds in which, by the model, the step's last group would be trained without the lease; None where the lease
    is not about the end of a step."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Refuse:
    """A gate was asked and did not admit a lease: nothing is moved, the decision is recorded."""

    direction: Direction
    gain_s: float
    """Predicted gain, costs not deducted, in seconds."""
    cost_s: float
    """Predicted cost in seconds."""
    reason: str
    alone_s: float | None = None
    """Seconds until the step ends without it, where the gate is about that."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EndLease:
    """The auxiliaries stop and the block goes home: unfinished groups come back with their prefixes, a running chunk
    ends (with `revoke` at the next group boundary), the gradient is kept."""

    block: int
    lease: int
    revoke: bool
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ResumeGroups:
    """The replica continues these returned groups from their prefixes."""

    device: int
    group_ids: tuple[int, ...]
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """The block changes its home pool: unfinished groups come back with their prefixes, or the gradient is shipped."""

    block: int
    to: str
    """rollout or train."""
    reason: str


Action = (
    LoadWeights
    | StartGroups
    | TakeGroups
    | TrainChunk
    | Evaluate
    | ShipGradient
    | FinishStep
    | Checkpoint
    | SwitchRole
    | Lend
    | Refuse
    | EndLease
    | ResumeGroups
    | Move
)
