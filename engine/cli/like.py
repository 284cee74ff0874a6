"""Reading a past run for the simulator: its job, the speeds it measured of itself, and the work it was given."""

from __future__ import annotations

from pathlib import Path

from engine.cli.client import BadInput, known_run
from engine.config import Job, load_job, parse_job
from engine.config.playing import Recorded
from engine.config.recorded import job_of_run, known_of_run, lengths_of
from storage.paths import DataDir
from storage.reader import TelemetryReader


def read(data: DataDir, run_id: str, job_file: Path | None, settings: list[str]) -> tuple[Job, Recorded]:
    """The job to simulate, from its file or else the run's own, and what was recorded of the run.

    Raises BadInput for a run that is not known or measured too little, JobError for settings that do not fit.
    """
    with TelemetryReader(data.telemetry_db) as reader:
        run = known_run(reader, run_id, told="--like: run")
        if run.profile is None:
            raise BadInput(
                f"--like: run {run_id} has not measured a whole profile (speeds, lengths and both switch costs); "
                "use a longer run of an arm that lends both ways, or bidirl calibrate"
            )
        job = job_of_run(run, settings) if job_file is None else load_job(job_file, settings)
        lengths = lengths_of(reader, run_id, group_size=parse_job(run.job).algorithm.group_size)
    if not lengths:
        raise BadInput(f"--like: run {run_id} has no recorded groups whose work could be played again")
    try:
        known = known_of_run(run)
    except ValueError as error:
        raise BadInput(f"--like: run {run_id} measured what no job file may say: {error}") from None
    assert known is not None, "a run with a profile has measured"
    return job, Recorded(known=known, lengths=lengths)
