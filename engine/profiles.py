"""Writing measured profiles: a calibration into the data folder, and any profile as a job file has it.

A newer calibration replaces the older one of jobs of its like; `engine.config.calibrations` finds it again.
"""

from __future__ import annotations

import io
import os
from pathlib import Path
from typing import Any

from engine.config import Job, ProfileConfig
from engine.config.calibrations import Calibration, depends_on, digits, path_of
from engine.config.files import plain_yaml
from storage.paths import DataDir

DIGITS = 5
"""Significant digits of a measured number in a file: its error is in the third."""


def work_key(job: Job) -> str:
    """The same for jobs whose tokens are the same work: the batch and, of emulated devices, the speeds count too."""
    algorithm = job.algorithm.model_dump(mode="json")
    return digits(
        depends_on(job)
        | {
            "seed": job.seed,
            "items": [job.task.size, job.task.sha256],
            "algorithm": {name: value for name, value in algorithm.items() if name != "steps"},
            "profile": job.profile.model_dump(mode="json") if job.emulated and job.profile else None,
        }
    )


def store(data: DataDir, job: Job, calibration: Calibration) -> Path:
    """Write the calibration of jobs like this one; an older one is replaced as a whole."""
    path = path_of(data, job)
    path.parent.mkdir(parents=True, exist_ok=True)
    document = {
        "run_id": calibration.run_id,
        "at": calibration.at,
        "model_error": rounded(calibration.model_error),
        "depends_on": depends_on(job),
        "profile": document_of(calibration.profile),
    }
    half = path.with_suffix(f".{os.getpid()}.part")
    half.write_text(dump(document), encoding="utf-8")
    half.replace(path)
    return path


def document_of(profile: ProfileConfig) -> dict[str, Any]:
    """`profile` as a job file has it, to a few digits."""
    document: dict[str, Any] = rounded(profile.model_dump(mode="json"))
    return document


def dump(document: dict[str, Any]) -> str:
    """YAML that reads like a job file: one short mapping a line."""
    yaml = plain_yaml()
    yaml.default_flow_style = None
    yaml.width = 120
    stream = io.StringIO()
    yaml.dump(document, stream)
    return stream.getvalue()


def rounded(value: Any) -> Any:
    """Every float to a few significant digits."""
    if isinstance(value, dict):
        return {key: rounded(each) for key, each in value.items()}
    return float(f"{value:.{DIGITS}g}") if isinstance(value, float) else value
