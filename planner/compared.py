"""What a comparison came to: the document of `bidirl bench`, from the results of its runs. Pure.

The same for runs that just ended and for stored ones, so that a table can be made again. A run that did not finish, or
that somebody changed on the way, is shown and counts for nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, get_args

from planner import comparison, work
from planner.comparison import Series
from planner.configurations import BASELINES, Configuration, planned_runs, pools_of
from planner.policy.leases import Direction

DIRECTIONS: tuple[str, ...] = get_args(Direction)

ENDED = ("finished", "stopped", "failed", "interrupted")
"""States of a run that is over."""

SWITCH = ("in_s", "out_s", "grad_s")


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One run of a comparison."""

    label: str
    """its configuration"""
    repeat: int
    """from 1"""
    staleness: float
    """of its job; 0 for colocated"""
    devices: int
    result: dict[str, Any]
    """its result fields"""
    problem: str | None
    """why it does not count; None when it does"""

    @property
    def throughput(self) -> float | None:
        """Tokens/s."""
        value: float | None = self.result["throughput_tokens_per_s"]
        return value


def problem_of(result: Mapping[str, Any], *, changed: bool) -> str | None:
    """Why a run does not count, None when it does. changed: somebody changed its settings while it ran."""
    if result["state"] != "finished":
        return f"{result['state']}: {result['error']}" if result["error"] else str(result["state"])
    if changed:
        return "it was changed while it ran"
    if result["throughput_tokens_per_s"] is None:
        return "it had too few steps for a throughput"
    return None


def document(comparison_id: str, plan: Mapping[str, Any], parts: Sequence[Part]) -> dict[str, Any]:
    """The fields of `bidirl bench --json`; needs at least one run.

    `cells` has an entry for every staleness; `ratios`, `best_static` and `theory` are those of the first one again.
    """
    counted = [part for part in parts if part.problem is None]
    bound = _bound(counted)
    cells = [_cell(plan, value, parts, bound) for value in plan["staleness"]]
    states = [part.result["state"] for part in parts]
    expected = planned_runs(plan)
    first = parts[0].result
    return {
        "comparison": comparison_id,
        "name": first["name"],
        "kind": first["kind"],
        "seed": first["seed"],
        "repeats": plan["repeats"],
        "confidence": comparison.CONFIDENCE,
        "runs_planned": expected,
        "runs_counted": len(counted),
        "runs_failed": sum(part.problem is not None and part.result["state"] in ENDED for part in parts),
        "complete": len(counted) == expected,
        "live": any(state not in ENDED for state in states),
        "runs": [_run(part, bound) for part in parts],
        "ratios": cells[0]["ratios"],
        "best_static": cells[0]["best_static"],
        "theory": cells[0]["theory"],
        "bound": bound,
        "cells": cells,
    }


def _run(part: Part, bound: Mapping[str, Any]) -> dict[str, Any]:
    """The result fields, the ratio to the comparison's bound, and why it does not count."""
    return {**part.result, "bound_ratio": _bound_ratio(part, bound), "not_counted": part.problem}


def _bound(counted: Iterable[Part]) -> dict[str, Any]:
    """The least work per token of any configuration on this job, each over all of its runs, and whose it was: the least
    of single runs would be the machine at its fastest moment."""
    found: dict[tuple[str, float], list[float]] = {}
    for part in counted:
        least = work.device_s_per_token(part.result["work"])
        if least is not None:
            found.setdefault((part.label, part.staleness), []).append(least)
    means = {key: sum(values) / len(values) for key, values in found.items()}
    of = min(means, key=means.__getitem__, default=None)
    return {
        "device_s_per_token": means[of] if of is not None else None,
        "label": of[0] if of is not None else None,
        "staleness": of[1] if of is not None else None,
    }


def _bound_ratio(part: Part, bound: Mapping[str, Any]) -> float | None:
    return work.bound_ratio(part.throughput, part.devices, bound["device_s_per_token"])


@dataclass(frozen=True, slots=True, kw_only=True)
class _Cell:
    """The runs of one staleness by configuration, colocated among them."""

    labels: tuple[str, ...]
    repeats: int
    parts: dict[str, list[Part]]
    """label -> its runs"""
    series: dict[str, Series]
    """label -> throughputs of the runs that count"""

    def counted(self, label: str) -> list[Part]:
        """Runs of this configuration that count."""
        return [part for part in self.parts[label] if part.problem is None]

    def of_arm(self, arm: str, *, other: bool = False) -> dict[str, Series]:
        """Configurations of this arm, or of every other one."""
        return {
            label: series
            for label, series in self.series.items()
            if (Configuration.parse(label).arm == arm) is not other
        }

    def ratio(self, label: str, over: str | None) -> dict[str, Any]:
        """One configuration over another, with the reason where a repeat is missing."""
        if over is None or (over == label and not self.series[label]):
            return _no_ratio(self.repeats, "nothing to compare with ran to its end")
        if over == label:
            return _no_ratio(self.repeats, "it is what the others are compared with") | {"of": over, "mean": 1.0}
        ours, theirs = self.series[label], self.series[over]
        found = comparison.ratio(ours, theirs)
        each = [comparison.ratio(_only(ours, repeat), _only(theirs, repeat)) for repeat in self._repeats]
        missing = [
            f"repeat {repeat}: {self._problem(name, repeat)}"
            for repeat, of_repeat in zip(self._repeats, each, strict=True)
            if of_repeat is None
            for name in (label, over)
            if repeat not in self.series[name]
        ]
        return {
            "of": over,
            "mean": found.mean if found else None,
            "low": found.low if found else None,
            "high": found.high if found else None,
            "pairs": found.pairs if found else 0,
            "per_repeat": [one.mean if one else None for one in each],
            "reason": "; ".join(missing) or None,
        }

    @property
    def _repeats(self) -> range:
        return range(1, self.repeats + 1)

    def _problem(self, label: str, repeat: int) -> str:
        found = next((part.problem for part in self.parts[label] if part.repeat == repeat), None)
        return f"{label} {found or 'did not run'}"


