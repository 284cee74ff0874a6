"""Where the stage times of a plan come from: the job's profile, the stored calibration, or what a past run measured of
itself. Reads the data folder and draws nothing; a source that cannot be used is there with its reason, never replaced.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from engine.config import Job, JobError, calibrations
from engine.config.planning import Known, known_from, known_of
from engine.config.recorded import known_of_run
from storage.paths import DataDir
from storage.records import RunRow

MOST_RUNS = 20
"""Measured profiles of so many runs are offered, the newest: those of older ones are found through the run itself."""

JOB, CALIBRATION, RUN = "job", "calibration", "run:"
"""Keys of the sources; a run's has its id behind it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Times:
    """One source of stage times."""

    key: str
    """job, calibration or run:ID."""
    label: str
    """What it is, for a list to choose from."""
    known: Known | None = None
    """What to go by; None where `problem` says why it cannot be used."""
    problem: str = ""
    """One sentence."""
    own: bool = True
    """Of this job, and not of another run that somebody may think alike."""


def sources(job: Job, data: DataDir, runs: Sequence[RunRow], own: str | None = None) -> list[Times]:
    """What the job can be planned by, what is nearest to it first. `own`: the run whose job it is."""
    nearest = [_of_run(run, own=True) for run in runs if run.run_id == own and run.profile is not None]
    if job.profile is not None:
        nearest.append(Times(key=JOB, label="the job's profile", known=known_of(job)))
    nearest += _calibration(job, data)
    others = [run for run in runs if run.run_id != own and run.profile is not None][:MOST_RUNS]
    return [*nearest, *(_of_run(run, own=False) for run in others)]


def chosen(found: Sequence[Times], key: str | None) -> Times | None:
    """The source with this key, else the nearest one that belongs to the job; another run's is taken only when it is
    asked for."""
    for times in found:
        if times.key == key:
            return times
    return next((times for times in found if times.own), None)


def planned_by(job: Job, times: Times) -> Job:
    """The job as it is planned: its own profile put aside where another source was chosen."""
    return job if times.key == JOB else job.model_copy(update={"profile": None})


def _calibration(job: Job, data: DataDir) -> list[Times]:
    label = "the stored calibration"
    try:
        found = calibrations.find(data, job)
    except JobError as error:
        return [Times(key=CALIBRATION, label=label, problem=str(error))]
    if found is None:
        return []
    return [Times(key=CALIBRATION, label=f"{label}, by run {found.run_id}, {found.at}", known=known_from(found))]


def _of_run(run: RunRow, *, own: bool) -> Times:
    key, label = f"{RUN}{run.run_id}", "measured by this run" if own else f"measured by run {run.run_id}"
    try:
        return Times(key=key, label=label, known=known_of_run(run), own=own)
    except ValueError as error:
        problem = f"run {run.run_id} measured what no job file may say: {error}"
        return Times(key=key, label=label, problem=problem, own=own)
