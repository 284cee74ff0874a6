"""Reading a past run for the simulator: its job, the speeds it measured of itself, and the work it was given."""

from __future__ import annotations

from pathlib import Path

from engine import profiles
from engine.cli.client import BadInput, known_run
from engine.config import Job, load_job, parse_job, parse_setting, to_profile
from engine.planning import Known
from engine.simulation import Recorded
from storage.paths import DataDir
from storage.reader import TelemetryReader
from storage.records import GroupRow, RunRow

PAGE = 1000
"""Groups read at once: their texts are some kilobytes each, and only the counts of tokens are kept."""


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
        job = _job_of(run, settings) if job_file is None else load_job(job_file, settings)
        lengths = _lengths(reader, run_id, group_size=parse_job(run.job).algorithm.group_size)
    if not lengths:
        raise BadInput(f"--like: run {run_id} has no recorded groups whose work could be played again")
    try:
        profile = to_profile(profiles.measured(run.profile))
    except ValueError as error:
        raise BadInput(f"--like: run {run_id} measured what no job file may say: {error}") from None
    measured = Known(profile=profile, source=f"run {run_id}", model_error=run.model_error)
    return job, Recorded(known=measured, lengths=lengths)


def _job_of(run: RunRow, settings: list[str]) -> Job:
    """The run's job on the devices that it had; a partition only where the arm that is asked for has pools."""
    job = parse_job(run.job)
    arm, paths = job.schedule.arm, set()
    for path, value in map(parse_setting, settings):
        paths.add(path)
        if path == "schedule.arm":
            arm = value
    if paths & {"devices.count", "devices.partition"}:
        # what is asked for decides both: a partition says how many, a number asks for the best split
        own = ["devices.count=auto", "devices.partition=auto"]
    else:
        pools = arm != "colocated" and run.partition is not None
        own = [f"devices.count={job.device_count}", f"devices.partition={run.partition if pools else 'auto'}"]
    return parse_job(run.job, [*own, *settings], source=f"run {run.run_id}")


def _lengths(reader: TelemetryReader, run_id: str, *, group_size: int) -> tuple[tuple[int, ...], ...]:
    """Response tokens of every whole group in the order of starting, which is that of the data."""
    found: dict[int, tuple[int, ...]] = {}
    read = 0
    while page := reader.groups(run_id, limit=PAGE, offset=read):
        read += len(page)
        # a run that still goes on adds groups at the front, so a page may repeat some of the one before
        found |= {group.group_id: _tokens(group) for group in page}
    return tuple(found[group_id] for group_id in sorted(found) if len(found[group_id]) == group_size)


def _tokens(group: GroupRow) -> tuple[int, ...]:
    """An empty answer took a token too: the one that ended it."""
    return tuple(max(1, int(response["tokens"])) for response in group.responses)
