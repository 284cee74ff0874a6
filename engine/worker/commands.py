"""What the engine tells a worker: done in the order in which it was sent, while generation goes on between."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from engine.learning.sequences import GroupRequest
from engine.worker.payloads import Handle, SealedGroup, ShippedGradient, SnapshotHandle, Weights


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadWeights:
    version: int
    handle: Handle


@dataclass(frozen=True, slots=True, kw_only=True)
class Generate:
    requests: tuple[GroupRequest, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class AbortGroups:
    """Take all groups back with their prefixes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainChunk:
    chunk_id: int
    step: int
    groups: tuple[SealedGroup, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluate:
    step: int
    name: str
    prefix: str
    """Text that every answer is made to start with; empty for none."""
    part: int
    """Of the held-out items, from 0."""
    parts: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ShipGradient:
    step: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FinishStep:
    step: int
    gradients: tuple[ShippedGradient, ...]
    """Gradients that were shipped, in the same order for every primary."""
    own: bool
    """What this trainer still holds is part of the step: it shipped nothing, being the only one at its end."""
    publish: bool
    """It puts the new weights and the snapshot where the others can fetch them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DiscardStep:
    """Forget the gradient accumulated since the last optimizer step."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Restore:
    """Become a primary of the snapshot's version; what was accumulated is forgotten."""

    snapshot: SnapshotHandle


@dataclass(frozen=True, slots=True, kw_only=True)
class SetReference:
    """Take these weights as the reference of the KL term."""

    handle: Handle


@dataclass(frozen=True, slots=True, kw_only=True)
class SaveCheckpoint:
    folder: Path
    step: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SwitchRole:
    """A device without a home pool changes its role."""

    role: str
    """rollout or train."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BeginLease:
    """Leave the home role (groups come back, a gradient is shipped) and take the other one with these weights."""

    lease: int
    step: int
    """Step whose gradient is shipped."""
    weights: Weights


@dataclass(frozen=True, slots=True, kw_only=True)
class EndLease:
    """Leave the other role (groups come back, chunks that wait are given back, the gradient is shipped) and go home.

    Chunks see it coming: one that has not begun is given back at once, and with `revoke` the running one ends at the
    next boundary between groups.
    """

    lease: int
    step: int
    revoke: bool
    weights: Weights | None
    """For a rollouter that comes home: the newest version."""
    snapshot: SnapshotHandle | None
    """For a trainer that comes home and is behind: the newest version."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """Leave the home role for good (groups come back, a gradient is shipped) and be at home in the other pool."""

    home: str
    """rollout or train, from now on."""
    step: int
    """Step whose gradient is shipped."""
    weights: Weights
    snapshot: SnapshotHandle | None
    """For a new trainer: parameters and optimizer state of the newest version."""
    reference: Handle | None
    """For a new trainer: the weights of the KL term's reference, where there is one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepare:
    """Take the other role into memory, passive, so that the device can be lent."""

    reference: Handle | None
    """As in `Move`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shutdown:
    """Close the ledger and end; running groups are dropped (abort them first to keep their prefixes)."""


Command = (
    LoadWeights
    | Generate
    | AbortGroups
    | TrainChunk
    | Evaluate
    | ShipGradient
    | FinishStep
    | DiscardStep
    | Restore
    | SetReference
    | SaveCheckpoint
    | SwitchRole
    | BeginLease
    | EndLease
    | Move
    | Prepare
    | Shutdown
)
