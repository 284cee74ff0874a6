"""What the engine tells a worker and what a worker reports: frozen, picklable, no behaviour.

Commands reach a worker in the order they were sent and are done in that order; generation goes on between them. They
are in `commands.py`, the reports in `events.py`; here is what both sides start from.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from engine.config import Job
from engine.worker.commands import (
    AbortGroups,
    BeginLease,
    Command,
    DiscardStep,
    EndLease,
    Evaluate,
    FinishStep,
    Generate,
    LoadWeights,
    Move,
    Prepare,
    Restore,
    SaveCheckpoint,
    SetReference,
    ShipGradient,
    Shutdown,
    SwitchRole,
    TrainChunk,
)
from engine.worker.events import (
    CheckpointSaved,
    ChunkDone,
    Closed,
    EvalDone,
    Event,
    Failed,
    GradientShipped,
    GroupExcluded,
    GroupsAborted,
    GroupScored,
    LeaseReady,
    LeaseReleased,
    LeaseWorking,
    Log,
    Moved,
    Prepared,
    Progress,
    Ready,
    Rehearsal,
    Restored,
    Started,
    StepDone,
    WeightsLoaded,
)
from engine.worker.ledger import OpenSpan, WorkerSpan
from engine.worker.payloads import Handle, Parcel, SealedGroup, ShippedGradient, SnapshotHandle, Weights

__all__ = [
    "AbortGroups",
    "BeginLease",
    "CheckpointSaved",
    "ChunkDone",
    "Closed",
    "Command",
    "DecodeUnit",
    "Delivery",
    "DiscardStep",
    "EndLease",
    "EvalDone",
    "Evaluate",
    "Event",
    "Failed",
    "FinishStep",
    "Generate",
    "GradientShipped",
    "GroupExcluded",
    "GroupScored",
    "GroupsAborted",
    "Handle",
    "LeaseReady",
    "LeaseReleased",
    "LeaseWorking",
    "LoadWeights",
    "Log",
    "Move",
    "Moved",
    "Parcel",
    "Prepare",
    "Prepared",
    "Progress",
    "Ready",
    "Rehearsal",
    "Restore",
    "Restored",
    "RolloutLoad",
    "SaveCheckpoint",
    "SealedGroup",
    "SetReference",
    "ShipGradient",
    "ShippedGradient",
    "Shutdown",
    "SnapshotHandle",
    "Started",
    "StepDone",
    "SwitchRole",
    "TrainChunk",
    "Weights",
    "WeightsLoaded",
    "WorkerSpec",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerSpec:
    """What a worker is started with."""

    run_id: str
    device: int
    """Index of the device in its run."""
    core: int | None
    """CPU core the worker is pinned to; None for an emulated device."""
    node: int = 0
    """Emulated node that hosts the device."""
    home: str | None
    """Home pool, rollout or train: its role there is primary. None: no pools, the role alternates."""
    rolls: bool
    """It has the rollouter role, active or passive."""
    trains: bool
    """It has the trainer role, active or passive."""
    source: bool
    """It makes or loads the first weights; the others receive them."""
    job: Job
    base_dir: Path
    """Folder that relative paths of the job start from."""
    roots: tuple[Path, ...] = ()
    """Folders that the job may read, its own first; none: that one alone."""
    cache_dir: Path
    resume_from: Path | None
    """Checkpoint folder to continue from."""
    snapshot_dir: Path | None = None
    """Folder for snapshots that are too large for shared memory."""
    clock_offset_s: float
    """Unix time minus the machine's monotonic clock: all workers and the engine share one time line."""


REWARDS = "rewards"
"""What an idle span refers to while a rollouter has nothing to generate and waits for rewards: the engine, for whom its
groups are in flight, could not tell."""

NO_SIGNAL = "no_signal"
"""Reason of a group that is excluded since all of its answers earn the same; all other reasons are failures."""

UNIT_S = 0.25
"""Work is timed in stretches of about so long: enough that a clock tick or an interrupt of milliseconds is no news."""


UNIT_STEPS = 8
"""Token steps of a stretch of generation below which it is no unit: it is mostly the way in and out. A large model
takes longer than UNIT_S for them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DecodeUnit:
    """A stretch of generation on one device: what the stage-time model of rollouts is fitted to."""

    steps: int
    """Tokens in a row; each is one token for every active sequence."""
    sequences: int
    """Tokens generated: the sum of active sequences over the steps."""
    starts: int
    """Sequences whose prompt was computed."""
    resumes: int
    """Sequences that were continued from a prefix."""
    seconds: float
    lease: int | None
    """The lease it was done under; None: a primary's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RolloutLoad:
    """How full a rollouter is."""

    added: int
    """Groups that were handed to it in the life of its process."""
    active: int
    """Sequences that hold a slot."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    """All that a worker had to say when it was asked."""

    events: tuple[Event, ...]
    spans: tuple[WorkerSpan, ...]
    open: OpenSpan
    at: float
    """Unix seconds on the worker's clock."""
    decoded: tuple[DecodeUnit, ...] = ()
    """Generation since the last delivery."""
    load: RolloutLoad | None = None
    """Of the rollouter; None without one."""
    parcels: tuple[int, ...] = ()
    """Numbers of the arrays that travel with it."""
