"""A short measured run of a job, and what it measured: stored for `plan` and `simulate` of every job of its like."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from engine import profiles
from engine.cli import client, follow
from engine.cli.client import EngineFailed
from engine.config import BORROWING_ARMS, Job, calibrations, dump_job
from engine.config.calibrations import Calibration
from storage.paths import DataDir
from storage.reader import TelemetryReader

STEPS = 12
"""Steps of a calibration: the first ones fill the run, the others give some dozens of chunks and leases."""

NAME_LETTERS = 54
"""Letters of the job's name in the run's: with the word before it, a name may have 64."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibrated:
    """What a calibration gave. Without a profile the run did not end well; its result says why."""

    result: dict[str, Any]
    """result fields of the run"""
    stopped: bool
    """Ctrl-C ended it"""
    calibration: Calibration | None
    path: Path | None
    """where it is stored"""


def settings_of(job: Job, steps: int) -> list[str]:
    """What makes a job a short one that measures nothing but its speed: no evaluation, no checkpoint but the last. An
    arm that lends nothing has no switch to measure, so it is left for the one that lends both ways."""
    lends = job.schedule.arm in BORROWING_ARMS
    return [
        *([] if lends else ["schedule.arm=bidirectional"]),
        f"name=calibrate-{job.name[:NAME_LETTERS]}",
        f"algorithm.steps={steps}",
        "eval.items=0",
        "checkpoint.every_steps=0",
        "profile=null",
    ]


def calibrate(data: DataDir, job: Job, *, base_dir: Path, quiet: bool) -> Calibrated:
    """Run the job to its end through the folder's engine, or one of our own, and store what it measured.

    Raises EngineFailed where the run ended well without having measured every part of a profile.
    """
    with client.engine(data) as owner:
        run_id = client.launch(data, dump_job(job), base_dir=base_dir)
        result, stopped = follow.follow(data, run_id, quiet=quiet, owner=owner)
    if result["state"] != "finished":
        return Calibrated(result=result, stopped=stopped, calibration=None, path=None)
    found = measured(data, run_id)
    return Calibrated(result=result, stopped=stopped, calibration=found, path=profiles.store(data, job, found))


def measured(data: DataDir, run_id: str) -> Calibration:
    """What a run that has ended measured of itself. Raises EngineFailed when that is no whole profile."""
    with TelemetryReader(data.telemetry_db) as reader:
        run = reader.run(run_id)
    assert run is not None, f"run {run_id} is not in {data.telemetry_db}"
    if run.profile is None:
        raise EngineFailed(
            f"run {run_id} of arm {run.arm} measured no whole profile: it needs decoding, chunks, a weight sync and a "
            "switch in both directions; use more --steps or more prompts_per_step, or an arm that lends both ways"
        )
    try:
        profile = calibrations.measured(run.profile)
    except ValueError as error:
        raise EngineFailed(f"run {run_id} measured what no job file may say: {error}") from None
    ended = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(run.ended_at or run.measured_until or time.time()))
    return Calibration(profile=profile, run_id=run_id, at=ended, model_error=run.model_error or {})


def document(done: Calibrated) -> dict[str, Any]:
    """The fields of `bidirl calibrate --json`."""
    found, path = done.calibration, done.path
    return {
        "run_id": done.result["run_id"],
        "state": done.result["state"],
        "at": found.at if found else None,
        "path": str(path) if path else None,
        "fingerprint": path.stem if path else None,
        "steps": done.result["steps"],
        "model_error": found.model_error if found else None,
        "profile": profiles.document_of(found.profile) if found else None,
    }
