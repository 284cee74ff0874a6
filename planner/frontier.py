"""What partition and staleness buy together: predicted step time, idle time and lag, and which pairs are worth having.

An analytic estimate from mean stage times. It knows neither the spread of lengths nor borrowing, so it sees no gain in
a staleness above 1, where the simulator does: there the further lag pays for variation alone. It refuses an empty list
of staleness values and negative times.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from planner.partitions import Candidate
from planner.policy.bound import Bound
from planner.stage_model import StageTime

SAME_RATE = 1e-9
"""Relative gain in rate that is rounding: it does not justify a larger staleness."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One partition at one staleness."""

    rollout_devices: int
    """g_r, devices of the RollPool"""
    train_devices: int
    """g_t, devices of the TrainPool"""
    rollout_replica_size: int
    """rho_r, devices of a rollout replica"""
    train_replica_size: int
    """rho_t, devices of a trainer replica"""
    staleness: float
    """s, optimizer updates"""
    step_s: float
    """predicted seconds of a step, optimizer and weight sync included"""
    rate: float
    """B / step_s, groups/s"""
    idle_fraction: float
    """predicted share of device time that is idle, 0 to 1"""
    mean_lag: float
    """predicted mean lag of the groups of a step, optimizer updates"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Frontier:
    """All points, and those that no other point beats in both rate and staleness."""

    points: tuple[Point, ...]
    """by partition in the order given, then by staleness in the order given"""
    pareto: tuple[Point, ...]
    """by rising staleness; each is faster than all with less of it"""


def frontier(
    *,
    partitions: Sequence[Candidate],
    staleness: Sequence[float],
    prompts_per_step: int,
    workload: float,
    rollout: StageTime,
    train: StageTime,
    max_chunk_groups: int,
    optimizer_s: float = 0.0,
    weight_sync_s: float = 0.0,
    streaming: bool = True,
) -> Frontier:
    """Predict every feasible partition at every staleness.

    `prompts_per_step`: B, groups; `workload`: U_B, group-equivalents of a step; `streaming`: the trainer starts on a
    step's first groups, not on the whole batch. Raises ValueError without a staleness, or for a negative time.
    """
    if not staleness:
        raise ValueError("a frontier needs at least 1 staleness, got none")
    for name, seconds in (("optimizer_s", optimizer_s), ("weight_sync_s", weight_sync_s)):
        if not 0 <= seconds < math.inf:
            raise ValueError(f"{name} must be a number of seconds >= 0, got {seconds!r}")
    chunk = min(max_chunk_groups, prompts_per_step)
    points: list[Point] = []
    for each in partitions:
        if each.rollout_replicas is None or each.train_replicas is None:
            continue
        rollout_s = rollout.seconds(prompts_per_step, each.rollout_replicas)
        train_s = train.seconds(workload, each.train_replicas)
        if streaming:
            first_s = rollout.seconds(chunk, each.rollout_replicas)
            last_s = train.seconds(workload * chunk / prompts_per_step, each.train_replicas)
            in_turn_s = max(rollout_s + last_s, first_s + train_s)
        else:
            in_turn_s = rollout_s + train_s
        rollout_busy_s = rollout_s + weight_sync_s
        train_busy_s = train_s + optimizer_s + weight_sync_s
        on_policy_s = in_turn_s + optimizer_s + weight_sync_s
        overlapped_s = max(rollout_busy_s, train_busy_s)
        busy_device_s = each.rollout_devices * rollout_busy_s + each.train_devices * train_busy_s
        for s in staleness:
            allowed = Bound(staleness=s, prompts_per_step=prompts_per_step).start_allowance / prompts_per_step
            seconds = overlapping_step_s(on_policy_s, overlapped_s, allowed)
            idle = 1 - busy_device_s / ((each.rollout_devices + each.train_devices) * seconds)
            points.append(
                Point(
                    rollout_devices=each.rollout_devices,
                    train_devices=each.train_devices,
                    rollout_replica_size=each.rollout_replica_size,
                    train_replica_size=each.train_replica_size,
                    staleness=s,
                    step_s=seconds,
                    rate=prompts_per_step / seconds,
                    idle_fraction=max(0.0, idle),
                    mean_lag=mean_lag(allowed, rollout_bound=rollout_busy_s >= train_busy_s),
                )
            )
    return Frontier(points=tuple(points), pareto=pareto(points))


def overlapping_step_s(on_policy_s: float, overlapped_s: float, staleness: float) -> float:
    """Seconds of a step at a staleness: on-policy at 0, the stages fully overlapped from 1 on, in proportion between.

    At 0 rollout and training of a step overlap only by streaming. A staleness of s lets s * B groups be generated while
    the step before is trained, which hides that share of the wait.
    """
    hidden = min(staleness, 1.0)
    return (1 - hidden) * on_policy_s + hidden * overlapped_s


def mean_lag(staleness: float, *, rollout_bound: bool) -> float:
    """Mean lag of a step's groups: rollouters run ahead as far as they may, unless the trainer waits for them.

    A trainer that waits takes every group as it ends, so none is more than about the one batch in flight old.
    """
    return min(staleness, 1.0) if rollout_bound else staleness


def pareto(points: Sequence[Point]) -> tuple[Point, ...]:
    """Points that no other beats in both rate and staleness, by rising staleness; of equal ones the first given."""
    kept: list[Point] = []
    for point in sorted(points, key=lambda each: (each.staleness, -each.rate)):
        if not kept or point.rate > kept[-1].rate * (1 + SAME_RATE):
            kept.append(point)
    return tuple(kept)
