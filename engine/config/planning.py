"""From a job to its plan: which split of its devices is best, and why. Pure; what `bidirl plan` prints is made here.

It goes by the job's profile, or by one that was measured and is handed in, and asks nothing of this machine. It refuses
a job without a profile, without a number of devices, or whose arm has no pools to split.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from engine.config.calibrations import Calibration
from engine.config.errors import JobError
from engine.config.job import BORROWING_ARMS, Job
from engine.config.profile import to_profile
from planner.frontier import Frontier, frontier
from planner.partitions import Candidate, Plan, plan_profile
from planner.profile import Models, Profile
from planner.profile_models import models_of

BORROWING_TIE = 0.03
"""Borrowing steps that differ by less are equal to this estimate: it ignores what leases overlap with."""

MAX_DEVICES = 16_384
"""A plan is linear in the devices and lists every split: beyond this it takes minutes and nobody reads it."""

STALENESS_SHOWN = (0.0, 0.5, 1.0, 2.0, 4.0)
"""Values of staleness that the frontier compares, besides the job's own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """Speeds and costs to go by, and where they are from."""

    profile: Profile
    source: str
    """in a few words: profile, models given, calibration of run X, run X"""
    model_error: dict[str, Any] | None = None
    """stage -> median and p90 of the relative errors of its forecasts where it was measured; None: it was given"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned:
    """A job's plan with what it was made from."""

    known: Known
    models: Models
    """stage-time models, workload in groups"""
    devices: int
    """of both pools"""
    plan: Plan
    borrows: bool
    """the job's arm lends devices"""
    notes: tuple[str, ...]
    """what the figures leave out"""


def known_of(job: Job, *, source: str = "job", measured: Known | None = None) -> Known:
    """The profile to go by: the job's own, else the measured one. Raises JobError with neither."""
    if job.profile is not None:
        profile = to_profile(job.profile)
        return Known(profile=profile, source="models given" if profile.models is not None else "profile")
    if measured is not None:
        return measured
    raise _error(
        "profile",
        "is needed to plan or simulate: add the speeds and costs rollout, train, optimizer_s, weight_sync_s, "
        "switch, response_tokens and prompt_tokens, as in jobs/emulated_16.yaml, or measure them with: "
        "bidirl calibrate JOB.yaml",
        source,
    )


def known_from(found: Calibration) -> Known:
    """What a calibration measured, to go by where a job has no profile."""
    return Known(profile=to_profile(found.profile), source=found.source, model_error=found.model_error)


def plan_job(job: Job, *, source: str = "job", measured: Known | None = None) -> Planned:
    """Rank the splits of the job's devices. `measured`: what to go by where the job has no profile.

    Raises JobError for a job that cannot be planned.
    """
    algorithm, arm = job.algorithm, job.schedule.arm
    known = known_of(job, source=source, measured=measured)
    if arm == "colocated":
        raise _error(
            "schedule.arm",
            f"arm 'colocated' has no pools, so there is no split to plan; allowed: no_borrow, "
            f"{', '.join(BORROWING_ARMS)}",
            source,
        )
    devices = device_count(job, source=source)
    profile = known.profile
    try:
        models = models_of(profile, algorithm.prompts_per_step, algorithm.group_size)
        plan = plan_profile(
            profile,
            devices=devices,
            layouts=[(job.devices.rollout_replica_size, job.devices.train_replica_size)],
            prompts_per_step=algorithm.prompts_per_step,
            group_size=algorithm.group_size,
            borrow=arm in BORROWING_ARMS,
            staleness=job.schedule.staleness_resolved,
        )
    except (ValueError, ArithmeticError) as error:
        raise _error("profile", f"gives no stage times: {error}", source) from None
    return Planned(
        known=known,
        models=models,
        devices=devices,
        plan=plan,
        borrows=arm in BORROWING_ARMS,
        notes=(*plan.notes, *_notes(job, plan)),
    )


