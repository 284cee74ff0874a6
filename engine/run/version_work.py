"""The evaluations and the checkpoint that belong to a version of the weights, each noted once."""

from __future__ import annotations

from collections.abc import Callable

from engine.config import Job
from engine.run.book import Book
from engine.run.recorder import Recorder
from planner.policy.due import CHECKPOINT, due_work
from storage.words import EVAL_NAMES


class VersionWork:
    """Notes in the books what the policy then hands out."""

    def __init__(self, job: Job, book: Book, recorder: Recorder, clock: Callable[[], float]) -> None:
        self._job = job
        self._book = book
        self._recorder = recorder
        self._clock = clock
        self._noted: set[str] = set()
        self.last_noted = False
        """What belongs to the last version is noted."""

    def open(self) -> None:
        """A version was reached."""
        self._noted = set()
        self.note()

    def note(self) -> None:
        """Note what belongs to the present version and is not noted yet."""
        job, book = self._job, self._book
        version, last = book.step.version, book.steps_left == 0
        self.last_noted = last
        if last and version < job.algorithm.steps and book.last_step is None:
            text = f"The items end after step {version}: too few are left to fill another step."
            self._recorder.log(self._clock(), text, level="warning")
        if job.emulated:
            return  # it learns nothing: there is nothing to evaluate and nothing to keep
        due = due_work(
            version,
            first=version == book.start.version,
            last=last,
            eval_every=job.eval.every_steps if job.eval.items else None,
            control=bool(job.eval.control_prefix),
            checkpoint_every=job.checkpoint.every_steps,
        )
        new = due - self._noted
        self._noted |= new
        names = [name for name in EVAL_NAMES if name in new]
        book.step.eval_parts |= dict.fromkeys(names, book.trainers)
        book.step.evals_waiting += [(name, device) for name in names for device in book.trainers]
        book.step.checkpoint_due = book.step.checkpoint_due or CHECKPOINT in new
