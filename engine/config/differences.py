"""In which settings runs differ: their jobs as dotted keys, with what operators changed on the way. Pure.

A job that was written for another version is compared as the YAML that it is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ruamel.yaml.error import YAMLError

from engine.config.errors import JobError
from engine.config.files import parse_job, plain_yaml
from engine.config.steering import PLACES


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The settings of one run."""

    launched: Mapping[str, Any]
    """Dotted key -> value, as the job says."""
    changed: Mapping[str, Any]
    """Dotted key -> the value that governs in its place, where operators changed it."""

    def governs(self, key: str) -> Any:
        """The value that governs, or governed last; None where the run has no such key."""
        return self.changed.get(key, self.launched.get(key))

    def told(self, key: str) -> str:
        """The value as a table shows it, with the launched one before it where that was another."""
        if key in self.changed:
            return f"{shown(self.launched.get(key))} → {shown(self.changed[key])}"
        return shown(self.launched[key]) if key in self.launched else "–"


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """A setting in which runs differ."""

    key: str
    """Dotted path in the job."""
    values: tuple[Any, ...]
    """What governs each run, in their order; None where a run has no such key."""
    told: tuple[str, ...]
    """The same for people, with what it was launched with where that was changed."""


def settings_of_run(job: str, changed: Mapping[str, Any] | None) -> Settings:
    """Of a stored run: `job` is its resolved job as YAML, `changed` what operators have set since."""
    try:
        parsed = parse_job(job)
    except JobError:
        return Settings(launched=flat(_plain(job)), changed={})
    launched = flat(parsed.model_dump(mode="json"))
    governs = {key: value for name, given in (changed or {}).items() for key, value in _placed(name, given).items()}
    return Settings(launched=launched, changed={k: v for k, v in governs.items() if v != launched.get(k)})


def _placed(name: str, value: Any) -> dict[str, Any]:
    """A setting that operators may change as dotted keys of the job; nothing for one of another version."""
    if name not in PLACES:
        return {}
    key = ".".join(PLACES[name])
    if name == "partition" and isinstance(value, str) and value.count(":") == 1:
        pools = zip(("rollout", "train"), value.split(":"), strict=True)
        return {f"{key}.{pool}": int(devices) for pool, devices in pools}
    return {key: value}


def differing(runs: Sequence[Settings]) -> list[Difference]:
    """The settings that are not the same in all of the runs, or that operators changed in any, in the jobs' order."""
    keys = dict.fromkeys(key for run in runs for key in (*run.launched, *run.changed))
    found = []
    for key in keys:
        values = tuple(run.governs(key) for run in runs)
        told = tuple(run.told(key) for run in runs)
        if any(text != told[0] for text in told[1:]) or any(value != values[0] for value in values[1:]):
            found.append(Difference(key=key, values=values, told=told))
    return found


def flat(document: Any, prefix: str = "") -> dict[str, Any]:
    """Nested keys as dotted ones; lists and empty mappings stay values."""
    if not isinstance(document, Mapping) or not document:
        return {prefix: document} if prefix else {}
    found: dict[str, Any] = {}
    for key, value in document.items():
        found |= flat(value, f"{prefix}.{key}" if prefix else str(key))
    return found


def shown(value: Any) -> str:
    """A value as a job file would have it."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _plain(job: str) -> Any:
    """The text as YAML, whatever it says; nothing where it is not even that."""
    try:
        return plain_yaml().load(job)
    except (YAMLError, ValueError, RecursionError):  # as engine.config.files reads them
        return {}
