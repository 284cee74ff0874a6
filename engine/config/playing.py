"""From a job to what the simulator plays, and to the idle time of what was played. Pure: no device runs, nothing is
stored. `bidirl simulate` and the Plan page play the same.

It refuses what cannot be planned, a partition that is infeasible for the arm, and recorded work of another shape than
the job's.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from engine.config.errors import JobError
from engine.config.job import Job, Partition
from engine.config.planning import Known, Planned, device_count, known_of, plan_job
from engine.config.runnable import improvements_problem
from planner.bubbles import bubbles
from planner.partitions import Candidate
from planner.simulator.setup import Setup
from planner.simulator.trace import Trace

MOST_SEQUENCES = 20_000_000
"""Responses of one simulated run: each costs some ten microseconds, and its length is drawn beforehand."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    """What a real run leaves to be played again: its own speeds and costs, and the work that it was given."""

    known: Known
    lengths: tuple[tuple[int, ...], ...]
    """response tokens of its groups in the order of the data"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """A simulated run that can be played."""

    known: Known
    """the speeds and costs that it goes by"""
    split: Candidate | None
    """its partition; None for an arm without pools"""
    setup: Setup


def prepare(job: Job, *, source: str = "job", measured: Known | None = None, like: Recorded | None = None) -> Prepared:
    """What is played for a job.

    `measured`: what to go by where the job has no profile. `like`: a real run to go by instead of either, its groups
    as long as they were. Raises JobError for what cannot be simulated.
    """
    if problems := improvements_problem(job):
        raise JobError(problems, source=source)
    if like is not None:
        job, measured = job.model_copy(update={"profile": None}), like.known
    split = None
    if job.schedule.arm == "colocated":
        known = known_of(job, source=source, measured=measured)
    else:
        planned = plan_job(job, source=source, measured=measured)
        known = planned.known
        split = chosen_split(job, planned, source=source)
    setup = setup_of(job, known, split, source=source, lengths=like.lengths if like else None)
    sequences = setup.steps * setup.prompts_per_step * setup.group_size
    if sequences > MOST_SEQUENCES:
        sentence = f"asks for {sequences:,} responses in all, with its steps and group size; at most {MOST_SEQUENCES:,}"
        raise JobError({"algorithm.prompts_per_step": f"{sentence} are simulated, some minutes"}, source=source)
    return Prepared(known=known, split=split, setup=setup)


def chosen_split(job: Job, planned: Planned, *, source: str = "job") -> Candidate:
    """The job's partition, or the planner's best for its arm. Raises JobError with the planner's reason."""
    plan, partition = planned.plan, job.devices.partition
    if isinstance(partition, Partition):
        found = next(each for each in plan.candidates if each.rollout_devices == partition.rollout)
        if found.reason is not None:
            sentence = f"{str(partition)!r} is not feasible for arm {job.schedule.arm!r}: {found.reason}"
            raise JobError({"devices.partition": sentence}, source=source)
        return found
    best = plan.best_borrowing if planned.borrows else plan.best
    if best is None:
        example = plan.candidates[len(plan.candidates) // 2]
        raise JobError(
            {
                "devices.count": f"none of the {len(plan.candidates)} splits of {planned.devices} devices is feasible; "
                f"at {example.rollout_devices}:{example.train_devices}, {example.reason}"
            },
            source=source,
        )
    return best


def setup_of(
    job: Job,
    known: Known,
    split: Candidate | None,
    *,
    source: str = "job",
    lengths: tuple[tuple[int, ...], ...] | None = None,
) -> Setup:
    """The simulated run of a job on a feasible split; None for an arm without pools, which has all devices.

    `lengths`: response tokens of recorded groups, instead of drawn ones.
    """
    schedule, algorithm, devices = job.schedule, job.algorithm, job.devices
    group_size = len(lengths[0]) if lengths else algorithm.group_size
    if group_size != algorithm.group_size:
        sentence = f"must be {group_size} to play that run again, got {algorithm.group_size}"
        raise JobError({"algorithm.group_size": sentence}, source=source)
    try:
        return Setup(
            profile=known.profile,
            arm=schedule.arm,
            streaming=schedule.consume_resolved == "stream",
            staleness=schedule.staleness_resolved,
            rollout_devices=split.rollout_devices if split else device_count(job, source=source),
            train_devices=split.train_devices if split else 0,
            rollout_replica_size=split.rollout_replica_size if split else devices.rollout_replica_size,
            train_replica_size=split.train_replica_size if split else devices.train_replica_size,
            prompts_per_step=algorithm.prompts_per_step,
            group_size=algorithm.group_size,
            steps=algorithm.steps,
            seed=job.seed,
            improvements=schedule.improvements_resolved,
            rollout_on_train=schedule.borrow.rollout_on_train,
            train_on_rollout=schedule.borrow.train_on_rollout,
            lend_cap=schedule.borrow.lend_cap,
            min_lease_s=schedule.borrow.min_lease_s,
            recorded=lengths,
        )
    except ValueError as error:
        raise JobError({"": str(error)}, source=source) from None


def idle_of(trace: Trace, split: Candidate | None) -> dict[str, Any]:
    """The field `idle` of a result: shares of device time from the run's first moment to its last step."""
    fraction = share(trace, trace.account.idle_s)
    by_cause = {cause: part for cause, s in trace.account.idle.items() if (part := share(trace, s))}
    parts = None
    if split and fraction is not None and split.rate_rollout is not None and split.rate_train is not None:
        parts = bubbles(
            rollout_devices=split.rollout_devices,
            train_devices=split.train_devices,
            rate_rollout=split.rate_rollout,
            rate_train=split.rate_train,
            idle_fraction=fraction,
        )
    return {
        "fraction": fraction,
        "by_cause": dict(sorted(by_cause.items(), key=lambda item: -item[1])),
        "structural_fraction": parts.structural if parts else None,
        "residual_fraction": parts.residual if parts else None,
    }


def share(trace: Trace, device_s: float) -> float | None:
    """Fraction of all device time."""
    total = trace.account.total_s
    return min(1.0, device_s / total) if total > 0 else None
