"""Calibrations in the data folder: measured profiles, found again by whatever job would run at the same speeds.

One YAML file each, named by a fingerprint of what the speeds depend on, so that a job with other steps, another arm,
staleness or partition finds the calibration of its like, and one with another model or batch size does not. A newer
calibration replaces the older one. It refuses files that are no calibration, and starts nothing.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from engine.config import Job, JobError, ProfileConfig
from engine.config.files import plain_yaml
from storage.paths import DataDir

FOLDER = "profiles"

DIGITS = 5
"""Significant digits of a measured number in a file: its error is in the third."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """A measured profile and where it is from."""

    profile: ProfileConfig
    run_id: str
    """the run that measured it"""
    at: str
    """when that run ended, ISO 8601 in UTC"""
    model_error: dict[str, Any]
    """stage -> median and p90 of the relative errors of its forecasts"""

    @property
    def source(self) -> str:
        """In a few words."""
        return f"calibration of run {self.run_id}, {self.at}"


def depends_on(job: Job) -> dict[str, Any]:
    """What the speeds, costs and lengths of a job depend on."""
    devices = job.devices
    return {
        "model": job.model.model_dump(mode="json"),
        "task": job.task.model_dump(mode="json", exclude={"items", "sha256"}),
        "sampling": job.sampling.model_dump(mode="json"),
        "algorithm": {"group_size": job.algorithm.group_size, "reference": job.algorithm.kl_coef > 0},
        "devices": {
            name: getattr(devices, name)
            for name in (
                "kind",
                "rollouter",
                "trainer",
                "rollout_slots",
                "oversubscribe",
                "rollout_replica_size",
                "train_replica_size",
            )
        },
        "schedule": {
            "deterministic": job.schedule.deterministic,
            "max_chunk_groups": job.schedule.max_chunk_groups,
        },
    }


def fingerprint(job: Job) -> str:
    """Sixteen hexadecimal digits of what the speeds depend on."""
    return _digits(depends_on(job))


def work_key(job: Job) -> str:
    """The same for jobs whose tokens are the same work: the batch and, of emulated devices, the speeds count too."""
    algorithm = job.algorithm.model_dump(mode="json")
    return _digits(
        depends_on(job)
        | {
            "seed": job.seed,
            "items": [job.task.size, job.task.sha256],
            "algorithm": {name: value for name, value in algorithm.items() if name != "steps"},
            "profile": job.profile.model_dump(mode="json") if job.emulated and job.profile else None,
        }
    )


def _digits(document: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(document, sort_keys=True).encode()).hexdigest()[:16]


def path_of(data: DataDir, job: Job) -> Path:
    """Where the calibration of jobs like this one lies."""
    return data.root / FOLDER / f"{fingerprint(job)}.yaml"


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


def find(data: DataDir, job: Job) -> Calibration | None:
    """The calibration of jobs like this one; None without. Raises JobError for a file that is none."""
    path = path_of(data, job)
    try:
        loaded = YAML(typ="safe", pure=True).load(path.read_text(encoding="utf-8"))
        return Calibration(
            profile=ProfileConfig.model_validate(loaded["profile"]),
            run_id=str(loaded["run_id"]),
            at=str(loaded["at"]),
            model_error=dict(loaded["model_error"]),
        )
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError, YAMLError, ValidationError, KeyError, TypeError, ValueError) as error:
        reason = " ".join(str(error).split())[:200]
        sentence = f"is no calibration ({reason}); remove it and calibrate again"
        raise JobError({"": sentence}, source=str(path)) from None


def measured(document: dict[str, Any]) -> ProfileConfig:
    """The profile that a run measured, checked as a job's. Raises ValueError with what no job file may say."""
    try:
        return ProfileConfig.model_validate(document)
    except ValidationError as error:
        wrong = [f"{'.'.join(map(str, each['loc']))}: {each['msg'].lower()}" for each in error.errors()]
        raise ValueError("; ".join(wrong)) from None


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
