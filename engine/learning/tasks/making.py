"""From a job to its task: at launch, to see that it can be made, and in every worker."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from engine.config import Job, JobError, dump_job, parse_job
from engine.learning.rewards.spec import check_rewards
from engine.learning.tasks.made import ReasoningGymTask
from engine.learning.tasks.read import FileTask
from engine.learning.tasks.task import Task


def make_task(job: Job, *, roots: Sequence[Path]) -> Task:
    """The job's task. `roots`: the folders it may read (`allowed_paths.roots`).

    Raises ValueError, as "place: sentence", for a task that cannot be made.
    """
    if not job.task.reads_files:
        return ReasoningGymTask(job.task, seed=job.seed, held_out_items=job.eval.items)
    return FileTask(job.task, roots=roots, held_out_items=job.eval.items)


def check_task(job: Job, *, roots: Sequence[Path], source: str = "job") -> Job:
    """The job with what is known of its task once its files were read: how many items, and what they say.

    Raises JobError when the task cannot be made: an unknown data set, parameters it refuses, a file that is not there
    or holds something else, too few items, a reward that is not to be found.
    """
    try:
        task = make_task(job, roots=roots)
        check_rewards(job.task, roots=roots)
    except ValueError as error:
        path, _, sentence = str(error).partition(": ")
        raise JobError({path: sentence}, source=source) from None
    if not job.task.reads_files:
        return job
    known = [f"task.items={task.size}", f"task.sha256={task.sha256}"]
    return parse_job(dump_job(job), known, source=source)
