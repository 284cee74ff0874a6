"""Reads the stored sections: cells, ratios over any other configuration, means over cells. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from storage.words import DIRECTIONS
from tests.report.trimming import Document

OURS = "bidirectional"
BASELINES = ("no_borrow", "no_borrow:stream")

Ratio = Mapping[str, Any]
"""of, mean, low, high, as a bench document has it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """A job on a split at a staleness, with every configuration that ran there."""

    job: str
    emulated: bool
    split: str
    """devices of the pools, such as 4:12"""
    staleness: float
    figures: Document
    """the cell of the comparison"""
    runs: Sequence[Document]
    """of the whole comparison"""

    @property
    def name(self) -> str:
        """What it is called in a table."""
        label = "EMULATED " if self.emulated else ""
        return f"{label}{self.job} {self.split}, s={self.staleness:g}"

    @property
    def labels(self) -> list[str]:
        return list(self.figures["ratios"])

    def speed(self, label: str) -> float | None:
        """Tokens/s; None where no run counts."""
        found = self.figures["ratios"].get(label)
        spread = found["throughput_tokens_per_s"] if found else None
        return spread["mean"] if spread else None

    def over(self, label: str, what: str) -> Ratio:
        """Of a configuration over no_borrow, better_baseline or best_other_arm."""
        found: Ratio = self.figures["ratios"][label]["over"][what]
        return found

    def ratio(self, label: str, other: str | None) -> float | None:
        """Mean speed over mean speed, which is all there is with one repeat; None where either is missing."""
        ours, theirs = self.speed(label), self.speed(other) if other is not None else None
        return ours / theirs if ours and theirs else None

    @property
    def baseline(self) -> str | None:
        """The better no_borrow."""
        found: str | None = self.figures["better_baseline"]
        return found

    def leases(self, label: str, name: str) -> float | None:
        """Mean count over the runs, both directions together."""
        counts = self.figures["ratios"][label]["leases"]
        known = [counts[direction][name]["mean"] for direction in DIRECTIONS if counts[direction][name] is not None]
        return sum(known) if known else None

    def runs_of(self, label: str) -> list[Document]:
        """Its runs that count."""
        return [
            run
            for run in self.runs
            if run["label"] == label and run["staleness"] == self.staleness and run["not_counted"] is None
        ]


def cells(section: Document | None, *, job: str | None = None) -> list[Cell]:
    """Of all comparisons of a section, by job in their order, then split and staleness."""
    found = [
        Cell(
            job=comparison["name"],
            emulated=comparison["kind"] == "emulated",
            split=cell["theory"]["partition"],
            staleness=cell["staleness"],
            figures=cell,
            runs=comparison["runs"],
        )
        for comparison in (section["comparisons"] if section else [])
        for cell in comparison["cells"]
        if job is None or comparison["name"] == job
    ]
    jobs = list(dict.fromkeys(cell.job for cell in found))
    return sorted(found, key=lambda cell: (jobs.index(cell.job), int(cell.split.split(":")[0]), cell.staleness))


def geometric_mean(values: Iterable[float | None]) -> tuple[float | None, int]:
    """Of those that are known, and how many they are."""
    known = [value for value in values if value is not None]
    return (math.exp(math.fsum(map(math.log, known)) / len(known)) if known else None), len(known)


@dataclass(frozen=True, slots=True, kw_only=True)
class Distance:
    """How far the simulator is from one emulated run."""

    where: str
    """arm, split and staleness"""
    label: str
    throughput: float | None
    """simulated over emulated, less 1"""
    idle_points: float
    """the largest difference of the share of one cause of idle time, in percentage points"""
    cause: str
    """which"""


def distances(section: Document | None) -> Iterator[Distance]:
    """Of every emulated run that counts and was simulated."""
    for comparison in section["comparisons"] if section else []:
        split = comparison["cells"][0]["theory"]["partition"]
        for run in comparison["runs"]:
            if run["not_counted"] is None and "simulated" in run:
                yield _distance(run, f"{run['label']} {comparison['name']} {split}, s={run['staleness']:g}")


def _distance(run: Document, where: str) -> Distance:
    simulated = run["simulated"]
    ours, theirs = simulated["throughput_tokens_per_s"], run["throughput_tokens_per_s"]
    causes = sorted({*run["idle"]["by_cause"], *simulated["idle"]["by_cause"]})
    points = {
        cause: 100 * (simulated["idle"]["by_cause"].get(cause, 0.0) - run["idle"]["by_cause"].get(cause, 0.0))
        for cause in causes
    }
    cause = max(points, key=lambda name: abs(points[name]), default="none")
    return Distance(
        where=where,
        label=run["label"],
        throughput=ours / theirs - 1 if ours and theirs else None,
        idle_points=points.get(cause, 0.0),
        cause=cause,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """The planner's split against the fastest one that was measured, for one arm at staleness 1."""

    arm: str
    chosen: str | None
    best: str | None
    """None where nothing was measured"""
    speeds: Mapping[str, float]
    """split -> tokens/s; of no_borrow the better of its two ways to consume"""

    @property
    def ratio(self) -> float | None:
        """What is reached with the choice, of the best."""
        reached = self.speeds.get(self.chosen) if self.chosen is not None else None
        return reached / self.speeds[self.best] if reached and self.best is not None else None


def choices(section: Document | None, *, job: str = "emulated_16") -> list[Choice]:
    """For every arm that was planned."""
    found = []
    for arm, chosen in (section["planned"] if section else {}).items():
        speeds: dict[str, float] = {}
        for cell in cells(section, job=job):
            known = [speed for label in _ways(arm) if (speed := cell.speed(label))]
            if cell.staleness == 1 and known:
                speeds[cell.split] = max(known)
        best = max(speeds, key=speeds.__getitem__, default=None)
        found.append(Choice(arm=arm, chosen=chosen, best=best, speeds=speeds))
    return found


def _ways(arm: str) -> tuple[str, ...]:
    return BASELINES if arm == "no_borrow" else (arm,)
