"""What a decision may look at: one frozen picture of a run, built by whoever runs the devices.

The live engine builds it from what its workers reported; anything else that runs `decide` builds the same.
Group numbers are the run's own counter, in start order; versions count optimizer updates.
"""

from __future__ import annotations

from dataclasses import dataclass

from planner.policy.staleness import Bound, Unconsumed


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


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainReplica:
    """A replica in the trainer role."""

    device: int
    ready: bool
    """It holds the parameters and the optimizer."""
    busy: str | None
    """What it was last handed and has not reported done: chunk, evaluate, gradient, optimizer or checkpoint."""
    chunks: int
    """Chunks among that: the one it works on and those that wait behind it."""
    shipped: bool
    """Its gradient of this step is where the others can fetch it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """The step the trainer is filling: it consumes at version `version`."""

    version: int
    taken: tuple[tuple[int, Bound], ...]
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
    unconsumed: tuple[Unconsumed, ...]
    """Groups started, not excluded and not taken by a step."""
    colocated: tuple[ColocatedDevice, ...] = ()
