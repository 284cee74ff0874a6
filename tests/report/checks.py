"""What the report must show for borrowing to pay, and whether it does: criteria from the stored sections. Pure.

A criterion without a measurement is not met, and says so; none is left out because it failed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from tests.report import figures
from tests.report.figures import BASELINES, OURS, Cell
from tests.report.trimming import Document

HEAVY = ("rollout_heavy", "train_heavy")

OF_LIMIT = 0.88
"""Share of 2x/(1+x) that an unbalanced job must win over no_borrow: the rest are switches, syncs and tails."""

NOT_BELOW = 0.97
"""Of the best other arm: an interval that lies below this as a whole is a loss, and not the machine's noise."""

OF_BOUND = {0.0: 0.80, 1.0: 0.90}
"""Staleness -> share of the work bound; on-policy every step waits once for the weights."""

BASELINE_SLACK = 1.05
"""Step of no_borrow over its busier stage's: a baseline that waits longer is crippled, and a win over it is none."""

LOWEST_CELL = 0.99
"""Of the better no_borrow in every emulated cell: never slower, up to what repeats differ by."""

SIMULATED_SHARE = 0.03
"""Throughput of the simulator from that of the emulated run."""

SIMULATED_POINTS = 3.0
"""Percentage points of all device time, of one cause of idle time."""

PLANNER_TIE = 0.03
"""Splits that are nearer than this are equal to the planner."""

