"""Figures that a page needs from a run's stored job."""

from __future__ import annotations

from functools import lru_cache

from engine.config import Job, JobError, parse_job

KEPT_JOBS = 64
"""Parsed jobs kept: a page asks for the same few every second."""


@lru_cache(maxsize=KEPT_JOBS)
def job_of(text: str) -> Job | None:
    """The job, or None when it was written for another version of the program."""
    try:
        return parse_job(text)
    except JobError:
        return None


def prompts_per_step(text: str) -> int | None:
    """Groups per step (B), None when the job cannot be read."""
    job = job_of(text)
    return job.algorithm.prompts_per_step if job else None


def deterministic(text: str) -> bool:
    """Whether the job asks for the same parameters whatever computed them; False when it cannot be read."""
    job = job_of(text)
    return job is not None and job.schedule.deterministic


def held_out_told(text: str) -> str:
    """What the held-out accuracy counts, where a reader could take it for something else; "" elsewhere."""
    job = job_of(text)
    judge = job.task.named_judge if job is not None and job.eval.items else None
    return f"held-out accuracy: share of answers that {judge} gives 1 or more" if judge else ""
