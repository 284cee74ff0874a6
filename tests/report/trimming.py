"""What docs/measured keeps of a bench document: every run and cell, without lists by step, places or noise. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

Document = dict[str, Any]
"""A section, a comparison or a part of one, as JSON has it."""

DIGITS = 6
"""Significant ones that are stored: more than any table shows, and a file that can be read."""

COMPARISON = (
    "comparison", "name", "kind", "seed", "repeats", "runs_planned", "runs_counted", "runs_failed", "complete", "bound",
)  # fmt: skip
RUN = (
    "run_id", "state", "not_counted", "arm", "consume", "staleness", "partition", "steps", "tokens",
    "throughput_tokens_per_s", "leases", "switch", "work", "bound_ratio", "utilisation", "engine",
)  # fmt: skip
CELL_FIGURES = ("arm", "consume", "partition", "counted", "not_counted")
SPREADS = ("throughput_tokens_per_s", "step_s", "idle_fraction", "bound_ratio")
RATIO = ("of", "mean", "low", "high", "pairs", "reason")
BEST_STATIC = ("label", "partition", "consume", "throughput_tokens_per_s", "why")


def comparison(document: Mapping[str, Any], *, command: str, more: Mapping[str, Mapping[str, Any]]) -> Document:
    """A bench document in short. `more`: run id -> what telemetry adds to that run (its busy time, its simulation)."""
    return {
        "command": command,
        **{name: document[name] for name in COMPARISON},
        "cells": [_cell(cell) for cell in document["cells"]],
        "runs": [run(each) | dict(more.get(each["run_id"], {})) for each in document["runs"]],
    }


def run(result: Mapping[str, Any]) -> Document:
    """A run in short; `step_s` is the mean, and a run of a comparison says which part it has."""
    part, steps = result["comparison"], result["step_s"]
    return {
        **({"label": part["label"], "repeat": part["repeat"]} if part else {}),
        **{name: result[name] for name in RUN if name in result},
        "step_s": sum(steps) / len(steps) if steps else None,
        "idle": {name: result["idle"][name] for name in ("fraction", "by_cause")},
    }


def stored(value: Any, *, places: Sequence[str]) -> Any:
    """The same with numbers to `DIGITS` digits and without the `places` of this machine, which texts may name."""
    if isinstance(value, dict):
        return {name: stored(each, places=places) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [stored(each, places=places) for each in value]
    if isinstance(value, float):
        return float(f"{value:.{DIGITS}g}")
    if isinstance(value, str):
        for place in places:
            value = value.replace(place, "...")
    return value


def _cell(cell: Mapping[str, Any]) -> Document:
    best = cell["best_static"]
    return {
        "staleness": cell["staleness"],
        "better_baseline": cell["better_baseline"],
        "theory": cell["theory"],
        "best_static": {name: best[name] for name in BEST_STATIC} | {"ratios": _ratios(best["ratios"])},
        "ratios": {label: _figures(figures) for label, figures in cell["ratios"].items()},
    }


def _figures(figures: Mapping[str, Any]) -> Document:
    return {
        **{name: figures[name] for name in CELL_FIGURES},
        **{name: _spread(figures[name]) for name in SPREADS},
        "over": _ratios(figures["over"]),
        "leases": {
            direction: {name: _spread(found) for name, found in counts.items()}
            for direction, counts in figures["leases"].items()
        },
    }


def _ratios(found: Mapping[str, Mapping[str, Any]]) -> Document:
    return {name: {key: ratio[key] for key in RATIO} for name, ratio in found.items()}


def _spread(found: Mapping[str, Any] | None) -> Document | None:
    return None if found is None else {name: found[name] for name in ("mean", "min", "max")}
