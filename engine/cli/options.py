"""What the commands share: their common options, and the job file that most of them begin with."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from engine import allowed_paths
from engine.config import Job, JobError, check_runnable, load_job
from engine.config.job import usable_cores
from storage.paths import DataDir

if TYPE_CHECKING:
    from engine.config import planning

JobFile = Annotated[Path, typer.Argument(metavar="JOB.yaml", help="Job file.")]
Settings = Annotated[list[str] | None, typer.Option("--set", metavar="KEY.PATH=VALUE", help="Set a value; repeatable.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document on stdout and nothing else there.")]
Data = Annotated[
    str | None, typer.Option("--data-dir", help="Databases, checkpoints, logs. Default: BIDIRL_DATA_DIR or var/.")
]
RunId = Annotated[str, typer.Argument(metavar="RUN", help="Run id, as `bidirl runs list` shows it.")]


def checked_job(path: Path, settings: list[str] | None, data_dir: str | None) -> Job:
    """Load the job and check that it can be run live, on this machine."""
    job = load_job(path, settings or [])
    check_runnable(job, source=str(path))
    try:
        job.check_machine(len(usable_cores()))
    except ValueError as error:
        raise JobError({"devices": str(error)}, source=str(path)) from None
    if job.emulated:
        return job
    from engine.learning.tasks import check_task  # a second of imports that only these commands need

    base_dir, data_root = path.absolute().parent, DataDir.from_env(data_dir).root
    job = check_task(job, roots=allowed_paths.roots(base_dir=base_dir, data_root=data_root), source=str(path))
    if not job.model.source.startswith("builtin:"):
        try:
            allowed_paths.resolve(job.model.source, base_dir=base_dir, data_root=data_root)
        except ValueError as error:
            raise JobError({"model.source": str(error)}, source=str(path)) from None
    return job


def stored_measurement(job: Job, data_dir: str | None) -> planning.Known | None:
    """The stored calibration of a job that has no profile of its own."""
    from engine.config import calibrations, planning

    found = calibrations.find(DataDir.from_env(data_dir), job) if job.profile is None else None
    return planning.known_from(found) if found is not None else None


def print_json(document: Any) -> None:
    """The one document of `--json`. Raises ValueError for a number that JSON has not."""
    print(json.dumps(document, indent=2, allow_nan=False))
