"""Made-up comparisons as docs/measured has them, through the code that makes the real ones. For tests only."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from planner import compared
from tests.engine.comparisons import make_part, make_plan
from tests.report import trimming
from tests.report.trimming import Document

ABOUT: Document = {"date": "2026-01-02", "commit": "abc1234", "cores": 2, "cpu": "Made-up CPU"}

NO_LEASES: dict[str, dict[str, int]] = {
    direction: {"admitted": 0, "refused": 0, "delivered": 0} for direction in ("rollout_on_train", "train_on_rollout")
}

Speeds = Mapping[str, float | None]
"""Label -> tokens/s; None: its run failed."""


def make_comparison(
    name: str,
    speeds: Mapping[float, Speeds],
    *,
    kind: str = "cpu",
    partition: str = "1:1",
    repeats: int = 1,
    more: Document | None = None,
    **overrides: Any,
) -> Document:
    """Staleness -> speeds, the same in every repeat but for one percent; `more` is added to every run that counts."""
    rollout, train = (int(devices) for devices in partition.split(":"))
    labels = list(dict.fromkeys(label for found in speeds.values() for label in found))
    parts = []
    for staleness, found in speeds.items():
        for label, speed in found.items():
            fields: dict[str, Any] = {
                "name": name,
                "kind": kind,
                "idle": {"fraction": 0.25, "by_cause": {"staleness_cap": 0.25}},
            }
            fields |= {"steps": 20, "tokens": 1000, "utilisation": 0.7, "staleness": staleness}
            if label != "colocated":
                fields["partition"] = {"rollout": rollout, "train": train}
            if speed is None:
                fields |= {"state": "failed", "problem": "failed: a worker of /home/someone died"}
            for repeat in range(1, repeats + 1):
                reached = None if speed is None else speed * 1.01 ** (repeat - 1)
                part = make_part(label, repeat, reached, **(fields | overrides))
                part.result["staleness"] = staleness
                parts.append(part)
    plan = make_plan(*labels, repeats=repeats, staleness=list(speeds), partition=partition)
    document = compared.document("bench-1", plan, parts)
    added = {run["run_id"]: more or {} for run in document["runs"] if run["not_counted"] is None}
    found = trimming.comparison(document, command=f"bidirl bench jobs/{name}.yaml", more=added)
    return json.loads(json.dumps(found, allow_nan=False))  # as a file gives it back


def make_section(*comparisons: Document, **more: Any) -> Document:
    return {**ABOUT, "comparisons": list(comparisons), **more}


def make_scale(*, longest_pass_s: float = 0.1, spans_dropped: int = 0) -> Document:
    run = {
        "state": "finished",
        "steps": 6,
        "throughput_tokens_per_s": 90_000.0,
        "idle": {"fraction": 0.1, "by_cause": {}},
        "engine": {"cpu_fraction": 0.2, "ray_fraction": 0.1, "longest_pass_s": longest_pass_s},
    }
    engine = {"spans_dropped": spans_dropped, "rows_written": 12_345}
    return {**ABOUT, "command": "bidirl run jobs/emulated_16.yaml", "devices": 256, "run": run, "engine": engine}
