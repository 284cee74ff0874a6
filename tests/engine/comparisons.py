"""Runs of a comparison with everything filled in, so that a test names only what it is about."""

from __future__ import annotations

from typing import Any

from planner import work
from planner.compared import Part
from planner.configurations import Configuration

LEASES = {"admitted": 6, "refused": 2, "delivered": 5}


def make_result(label: str = "no_borrow", **overrides: Any) -> dict[str, Any]:
    """A finished run's result, as far as a comparison reads it; `rollout_s` and `train_s` are its work."""
    configuration = Configuration.parse(label)
    lends = configuration.arm not in ("no_borrow", "colocated")
    fields: dict[str, Any] = {
        "run_id": f"run-{label}",
        "name": "demo",
        "kind": "cpu",
        "state": "finished",
        "error": None,
        "seed": 0,
        "arm": configuration.arm,
        "consume": configuration.consume,
        "partition": None if configuration.arm == "colocated" else {"rollout": 1, "train": 1},
        "comparison": {"id": "bench-1", "label": label, "repeat": 1},
        "throughput_tokens_per_s": 100.0,
        "step_s": [1.0, 3.0],
        "idle": {"fraction": 0.25},
        "leases": {
            direction: dict(LEASES) if lends else dict.fromkeys(LEASES, 0)
            for direction in ("rollout_on_train", "train_on_rollout")
        },
        "switch": {"in_s": 0.01, "out_s": 0.02, "grad_s": None},
        "work": work.work(overrides.pop("rollout_s", 9.0), overrides.pop("train_s", 6.0), 1000),
        "bound_ratio": None,
    }
    return fields | overrides


def make_part(label: str, repeat: int = 1, throughput: float | None = 100.0, **overrides: Any) -> Part:
    """A run of two devices; `problem` and `staleness` of the part, the rest of its result."""
    problem = overrides.pop("problem", None)
    staleness = overrides.pop("staleness", 0.0 if label == "colocated" else 1.0)
    result = make_result(
        label,
        run_id=f"{label}-{staleness:g}-{repeat}",
        throughput_tokens_per_s=throughput,
        comparison={"id": "bench-1", "label": label, "repeat": repeat},
        **overrides,
    )
    return Part(label=label, repeat=repeat, staleness=staleness, devices=2, result=result, problem=problem)


def make_plan(*labels: str, repeats: int = 3, **overrides: Any) -> dict[str, Any]:
    """The plan of a comparison on 1:1 at staleness 1."""
    fields: dict[str, Any] = {
        "repeats": repeats,
        "labels": list(labels),
        "staleness": [1.0],
        "partition": "1:1",
        "split": {"chosen_by": "only_split", "why": "two devices can be split in one way only"},
    }
    return fields | overrides
