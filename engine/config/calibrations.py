"""Calibrations in the data folder: measured profiles, found again by whatever job would run at the same speeds.

One YAML file each, named by a fingerprint of what the speeds depend on, so that a job with other steps, another arm,
staleness or partition finds the calibration of its like, and one with another model or batch size does not. It reads
them and refuses files that are none; `engine.profiles` writes them.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from engine.config.errors import JobError, explain, one_line
from engine.config.job import Job
from engine.config.profile import ProfileConfig
from storage.paths import DataDir

FOLDER = "profiles"


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
    return digits(depends_on(job))


def digits(document: dict[str, Any]) -> str:
    """Sixteen hexadecimal digits of its contents."""
    return hashlib.sha256(json.dumps(document, sort_keys=True).encode()).hexdigest()[:16]


def path_of(data: DataDir, job: Job) -> Path:
    """Where the calibration of jobs like this one lies."""
    return data.root / FOLDER / f"{fingerprint(job)}.yaml"


def find(data: DataDir, job: Job) -> Calibration | None:
    """The calibration of jobs like this one; None without. Raises JobError for a file that is none."""
    path = path_of(data, job)
    try:
        loaded = YAML(typ="safe", pure=True).load(path.read_text(encoding="utf-8"))
        return Calibration(
            profile=measured(loaded["profile"]),
            run_id=str(loaded["run_id"]),
            at=str(loaded["at"]),
            model_error=dict(loaded["model_error"]),
        )
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError, YAMLError, KeyError, TypeError, ValueError) as error:  # JobError is the last
        reason = one_line(error, 200)
        sentence = f"is no calibration ({reason}); remove it and calibrate again"
        raise JobError({"": sentence}, source=str(path)) from None


def measured(document: dict[str, Any]) -> ProfileConfig:
    """The profile that a run measured, checked as a job's. Raises JobError with what no job file may say."""
    try:
        return ProfileConfig.model_validate(document)
    except ValidationError as error:
        raise explain(error, ProfileConfig, source="profile") from None