def _notes(job: Job, plan: Plan) -> list[str]:
    """What a reader of the table must know to believe it."""
    notes = ["steps are those of both pools at work all the time, without optimizer step and weight sync"]
    if job.schedule.staleness_resolved < 1:
        notes.append(
            f"at staleness {job.schedule.staleness_resolved:g} the pools wait for each other and steps take longer: "
            "bidirl simulate says how much"
        )
    if plan.best_borrowing is not None:
        ties = [f"{each.rollout_devices}:{each.train_devices}" for each in ties_of(plan, plan.best_borrowing)]
        if ties:
            more = f" and {len(ties) - 6} more" if len(ties) > 6 else ""
            notes.append(
                f"with borrowing, {', '.join(ties[:6])}{more} come within {BORROWING_TIE:.0%} of the best: a tie here, "
                "bidirl simulate tells them apart"
            )
    return notes


def ties_of(plan: Plan, best: Candidate) -> list[Candidate]:
    """Other splits that this estimate cannot tell from `best`, of those with a borrowing step; none where that has
    none: rates without borrowing are exact to the models."""
    if best.borrowing_step_s is None:
        return []
    limit = best.borrowing_step_s * (1 + BORROWING_TIE)
    return [
        each
        for each in plan.candidates
        if each != best and each.borrowing_step_s is not None and each.borrowing_step_s <= limit
    ]


def document(job: Job, planned: Planned) -> dict[str, Any]:
    """The fields of `bidirl plan --json` (contract), and more: idle time, borrowing, notes, the staleness frontier."""
    plan = planned.plan
    return {
        "best": candidate(plan.best) if plan.best else None,
        "best_borrowing": candidate(plan.best_borrowing) if plan.best_borrowing else None,
        "candidates": [candidate(each) for each in plan.candidates],
        "models": asdict(planned.models),
        "source": planned.known.source,
        "notes": list(planned.notes),
        "frontier": [asdict(point) for point in frontier_of(job, planned).pareto],
    }


def candidate(each: Candidate) -> dict[str, Any]:
    """One split, the contract's fields first."""
    first = (
        "rollout_devices",
        "train_devices",
        "rollout_replicas",
        "train_replicas",
        "rate_rollout",
        "rate_train",
        "rate",
        "step_s",
        "feasible",
        "reason",
    )
    fields = asdict(each)
    return {name: fields[name] for name in (*first, *(name for name in fields if name not in first))}


def frontier_of(job: Job, planned: Planned) -> Frontier:
    """Splits and values of staleness, and those that no other pair beats in both rate and staleness, without
    borrowing."""
    profile, algorithm = planned.known.profile, job.algorithm
    return frontier(
        partitions=planned.plan.candidates,
        staleness=sorted({*STALENESS_SHOWN, job.schedule.staleness_resolved}),
        prompts_per_step=algorithm.prompts_per_step,
        workload=float(algorithm.prompts_per_step),
        rollout=planned.models.rollout,
        train=planned.models.train,
        max_chunk_groups=profile.train.max_chunk_groups,
        optimizer_s=profile.optimizer_s,
        weight_sync_s=profile.weight_sync_s,
        streaming=job.schedule.consume_resolved == "stream",
    )


def device_count(job: Job, *, source: str = "job") -> int:
    """The budget: what the partition names, or a number; auto means this machine's cores and nothing else."""
    if job.devices.count == "auto" and job.devices.partition == "auto":
        raise _error(
            "devices.count",
            "must be a number to plan or simulate, such as 16: auto means this machine's cores; got 'auto'",
            source,
        )
    if job.device_count > MAX_DEVICES:
        raise _error(
            "devices.count", f"must be at most {MAX_DEVICES} to plan or simulate, got {job.device_count}", source
        )
    return job.device_count


def _error(path: str, sentence: str, source: str) -> JobError:
    return JobError({path: sentence}, source=source)