LONGEST_PASS_S = 0.25
"""Of the engine, with its watch on every device: a quarter of a second is its heartbeat."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Criterion:
    """One thing that must hold, and what was measured."""

    section: str
    what: str
    must: str
    measured: str
    met: bool | None
    """None: there is no measurement"""


def all_of(sections: Mapping[str, Document | None]) -> dict[str, list[Criterion]]:
    """Section -> its criteria; improvements have none, since they only say what each is worth."""
    return {
        "real": list(_real(sections["real"])),
        "emulated": list(_emulated(sections["emulated"])),
        "scale": list(_scale(sections["scale"])),
    }


# -- real devices -----------------------------------------------------------------------------------------------------


def _real(section: Document | None) -> Iterator[Criterion]:
    found = figures.cells(section)
    for cell in found:
        if cell.job in HEAVY and cell.staleness == 1:
            yield _of_limit(cell)
    for cell in found:
        yield _not_below(cell)
    for cell in found:
        if cell.staleness in OF_BOUND:
            yield _of_bound(cell)
    for cell in found:
        if cell.staleness >= 1:
            yield from (_not_crippled(cell, label) for label in BASELINES)


def _of_limit(cell: Cell) -> Criterion:
    limit, mean = cell.figures["theory"]["limit_at_1_1"], cell.over(OURS, "no_borrow")["mean"]
    least = OF_LIMIT * limit if limit is not None else None
    return Criterion(
        section="real",
        what=f"{cell.name}: {OURS} over no_borrow",
        must=f"at least {OF_LIMIT:g} x 2x/(1+x) = {_number(least)}",
        measured=_number(mean),
        met=mean >= least if mean is not None and least is not None else None,
    )


def _not_below(cell: Cell) -> Criterion:
    found = cell.over(OURS, "best_other_arm")
    highest = found["mean"] if found["high"] is None else found["high"]
    return Criterion(
        section="real",
        what=f"{cell.name}: {OURS} over the best other arm",
        must=f"interval not entirely below {NOT_BELOW:g}",
        measured=f"{interval(found)} (over {found['of']})" if found["mean"] is not None else "-",
        met=highest >= NOT_BELOW if highest is not None else None,
    )


def _of_bound(cell: Cell) -> Criterion:
    found, least = cell.figures["ratios"][OURS]["bound_ratio"], OF_BOUND[cell.staleness]
    return Criterion(
        section="real",
        what=f"{cell.name}: {OURS}, share of the work bound",
        must=f"at least {least:.2f}",
        measured=_number(found["mean"] if found else None),
        met=found["mean"] >= least if found else None,
    )


def _not_crippled(cell: Cell, label: str) -> Criterion:
    """Over the steady part of its runs: the first step fills a pipeline and the last one drains it."""
    parts = [run["busy"]["steady"] for run in cell.runs_of(label) if "busy" in run]
    slack = [part["step_s"] / max(part["rollout_s"], part["train_s"]) for part in parts]
    mean = sum(slack) / len(slack) if slack else None
    return Criterion(
        section="real",
        what=f"{cell.name}: step of {label} over the busy time of its busier stage",
        must=f"at most {BASELINE_SLACK:g}",
        measured=_number(mean),
        met=mean <= BASELINE_SLACK if mean is not None else None,
    )


# -- emulated devices -------------------------------------------------------------------------------------------------


def _emulated(section: Document | None) -> Iterator[Criterion]:
    if section is None:
        return
    found = figures.cells(section)
    ratios = {cell.name: cell.over(OURS, "better_baseline")["mean"] for cell in found}
    known = {name: value for name, value in ratios.items() if value is not None}
    lowest = min(known, key=known.__getitem__, default=None)
    low = [name for name, value in known.items() if value < LOWEST_CELL]
    yield Criterion(
        section="emulated",
        what=f"{OURS} over the better no_borrow, in each of {len(ratios)} cells",
        must=f"at least {LOWEST_CELL:g}",
        measured=f"lowest {known[lowest]:.3f} ({lowest}); {len(low)} below" if lowest else "-",
        met=not low if len(known) == len(ratios) and known else None,
    )
    yield from _simulated(section)
    yield from (_planner(choice) for choice in figures.choices(section))


def _simulated(section: Document) -> Iterator[Criterion]:
    found = list(figures.distances(section))
    speeds = [each for each in found if each.throughput is not None]
    far = [each for each in speeds if abs(each.throughput or 0.0) > SIMULATED_SHARE]
    worst = max(speeds, key=lambda each: abs(each.throughput or 0.0), default=None)
    yield Criterion(
        section="emulated",
        what=f"throughput: simulator against each of {len(speeds)} emulated runs",
        must=f"within {SIMULATED_SHARE:.0%}",
        measured=f"worst {worst.throughput:+.1%} ({worst.where}); {len(far)} beyond" if worst else "-",
        met=not far if speeds else None,
    )
    far = [each for each in found if abs(each.idle_points) > SIMULATED_POINTS]
    worst = max(found, key=lambda each: abs(each.idle_points), default=None)
    yield Criterion(
        section="emulated",
        what=f"idle time by cause: simulator against each of {len(found)} emulated runs",
        must=f"within {SIMULATED_POINTS:g} points",
        measured=f"worst {worst.idle_points:+.1f} ({worst.cause}, {worst.where}); {len(far)} beyond" if worst else "-",
        met=not far if found else None,
    )


def _planner(choice: figures.Choice) -> Criterion:
    return Criterion(
        section="emulated",
        what=f"planner's split for {choice.arm}, of the best of {len(choice.speeds)} measured ones",
        must=f"at least {1 - PLANNER_TIE:.2f}",
        measured=f"{_number(choice.ratio)} ({choice.chosen}; best {choice.best})",
        met=choice.ratio >= 1 - PLANNER_TIE if choice.ratio is not None else None,
    )


# -- scale ------------------------------------------------------------------------------------------------------------


def _scale(section: Document | None) -> Iterator[Criterion]:
    if section is None:
        return
    engine, dropped = section["run"]["engine"], section["engine"]["spans_dropped"]
    longest = engine["longest_pass_s"] if engine else None
    devices = section["devices"]
    yield Criterion(
        section="scale",
        what=f"longest pass of the engine over {devices} devices",
        must=f"at most {LONGEST_PASS_S:g} s",
        measured=f"{longest:.3f} s" if longest is not None else "-",
        met=longest <= LONGEST_PASS_S if longest is not None else None,
    )
    yield Criterion(
        section="scale",
        what=f"spans of {devices} devices that were dropped",
        must="none",
        measured="-" if dropped is None else f"{dropped:,}",
        met=dropped == 0 if dropped is not None else None,
    )


def interval(found: figures.Ratio) -> str:
    """A ratio with its 95% interval; "-" where there is none, and the mean alone of one repeat."""
    if found["mean"] is None:
        return "-"
    return f"{found['mean']:.3f}" + ("" if found["low"] is None else f" [{found['low']:.3f}, {found['high']:.3f}]")


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"
