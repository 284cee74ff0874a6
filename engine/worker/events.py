"""What a worker reports."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from engine.learning.sequences import PartialGroup
from engine.learning.stats import ChunkStats
from engine.learning.trainer import StepStats
from engine.worker.payloads import Handle, SealedGroup, ShippedGradient, SnapshotHandle


@dataclass(frozen=True, slots=True, kw_only=True)
class Started:
    """The worker's thread runs; its ledger began."""

    pid: int
    at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """A long preparation goes on."""

    text: str
    fraction: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Rehearsal:
    """What taking the other role and coming back cost in this process, tried before the run began; seconds."""

    in_s: float
    out_s: float
    grad_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Ready:
    """Models are in memory. The source also published its weights."""

    training_items: int
    held_out_items: int
    version: int | None
    """Version of the published weights; None on all but the source."""
    handle: Handle | None
    notes: tuple[str, ...]
    memory: dict[str, int]
    """Role -> bytes of weights, gradients and optimizer state that it keeps."""
    rehearsal: Rehearsal | None = None
    """None where there is no passive role."""
    reference: Handle | None = None
    """Weights of the reference of the KL term, from the source."""
    snapshot: SnapshotHandle | None = None
    """What another trainer becomes a primary of this version from, from the source."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightsLoaded:
    version: int
    seconds: float
    """Fetching and copying in, without the wait for the token under way."""
    at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupScored:
    group: SealedGroup


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupExcluded:
    """The group was generated and cannot be trained on."""

    group: SealedGroup
    reason: str
    """A short word that is counted, such as reward_failed."""
    detail: str


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupsAborted:
    groups: tuple[PartialGroup, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ChunkDone:
    """The groups of a chunk that were trained; the others are given back (its lease ended)."""

    chunk_id: int
    step: int
    trained: tuple[int, ...]
    """Numbers of the groups whose gradient was accumulated."""
    given_back: tuple[int, ...]
    """Numbers of the groups that were not."""
    stats: ChunkStats
    """Of the trained ones."""
    seconds: float
    at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class GradientShipped:
    step: int
    gradient: ShippedGradient


@dataclass(frozen=True, slots=True, kw_only=True)
class StepDone:
    step: int
    stats: StepStats
    handle: Handle | None
    """The new weights, from the trainer that publishes."""
    snapshot: SnapshotHandle | None
    """From the trainer that publishes; None without pools."""
    publish_s: float
    """Copying the weights to where the rollouters fetch them."""
    snapshot_s: float
    """Copying the optimizer's state, or writing all of it."""
    merge_s: float
    """Fetching and reading the gradients of other replicas."""
    optimizer_s: float
    published_at: float
    """Unix seconds at which that copying began."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Restored:
    version: int
    seconds: float
    at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class EvalDone:
    step: int
    name: str
    correct: float
    """Sum of the scores, 0 or 1 each."""
    items: int
    failed: int
    """Items that the model could not be asked or whose scorer failed; they are in neither of the above."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointSaved:
    step: int
    folder: Path
    params_sha256: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseReady:
    """The other role can begin."""

    lease: int
    version: int
    began_at: float
    """When the worker took the command up, unix seconds."""
    at: float
    phases: dict[str, float]
    """Part of the preparation -> seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseWorking:
    """The first useful work of the lease begins."""

    lease: int
    at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseReleased:
    """The home role can begin."""

    lease: int
    version: int
    """Of the home role."""
    began_at: float
    """When the worker took the command up, unix seconds."""
    at: float
    phases: dict[str, float]
    """Part of the way home -> seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Moved:
    """The device is at home in the other pool, and its new role holds what it was sent, bit by bit."""

    home: str
    version: int
    """Of the new role."""
    at: float
    phases: dict[str, float]
    """Part of the way -> seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """The other role is in memory."""

    memory: dict[str, int]
    """Role -> bytes that it keeps."""
    rehearsal: Rehearsal | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Log:
    level: str
    text: str
    at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Failed:
    """The worker's thread ended on an exception."""

    error: str
    traceback: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Closed:
    """The ledger is closed; nothing follows."""

    started_at: float
    """Unix seconds."""
    ended_at: float
    """Unix seconds."""
    other_cpu_s: float
    """CPU seconds of the process outside its work thread."""


Event = (
    Started
    | Progress
    | Ready
    | WeightsLoaded
    | GroupScored
    | GroupExcluded
    | GroupsAborted
    | ChunkDone
    | GradientShipped
    | StepDone
    | Restored
    | EvalDone
    | CheckpointSaved
    | LeaseReady
    | LeaseWorking
    | LeaseReleased
    | Moved
    | Prepared
    | Log
    | Failed
    | Closed
)
