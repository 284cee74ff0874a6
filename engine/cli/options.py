"""What the commands share: their common options, and the job file that most of them begin with."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from engine import launching
from engine.config import Job, load_job
from engine.config.job import usable_cores
from engine.models import memory, trials
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


def checked_job(path: Path, settings: list[str] | None, data_dir: str | None, *, keep: bool = True) -> Job:
    """Load the job and check that it can be run live, on this machine.

    `keep`: what was found out about its model folder stays in the data folder, for the launch that follows.
    """
    job = load_job(path, settings or [])
    data = DataDir.from_env(data_dir)
    return launching.checked(
        job,
        base_dir=path.absolute().parent,
        data=data,
        cores=len(usable_cores()),
        available=memory.total_bytes,  # an engine may have runs that end before this one begins
        verdict=lambda question: trials.ask(question, data.cache, keep=keep),
        source=str(path),
    )


def stored_measurement(job: Job, data_dir: str | None) -> planning.Known | None:
    """The stored calibration of a job that has no profile of its own."""
    from engine.config import calibrations, planning

    found = calibrations.find(DataDir.from_env(data_dir), job) if job.profile is None else None
    return planning.known_from(found) if found is not None else None


def print_json(document: Any) -> None:
    """The one document of `--json`. Raises ValueError for a number that JSON has not."""
    print(json.dumps(document, indent=2, allow_nan=False))
