"""What a decision may look at: one frozen picture of a run, built by whoever runs the devices.

The live engine builds it from what its workers reported; anything else that runs `decide` builds the same.
Group numbers are the run's own counter, in start order; versions count optimizer updates.
"""

from __future__ import annotations

from dataclasses import dataclass

from planner.policy.counted import Counted
from planner.policy.improvements import PAPER, Improvements
from planner.policy.staleness import Bound, Unconsumed
from planner.profile import SwitchCosts
from planner.stage_model import StageTime

LIVE_CHUNKS_AHEAD = 2
"""Chunks that a trainer of a live run may hold; see `State.chunks_ahead`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RolloutReplica:
    """A replica in the rollouter role."""

    device: int
    """First device of the replica."""
    version: int | None
    """Version of the weights it holds once everything handed to it is done; None before the first ones."""
    loading: bool
    """It was handed weights and has not reported them loaded."""
    in_flight: int
    """Groups handed to it and not reported finished."""
    may_update_in_flight: bool
    """Its groups may continue under new weights (never at a bound of 0)."""
    free_groups: int
    """Groups it can still take at once."""
    block: int = -1
    """Block whose devices it runs on; -1 where nothing is lent."""
    lease: int | None = None
    """The lease it works under; None: a primary."""
    left_groups: float = 0.0
    """Mean groups' worth of tokens that those in flight are expected to need still."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainReplica:
    """A replica in the trainer role."""

    device: int
    ready: bool
    """It holds the parameters and the optimizer; an auxiliary's lease is not ending."""
    busy: str | None
    """What it was last handed and has not reported done: chunk, evaluate, gradient, optimizer or checkpoint."""
    chunks: int
    """Chunks among that: the one it works on and those that wait behind it."""
    shipped: bool
    """Its gradient of this step is where the others can fetch it."""
    block: int = -1
    """Block whose devices it runs on; -1 where nothing is lent."""
    lease: int | None = None
    """The lease it works under; None: a primary."""
    groups: int = 0
    """Groups of its running chunk."""
    busy_since: float = 0.0
    """When it began what it is busy with, in the time handed to `decide`."""
    leaving: bool = False
    """It goes to the other pool: it is handed no chunk any more."""
    ahead_at: float = 0.0
    """From when on it may be handed another chunk while it works: shortly before it will need one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """The step the trainer is filling: it consumes at version `version`."""

    version: int
    taken: tuple[tuple[int, Bound], ...] | Counted
    """Version and bound of each group taken so far."""
    queue: tuple[int, ...]
    """Groups taken and not handed to a trainer."""
    trained: int
    """Groups whose gradient is accumulated."""
    evals_waiting: tuple[tuple[str, int], ...]
    """(name, device) parts of evaluations of this version that were not handed out."""
    evals_running: int
    checkpoint_due: bool
    """A checkpoint of this version was asked for and not handed out."""
    checkpoint_running: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """The smallest set of devices of one pool that can be lent: a multiple of both roles' replica sizes."""

    block: int
    pool: str
    """Home pool: rollout or train."""
    primaries: int
    """Replicas of the home role on it."""
    auxiliaries: int
    """Replicas of the other role that it can hold."""
    devices: int = 1
    lease: int | None = None
    """The lease under which it is lent; None: it is home."""
    lease_state: str = ""
    """granted, preparing, working, draining or releasing."""
    since: float = 0.0
    """When the lease was granted, or when the block came home."""
    reserved: int = 0
    """Groups of the data order that are kept for its rollouters and not started yet."""
    awaited: bool = False
    """An evaluation or a checkpoint of this version waits for its home role, or that is only just coming to this
    version: the block is not lent, or called home."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Moving:
    """A block whose home is to be the other pool, and that has not left yet."""

    block: int
    to: str
    """rollout or train: its role from then on."""
    home: tuple[int, ...]
    """First devices of its replicas of the present home role."""
    awaited: bool
    """An evaluation or a checkpoint of this version waits for them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What operators allow beyond the arm and the directions."""

    lend_cap: int | None = None
    """Most devices lent at the same time; None: as many as pay."""
    min_lease_s: float = 0.0
    """A lease is not ended by the arm before it has lasted so long."""


NO_LIMITS = Limits()


@dataclass(frozen=True, slots=True, kw_only=True)
class Returned:
    """An unfinished group that no replica holds; another replica continues its prefix."""

    group_id: int
    version: int
    on_policy: bool
    """Only a replica with exactly its version may continue it (a bound of 0)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimates:
    """What the policy knows of speeds and costs; measured, fitted or given, never assumed."""

    rollout: StageTime
    """M_r: seconds for groups on rollout replicas"""
    train: StageTime
    """M_t: seconds for groups on trainer replicas"""
    rollout_on_train: SwitchCosts
    train_on_rollout: SwitchCosts
    full_load_group_s: float
    """Seconds per group and rollout replica when all its slots are in use."""
    group_latency_s: float
    """Mean seconds from a group's start to its end on a rollout replica whose slots are all in use."""
    slot_groups: int
    """Groups that fill a rollout replica's slots."""
    half_groups: float
    """Groups at which a rollout replica reaches half of its full speed."""
    optimizer_s: float
    sync_s: float
    """From the optimizer's end until rollouters hold the new version."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ColocatedDevice:
    """A device of the arm without pools: its role alternates within each step."""

    device: int
    role: str
    """rollout or train."""
    share: int
    """Groups of this step that are this device's own."""
    started: int
    """Of those, started and not excluded."""
    finished: tuple[int, ...]
    """Of those, finished and not taken, in completion order."""
    queue: tuple[int, ...]
    """Of those, taken and not handed to its trainer."""
    trained: int
    """Of those, handed to its trainer and trained."""


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """Everything `decide` may look at."""

    arm: str
    streaming: bool
    """The trainer may start on a partial batch."""
    bound: Bound
    """Staleness bound under which groups start now."""
    max_chunk_groups: int
    published: int | None
    """Newest version that rollouters can load; None before the first."""
    started: int
    """Groups started over the run, excluded ones included (section 4)."""
    excluded: int
    prompts_left: int
    """Groups that may still start before the run has all it needs."""
    steps_left: int
    """Steps still to make, the one being filled included."""
    paused: bool
    stopping: bool
    rollout: tuple[RolloutReplica, ...]
    train: tuple[TrainReplica, ...]
    step: Step
    unconsumed: tuple[Unconsumed, ...] | Counted
    """Groups started, not excluded and not taken by a step."""
    colocated: tuple[ColocatedDevice, ...] = ()
    blocks: tuple[Block, ...] = ()
    returned: tuple[Returned, ...] = ()
    """Unfinished groups that came back from a replica."""
    estimates: Estimates | None = None
    improvements: Improvements = PAPER
    directions: frozenset[str] = frozenset(("rollout_on_train", "train_on_rollout"))
    """Which pool's devices may be lent: those that the job allows and that the never-slower guard does not hold off."""
    upcoming: tuple[float, ...] = ()
    """Expected tokens of the next groups of the data order, where lengths can be predicted; empty: they cannot."""
    refused: frozenset[str] = frozenset()
    """Directions whose gate was asked in the present idle window of the pool that would be lent, and either refused or
    granted a lease: the published rules ask once per window."""
    closing_since: float | None = None
    """When the merge and optimizer step of the step being made began; None while it is being filled."""
    moving: tuple[Moving, ...] = ()
    recalled: frozenset[int] = frozenset()
    """Lent blocks whose direction the settings no longer lend in."""
    limits: Limits = NO_LIMITS
    chunks_ahead: int = LIVE_CHUNKS_AHEAD
    """Chunks that a trainer may hold: the one it works on, and one more so that it does not idle for the time that a
    report and an answer take. More, or earlier than `TrainReplica.ahead_at`, would bind work that another trainer could
    have begun."""
