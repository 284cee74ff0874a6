"""What the engine tells a worker and what a worker reports: frozen, picklable, no behaviour.

Commands reach a worker in the order they were sent and are done in that order; generation goes on between them.
"""

from __future__ import annotations

import pickle
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from engine.config import Job
from engine.learning.sequences import FinishedGroup, GroupRequest, PartialGroup
from engine.learning.stats import ChunkStats
from engine.learning.trainer import StepStats
from engine.worker.ledger import OpenSpan, WorkerSpan

Handle = Any
"""Where an array lies: an object of the transport that the workers share; the engine only passes it on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerSpec:
    """What a worker is started with."""

    run_id: str
    device: int
    """Index of the device in its run."""
    core: int
    """CPU core the worker is pinned to."""
    rolls: bool
    """It takes the rollouter role."""
    trains: bool
    """It takes the trainer role."""
    source: bool
    """It makes or loads the first weights; the others receive them."""
    train_rank: int
    """Place among the trainer replicas, from 0."""
    train_world: int
    """Trainer replicas in the run."""
    job: Job
    base_dir: Path
    """Folder that relative paths of the job start from."""
    cache_dir: Path
    resume_from: Path | None
    """Checkpoint folder to continue from."""
    clock_offset_s: float
    """Unix time minus the machine's monotonic clock: all workers and the engine share one time line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SealedGroup:
    """A finished group as the engine handles it: what it counts and stores, and the rest as bytes for the trainer.

    The engine never opens the bytes, so its cost does not grow with the tokens.
    """

    group_id: int
    epoch: int
    item: int
    version: int
    """Oldest version among the tokens."""
    prompt: str
    responses: tuple[dict[str, Any], ...]
    """One a response: text, reward, tokens (count), versions as [[version, tokens], ...]."""
    reward_mean: float | None
    """None when the reward failed."""
    started_at: float
    finished_at: float
    data: bytes
    """The pickled group; empty for an excluded one."""

    @classmethod
    def seal(cls, group: FinishedGroup, *, excluded: bool = False) -> SealedGroup:
        rewards = [response.reward for response in group.responses if response.reward is not None]
        return cls(
            group_id=group.group_id,
            epoch=group.epoch,
            item=group.item,
            version=group.version,
            prompt=group.prompt,
            responses=tuple(
                {
                    "text": response.text,
                    "reward": response.reward,
                    "tokens": len(response.tokens),
                    "versions": [list(item) for item in response.versions],
                }
                for response in group.responses
            ),
            reward_mean=sum(rewards) / len(rewards) if rewards else None,
            started_at=group.started_at,
            finished_at=group.finished_at,
            data=b"" if excluded else pickle.dumps(group, protocol=pickle.HIGHEST_PROTOCOL),
        )

    def open(self) -> FinishedGroup:
        """The group itself, in a trainer's worker."""
        group: FinishedGroup = pickle.loads(self.data)
        return group


# -- commands ---------------------------------------------------------------------------------------------------------


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


@dataclass(frozen=True, slots=True, kw_only=True)
class ShipGradient:
    step: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FinishStep:
    step: int
    gradients: tuple[Handle, ...]
    """Gradients of all trainer replicas in rank order; empty when the replica is alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DiscardStep:
    """Forget the gradient accumulated since the last optimizer step."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SaveCheckpoint:
    folder: Path
    step: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SwitchRole:
    role: str
    """rollout or train."""


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
    | SaveCheckpoint
    | SwitchRole
    | Shutdown
)


# -- events -----------------------------------------------------------------------------------------------------------


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
class Ready:
    """Models are in memory. The source also published its weights."""

    training_items: int
    held_out_items: int
    version: int | None
    """Version of the published weights; None on all but the source."""
    handle: Handle | None
    notes: tuple[str, ...]


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
    chunk_id: int
    step: int
    stats: ChunkStats
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class GradientShipped:
    step: int
    handle: Handle


@dataclass(frozen=True, slots=True, kw_only=True)
class StepDone:
    step: int
    stats: StepStats
    handle: Handle | None
    """The new weights, from the first trainer only."""
    publish_s: float
    """Copying the weights to where the rollouters fetch them."""
    published_at: float
    """Unix seconds at which that copying began."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EvalDone:
    step: int
    name: str
    correct: float
    """Sum of the scores, 0 or 1 each."""
    items: int
    failed: int
    """Items whose scorer failed; they are in neither of the above."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointSaved:
    step: int
    folder: Path
    params_sha256: str


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
    | EvalDone
    | CheckpointSaved
    | Log
    | Failed
    | Closed
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    """All that a worker had to say when it was asked."""

    events: tuple[Event, ...]
    spans: tuple[WorkerSpan, ...]
    open: OpenSpan
    at: float
    """Unix seconds on the worker's clock."""