def _no_ratio(repeats: int, reason: str) -> dict[str, Any]:
    nothing = dict.fromkeys(("of", "mean", "low", "high"))
    return {**nothing, "pairs": 0, "per_repeat": [None] * repeats, "reason": reason}


def _only(series: Series, repeat: int) -> Series:
    return {repeat: series.get(repeat)}


def _cell(plan: Mapping[str, Any], staleness: float, parts: Sequence[Part], bound: Mapping[str, Any]) -> dict[str, Any]:
    labels = tuple(plan["labels"])
    by_label: dict[str, list[Part]] = {
        label: [
            part
            for part in parts
            if part.label == label and (part.staleness == staleness or Configuration.parse(label).arm == "colocated")
        ]
        for label in labels
    }
    cell = _Cell(
        labels=labels,
        repeats=int(plan["repeats"]),
        parts=by_label,
        series={
            label: {part.repeat: part.throughput for part in found if part.problem is None}
            for label, found in by_label.items()
        },
    )
    baseline = comparison.fastest({label: cell.series[label] for label in BASELINES})
    return {
        "staleness": staleness,
        "better_baseline": baseline,
        "ratios": {label: _figures(cell, label, baseline, bound) for label in labels},
        "best_static": _best_static(cell, plan),
        "theory": _theory(cell, baseline, str(plan["partition"])),
    }


def _figures(cell: _Cell, label: str, baseline: str | None, bound: Mapping[str, Any]) -> dict[str, Any]:
    """One configuration: what it is, what it reached, and its ratios over the others."""
    configuration = Configuration.parse(label)
    results = [part.result for part in cell.counted(label)]
    other = comparison.fastest(cell.of_arm(configuration.arm, other=True))
    return {
        "arm": configuration.arm,
        "consume": configuration.consume,
        "partition": results[0]["partition"] if results else None,
        "counted": len(results),
        "not_counted": len(cell.parts[label]) - len(results),
        "throughput_tokens_per_s": _told(comparison.speed(cell.series[label])),
        "over": {
            **{name: cell.ratio(label, name) for name in BASELINES},
            "better_baseline": cell.ratio(label, baseline),
            "best_other_arm": cell.ratio(label, other),
        },
        "step_s": _spread(_mean(result["step_s"]) for result in results),
        "idle_fraction": _spread(result["idle"]["fraction"] for result in results),
        "bound_ratio": _spread(_bound_ratio(part, bound) for part in cell.counted(label)),
        "leases": {
            direction: {
                name: _spread(_lease_count(result["leases"][direction], name) for result in results)
                for name in ("admitted", "refused", "unused")
            }
            for direction in DIRECTIONS
        },
        "switch": {name: _spread(result["switch"][name] for result in results) for name in SWITCH},
    }


def _lease_count(counts: Mapping[str, int], name: str) -> float:
    """Unused: admitted, and brought nothing."""
    return counts["admitted"] - counts["delivered"] if name == "unused" else counts[name]


def _best_static(cell: _Cell, plan: Mapping[str, Any]) -> dict[str, Any]:
    """The fastest no_borrow at any of the splits that ran: what a fixed partition reaches at its best."""
    static = comparison.fastest(cell.of_arm("no_borrow"))
    parts = cell.counted(static) if static is not None else []
    found = comparison.speed(cell.series[static]) if static is not None else None
    return {
        "label": static,
        "partition": parts[0].result["partition"] if parts else None,
        "consume": Configuration.parse(static).consume if static is not None else None,
        "throughput_tokens_per_s": found.mean if found else None,
        "chosen_by": plan["split"]["chosen_by"],
        "why": plan["split"]["why"],
        "run_ids": [part.result["run_id"] for part in parts],
        "ratios": {label: cell.ratio(label, static) for label in cell.labels},
    }


def _theory(cell: _Cell, baseline: str | None, partition: str) -> dict[str, Any]:
    """The stages' work as the better baseline measured it, x, and the most that lending can win."""
    works = [part.result["work"] for part in cell.counted(baseline)] if baseline is not None else []
    rollout, train = (
        comparison.spread(each[f"{stage}_s_per_1000_tokens"] for each in works) for stage in ("rollout", "train")
    )
    known = work.work(rollout.mean, train.mean, work.PER_TOKENS) if rollout and train else dict(work.UNKNOWN)
    own = pools_of(partition, place="partition")
    limits = [
        comparison.lending_limit(
            rollout_work=rollout.mean, train_work=train.mean, rollout_devices=devices[0], train_devices=devices[1]
        )
        if rollout and train
        else None
        for devices in ((1, 1), own)
    ]
    return {**known, "limit_at_1_1": limits[0], "partition": "{}:{}".format(*own), "limit": limits[1]}


def _spread(values: Iterable[float | None]) -> dict[str, Any] | None:
    return _told(comparison.spread(values))


def _told(found: comparison.Spread | None) -> dict[str, Any] | None:
    return asdict(found) if found else None


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None
