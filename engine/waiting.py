"""Runs that wait for devices: of those that need cores the oldest goes first and nobody overtakes it.

Emulated ones need no core and go ahead as soon as there is room for them.
"""

from __future__ import annotations

from collections.abc import Iterator

from engine.config import Job
from engine.config.job import MAX_EMULATED_DEVICES


class Waiting:
    """The queue of an engine, oldest run first."""

    def __init__(self) -> None:
        self._jobs: dict[str, Job] = {}

    def __contains__(self, run_id: object) -> bool:
        return run_id in self._jobs

    def add(self, run_id: str, job: Job) -> None:
        """Behind the others."""
        self._jobs[run_id] = job

    def remove(self, run_id: str) -> None:
        """It does not wait any more."""
        self._jobs.pop(run_id, None)

    def ready(self, *, cores: int, free: int, emulated: int) -> Iterator[tuple[str, Job, int]]:
        """Take out the runs that can start now, with the cores that each takes.

        `cores` of the machine, `free` ones among them, `emulated` devices of the runs that go on.
        """
        held: set[bool] = set()
        for run_id, job in list(self._jobs.items()):
            if job.emulated in held:
                continue
            need = job.device_count if job.emulated else min(job.device_count, cores)
            room = MAX_EMULATED_DEVICES - emulated if job.emulated else free
            if need > room:
                held.add(job.emulated)
                continue
            if job.emulated:
                emulated += need
            else:
                free -= need
            del self._jobs[run_id]
            yield run_id, job, 0 if job.emulated else need
