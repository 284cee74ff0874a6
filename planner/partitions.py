"""Which split of the devices into RollPool and TrainPool is best, and why each of the others is not (design section 6).

Pure arithmetic on stage-time models: O(devices) for each layout. It refuses sizes below 1, a missing layout and a model
that says a step takes no time. An impossible split is no error: it is returned with its reason. `rate` and `step_s` are
what the pools reach without borrowing; `borrowing_step_s` is an estimate (`planner.borrowing`), which the simulator
refines.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from planner.borrowing import PoolLoad, borrowing_step_s
from planner.bubbles import bubbles
from planner.policy.bound import Bound
from planner.profile import Profile, SwitchCosts
from planner.profile_models import models_of
from planner.stage_model import StageTime

TIE = 1e-9
"""Relative difference of rates below which two partitions are equally fast: rounding, not a preference."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """One split of the devices under one layout; figures are None where it is infeasible."""

    rollout_devices: int
    """g_r, devices of the RollPool"""
    train_devices: int
    """g_t, devices of the TrainPool"""
    rollout_replica_size: int
    """rho_r, devices of a rollout replica"""
    train_replica_size: int
    """rho_t, devices of a trainer replica"""
    feasible: bool
    """whole replicas in both pools, and hot-switch compatible where the job borrows"""
    reason: str | None = None
    """why it is infeasible; None when it is feasible"""
    rollout_replicas: int | None = None
    """d_r = g_r / rho_r"""
    train_replicas: int | None = None
    """d_t = g_t / rho_t"""
    rate_rollout: float | None = None
    """lambda_r = B / M_r(B, d_r), groups/s"""
    rate_train: float | None = None
    """lambda_t = B / M_t(U_B, d_t), groups/s"""
    rate: float | None = None
    """the lower of the two, groups/s"""
    step_s: float | None = None
    """B / rate, seconds, without borrowing"""
    idle_fraction: float | None = None
    """structural share of device time that is idle without borrowing, 0 to 1"""
    borrowing_step_s: float | None = None
    """estimated seconds of a step under two-way borrowing; None where the job does not borrow or costs are unknown"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """All splits, ranked, and what to use."""

    best: Candidate | None
    """fastest without borrowing; None when nothing is feasible"""
    best_borrowing: Candidate | None
    """fastest under borrowing, often another one; None where no borrowing was predicted"""
    candidates: tuple[Candidate, ...]
    """the feasible ones, best first, then the infeasible ones by layout and size"""
    notes: tuple[str, ...] = ()
    """sentences on what the job should know"""


def feasible_partitions(devices: int, rollout_replica_size: int, train_replica_size: int) -> list[tuple[int, int]]:
    """All hot-switch compatible (g_r, g_t), smallest g_r first: each pool can host whole replicas of either role.

    Raises ValueError for sizes below 1.
    """
    _check_sizes(devices, [(rollout_replica_size, train_replica_size)])
    block = math.lcm(rollout_replica_size, train_replica_size)
    return [(g_r, devices - g_r) for g_r in range(block, devices, block)] if devices % block == 0 else []


def plan(
    *,
    devices: int,
    layouts: Sequence[tuple[int, int]],
    prompts_per_step: int,
    workload: float,
    rollout: StageTime,
    train: StageTime,
    borrow: bool = True,
    rollout_on_train: SwitchCosts | None = None,
    train_on_rollout: SwitchCosts | None = None,
    staleness: float | None = None,
) -> Plan:
    """Rank every split of the devices by its rate min(lambda_r, lambda_t).

    `layouts`: (rho_r, rho_t) to choose from; the models' seconds are those of a replica of any of them.
    `prompts_per_step`: B, groups; `workload`: U_B, what the trainer consumes in a step, group-equivalents.
    `borrow`: False when both directions are off, then a pool need not be able to host the other role.
    Switch costs: those of a lease in each direction; nothing is predicted about borrowing while one is unknown.
    Ties: the larger of the two rates, then the smaller g_r, rho_r, rho_t. Raises ValueError on sizes below 1.
    """
    layouts = list(dict.fromkeys(layouts))
    _check_sizes(devices, layouts)
    if prompts_per_step < 1 or not 0 < workload < math.inf:
        raise ValueError(
            f"a step needs at least 1 group and a workload above 0, got {prompts_per_step!r} and {workload!r}"
        )
    costs = (rollout_on_train, train_on_rollout) if borrow and rollout_on_train and train_on_rollout else None
    feasible: list[Candidate] = []
    infeasible: list[Candidate] = []
    for rho_r, rho_t in layouts:
        for g_r in range(1, devices):
            reason = _reason(g_r, devices - g_r, rho_r, rho_t, borrow)
            if reason is None:
                rollout_load = _load(rollout, "rollout", prompts_per_step, g_r, rho_r)
                train_load = _load(train, "train", workload, devices - g_r, rho_t)
                feasible.append(_candidate(rollout_load, train_load, (rho_r, rho_t), prompts_per_step, costs))
            else:
                infeasible.append(
                    Candidate(
                        rollout_devices=g_r,
                        train_devices=devices - g_r,
                        rollout_replica_size=rho_r,
                        train_replica_size=rho_t,
                        feasible=False,
                        reason=reason,
                    )
                )
    ranked = _ranked(feasible, [lambda each: each.rate, _larger_rate])
    borrowing = [each for each in feasible if each.borrowing_step_s is not None]
    best_borrowing = _ranked(borrowing, [lambda each: 1 / (each.borrowing_step_s or math.inf), _larger_rate])[:1]
    return Plan(
        best=ranked[0] if ranked else None,
        best_borrowing=best_borrowing[0] if best_borrowing else None,
        candidates=(*ranked, *infeasible),
        notes=_notes(devices, prompts_per_step, staleness, borrow, costs is not None),
    )


def plan_profile(
    profile: Profile,
    *,
    devices: int,
    layouts: Sequence[tuple[int, int]],
    prompts_per_step: int,
    group_size: int,
    borrow: bool = True,
    staleness: float | None = None,
) -> Plan:
    """`plan` with the stage models and switch costs of a job's profile; a step's workload is its B groups."""
    models = models_of(profile, prompts_per_step, group_size)
    return plan(
        devices=devices,
        layouts=layouts,
        prompts_per_step=prompts_per_step,
        workload=float(prompts_per_step),
        rollout=models.rollout,
        train=models.train,
        borrow=borrow,
        rollout_on_train=profile.rollout_on_train,
        train_on_rollout=profile.train_on_rollout,
        staleness=staleness,
    )


def _check_sizes(devices: int, layouts: Sequence[tuple[int, int]]) -> None:
    if devices < 1:
        raise ValueError(f"devices must be at least 1, got {devices!r}")
    if not layouts:
        raise ValueError("a plan needs at least 1 layout (rollout replica size, trainer replica size), got none")
    for rho_r, rho_t in layouts:
        if rho_r < 1 or rho_t < 1:
            raise ValueError(f"replica sizes must be at least 1, got {rho_r!r} for rollout and {rho_t!r} for train")


def _reason(g_r: int, g_t: int, rho_r: int, rho_t: int, borrow: bool) -> str | None:
    """Why this split cannot be, or None."""
    rollout, train = ("rollout", g_r), ("trainer", g_t)
    for (pool, count), (role, size) in ((rollout, ("rollout", rho_r)), (train, ("trainer", rho_t))):
        if count < size:
            return f"{_devices(count, pool)} fewer than the {role} replica size {size}"
        if count % size:
            return f"{_devices(count, pool)} not a multiple of the {role} replica size {size}"
    if borrow:
        for (pool, count), (role, size) in ((rollout, ("trainer", rho_t)), (train, ("rollout", rho_r))):
            if count % size:
                return (
                    f"{_devices(count, pool)} not a multiple of the {role} replica size {size}, so they cannot all be "
                    f"lent"
                )
    return None


def _devices(count: int, pool: str) -> str:
    return f"{count} {pool} device is" if count == 1 else f"{count} {pool} devices are"


def _load(model: StageTime, stage: str, workload: float, devices: int, replica_size: int) -> PoolLoad:
    """The step's demand on a pool. The base form's a and b * W exactly; of another form its secant at half the work."""
    replicas = devices // replica_size
    seconds = model.seconds(workload, replicas)
    if not 0 < seconds < math.inf:
        raise ValueError(
            f"the {stage} model must give a step of {workload:g} groups on {replicas} replicas a time above 0 s, "
            f"got {seconds!r}"
        )
    shared_s = min(seconds, max(0.0, 2 * (seconds - model.seconds(workload / 2, replicas))))
    return PoolLoad(devices=devices, fixed_s=seconds - shared_s, work_device_s=shared_s * devices)


def _candidate(
    rollout: PoolLoad,
    train: PoolLoad,
    layout: tuple[int, int],
    prompts_per_step: int,
    costs: tuple[SwitchCosts, SwitchCosts] | None,
) -> Candidate:
    rho_r, rho_t = layout
    rate_rollout, rate_train = prompts_per_step / rollout.seconds, prompts_per_step / train.seconds
    idle = bubbles(
        rollout_devices=rollout.devices,
        train_devices=train.devices,
        rate_rollout=rate_rollout,
        rate_train=rate_train,
        idle_fraction=1.0,
    )
    borrowing = None
    if costs is not None:
        to_rollout, to_train = costs
        rollout_borrows = rollout.seconds >= train.seconds
        borrowing = borrowing_step_s(
            borrower=rollout if rollout_borrows else train,
            lender=train if rollout_borrows else rollout,
            block=math.lcm(rho_r, rho_t),
            lease=to_rollout if rollout_borrows else to_train,
        )
    return Candidate(
        rollout_devices=rollout.devices,
        train_devices=train.devices,
        rollout_replica_size=rho_r,
        train_replica_size=rho_t,
        feasible=True,
        rollout_replicas=rollout.devices // rho_r,
        train_replicas=train.devices // rho_t,
        rate_rollout=rate_rollout,
        rate_train=rate_train,
        rate=min(rate_rollout, rate_train),
        step_s=max(rollout.seconds, train.seconds),
        idle_fraction=idle.structural,
        borrowing_step_s=borrowing,
    )


Measure = Callable[[Candidate], float | None]


def _larger_rate(candidate: Candidate) -> float | None:
    return max(candidate.rate_rollout or 0.0, candidate.rate_train or 0.0)


def _ranked(candidates: list[Candidate], measures: Sequence[Measure]) -> list[Candidate]:
    """Largest measure first; those within TIE of the largest of their group are ordered by the next measure.

    Groups are cut from the largest down, so that the order is one: "within 1e-9 of each other" alone would not be
    transitive.
    """
    if not measures:
        return sorted(
            candidates, key=lambda each: (each.rollout_devices, each.rollout_replica_size, each.train_replica_size)
        )
    valued = sorted(((measures[0](each) or 0.0, each) for each in candidates), key=lambda pair: -pair[0])
    ranked: list[Candidate] = []
    group: list[Candidate] = []
    largest = 0.0
    for value, candidate in valued:
        if group and value < largest * (1 - TIE):
            ranked += _ranked(group, measures[1:])
            group = []
        if not group:
            largest = value
        group.append(candidate)
    return ranked + _ranked(group, measures[1:]) if group else ranked


def _notes(
    devices: int, prompts_per_step: int, staleness: float | None, borrow: bool, costs_known: bool
) -> tuple[str, ...]:
    notes: list[str] = []
    if devices < 2:
        notes.append("1 device cannot be split into two pools; the arm colocated needs none")
    if borrow and not costs_known:
        notes.append("the switch costs are not known, so nothing is predicted about borrowing")
    if staleness:
        bound = Bound(staleness=staleness, prompts_per_step=prompts_per_step)
        if bound.start_allowance == 0:
            notes.append(
                f"staleness {staleness:g} lets no group of a step of {prompts_per_step} be older than the trainer's "
                f"version, as staleness 0 would; the first that lets one is {1 / prompts_per_step:.4g}"
            )
    return tuple(notes)
