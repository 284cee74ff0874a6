"""Whether a valid job can be run live by this version. Planning and simulating ask only whether it is valid.

What exists in the design and does not run live yet is refused here, by name; how many devices this machine holds is
asked apart (`Job.check_machine`).
"""

from __future__ import annotations

from engine.config.errors import JobError
from engine.config.job import KINDS_AVAILABLE, Job
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
    for name in ("rollout_replica_size", "train_replica_size"):
        if getattr(devices, name) != 1:
            problems[f"devices.{name}"] = f"must be 1 where one core is one replica, got {getattr(devices, name)}"
    if problems:
        raise JobError(problems, source=source)
