"""Whether a valid job can be run live by this version. Planning and simulating ask only whether it is valid.

What exists in the design and does not run live yet is refused here, by name; how many devices this machine holds is
asked apart (`Job.check_machine`).
"""

from __future__ import annotations

import math

from engine.config.errors import JobError
from engine.config.job import BORROWING_ARMS, KINDS_AVAILABLE, Job, Partition
from engine.config.model import BUILTIN
from engine.config.rollouter import vllm_problem
from engine.config.task import MADE
from planner.policy.pulls import OURS


def improvements_problem(job: Job) -> dict[str, str]:
    """Place and sentence where the job names improvements that its arm does not have; empty otherwise."""
    if not job.schedule.improvements or job.schedule.arm in OURS:
        return {}
    named = ", ".join(job.schedule.improvements)
    sentence = f"improvements belong to the arms {', '.join(OURS)}, the arm is {job.schedule.arm}; got {named}"
    return {"schedule.improvements": sentence}


def check_runnable(job: Job, *, source: str = "job") -> None:
    """Raise JobError with everything that keeps the job from running live."""
    devices = job.devices
    problems: dict[str, str] = {}
    problems |= improvements_problem(job)
    if devices.kind not in KINDS_AVAILABLE:
        problems["devices.kind"] = (
            f"device kind {devices.kind!r} does not run yet; available: {', '.join(KINDS_AVAILABLE)}"
        )
    if devices.rollouter == "vllm" and (problem := vllm_problem(job)):
        problems |= dict([problem])
    if job.emulated:
        problems |= _emulated_problems(job)
    else:
        for name in ("rollout_replica_size", "train_replica_size"):
            if getattr(devices, name) != 1:
                problems[f"devices.{name}"] = f"must be 1 where one core is one replica, got {getattr(devices, name)}"
        source_of_task = job.task.source
        if job.model.source == BUILTIN and job.model.warm_start.steps and not source_of_task.startswith(f"{MADE}:"):
            problems["model.source"] = (
                f"{BUILTIN} is warmed up with worked answers, of which task.source {source_of_task!r} has none; "
                "allowed: the folder of a model, or model.warm_start {steps: 0, worked_only_steps: 0}: random weights"
            )
        if job.model.dtype_on(devices.kind) == "bfloat16" and devices.kind == "cpu":
            problems["model.dtype"] = (
                "bfloat16 is for GPUs: CPU cores multiply matrices in it slower by an order of magnitude; allowed: "
                "auto or float32"
            )
    if problems:
        raise JobError(problems, source=source)


def _emulated_problems(job: Job) -> dict[str, str]:
    """What emulated devices cannot be or do: they need speeds to obey and whole replicas in both pools."""
    devices, problems = job.devices, {}
    if job.profile is None:
        problems["profile"] = "is needed: emulated devices obey its speeds and costs, as in jobs/emulated_16.yaml"
    if job.schedule.deterministic:
        problems["schedule.deterministic"] = "true has no meaning for emulated devices, which learn nothing"
    if not isinstance(devices.count, int) and devices.partition == "auto":
        problems["devices.count"] = "must be a number for emulated devices, such as 16: auto means cores; got 'auto'"
    rollout_size, train_size = devices.rollout_replica_size, devices.train_replica_size
    if job.schedule.arm == "colocated":
        if train_size % rollout_size:
            problems["devices.train_replica_size"] = (
                f"must be a multiple of the rollout replica size {rollout_size} for arm colocated, got {train_size}"
            )
        elif job.device_count % train_size:
            problems["devices.count"] = (
                f"must be a multiple of the train replica size {train_size}, got {devices.count}"
            )
        return problems
    if not isinstance(devices.partition, Partition):
        return problems  # the planner chooses it
    unit = math.lcm(rollout_size, train_size) if job.schedule.arm in BORROWING_ARMS else 1
    for pool, size in (("rollout", rollout_size), ("train", train_size)):
        count, wanted = getattr(devices.partition, pool), math.lcm(size, unit)
        if count % wanted:
            what = f"whole replicas of {size}" if wanted == size else f"whole blocks of {wanted}, to be lent"
            problems["devices.partition"] = f"its {count} {pool} devices are not {what}; got '{devices.partition}'"
    return problems
