"""The regimes of the scheduling study, read from `regimes.yaml`."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

from planner.profile import Lengths, Profile, RolloutSpeed, SwitchCosts, TrainSpeed
from planner.simulator.setup import Setup

FILE = Path(__file__).with_name("regimes.yaml")

LINEAR_DRIFT = 0.3
"""Growth of the log of lengths over a run where a regime says nothing else."""

STEPS = 14
"""Steps of a run where a regime says nothing else."""

REFERENCE_COLUMNS = (
    "no_borrow",
    "no_borrow streaming",
    "opportunistic",
    "bidirectional_paper",
    "bidirectional",
    "zero-cost",
    "fluid",
)
"""What the figures of `reference` are, in order."""


@lru_cache
def document() -> dict[str, Any]:
    """The file as it is."""
    loaded: dict[str, Any] = YAML(typ="safe", pure=True).load(FILE.read_text(encoding="utf-8"))
    return loaded


def names(*, own: bool = True) -> list[str]:
    """Regimes in the order of the file; `own`: with those that are ours."""
    return [*document()["regimes"], *(document()["own"] if own else ())]


def reference(name: str) -> dict[str, float] | None:
    """What the reference reached in a regime; None where it was not run."""
    figures = document()["reference"].get(name)
    return None if figures is None else dict(zip(REFERENCE_COLUMNS, figures, strict=True))


def setup_of(name: str, **changes: Any) -> Setup:
    """The run of a regime; `changes` are fields of Setup. Raises KeyError for a regime that does not exist."""
    regime = {**document()["regimes"], **document()["own"]}[name]
    values = _merge(document()["base"], document().get(regime.get("with", ""), {}))
    values = _merge(values, {key: value for key, value in regime.items() if key != "with"})
    rollout_devices, train_devices = map(int, values["partition"].split(":"))
    replicas = values.get("replicas", {"rollout": 1, "train": 4})
    fields: dict[str, Any] = {
        "profile": _profile(values),
        "arm": "no_borrow",
        "streaming": False,
        "staleness": values["staleness"],
        "rollout_devices": rollout_devices,
        "train_devices": train_devices,
        "rollout_replica_size": replicas["rollout"],
        "train_replica_size": replicas["train"],
        "prompts_per_step": values["prompts_per_step"],
        "steps": values.get("steps", STEPS),
    }
    return Setup(**(fields | changes))


def _profile(values: dict[str, Any]) -> Profile:
    switch = values["switch"]
    return Profile(
        rollout=RolloutSpeed(**values["rollout"]),
        train=TrainSpeed(**values["train"]),
        optimizer_s=values["optimizer_s"],
        weight_sync_s=values["weight_sync_s"],
        rollout_on_train=SwitchCosts(**switch["rollout_on_train"]),
        train_on_rollout=SwitchCosts(**switch["train_on_rollout"]),
        response_tokens=Lengths(**{"linear_drift": LINEAR_DRIFT, **values["response_tokens"]}),
        prompt_tokens=values["prompt_tokens"],
        noise=values["noise"],
    )


def _merge(below: dict[str, Any], above: dict[str, Any]) -> dict[str, Any]:
    """The values below, with those above put over them, at every depth."""
    merged = dict(below)
    for key, value in above.items():
        merged[key] = _merge(merged[key], value) if isinstance(value, dict) and key in merged else value
    return merged
