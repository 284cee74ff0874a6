"""What a window or a run lost, by cause, and which part of it comes from the split. Pure arithmetic.

Every number is a sum of exact seconds: those of the bins that are drawn, or of a whole run. A part that cannot be told
comes with the reason and never as 0.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from app.detail import EPSILON, Plan
from app.key_figures import idle_fraction, total
from planner.bubbles import measured_bubbles
from storage.records import RunRow, StepRow
from storage.words import COLUMNS, TERMINAL

FEWEST_STEPS = 3
"""Mean rates of the stages want a few whole steps: within one step either pool waits by turns."""

DeviceSums = Mapping[int, Mapping[str, float]]
"""Device -> column -> seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Structure:
    """The idle share in two parts (design, section 8), or why it has none."""

    structural: float | None = None
    """Fraction of device time that a better split would have saved."""
    residual: float | None = None
    """The rest of the idle fraction."""
    told: str = ""
    """Why there is no number, or what is to be said of it."""


def bins_inside(plan: Plan, window: tuple[float, float]) -> tuple[int, int]:
    """First bin, and the one after the last, of those that overlap a window (unix seconds); at least one bin."""
    first = int(np.floor((window[0] - plan.t0) / plan.bin_s + EPSILON))
    last = int(np.ceil((window[1] - plan.t0) / plan.bin_s - EPSILON))
    first = min(max(first, 0), plan.bins - 1)
    return first, min(max(last, first + 1), plan.bins)


def part(plan: Plan, inside: tuple[int, int]) -> Plan:
    """The plan of these bins alone."""
    return replace(plan, first=plan.first + inside[0], bins=inside[1] - inside[0])


def sums(seconds: np.ndarray) -> dict[str, float]:
    """Column -> device-seconds of all rows and bins; columns without time are left out.

    seconds: float64 [rows, bins, COLUMNS].
    """
    held = seconds.sum(axis=(0, 1))
    return {column: float(value) for column, value in zip(COLUMNS, held, strict=True) if value > 0}


def coarser(seconds: np.ndarray, plan: Plan, most: int) -> tuple[np.ndarray, Plan]:
    """The same time in at most about `most` bins, each a whole number of the plan's, aligned as those are."""
    factor = next(f * d for d in (1, 10, 100, 1000, 10_000) for f in (1, 2, 5) if plan.bins <= most * f * d)
    if factor == 1:
        return seconds, plan
    before = plan.first % factor
    bins = -(-(before + plan.bins) // factor)
    padded = np.zeros((seconds.shape[0], bins * factor, seconds.shape[2]))
    padded[:, before : before + plan.bins] = seconds
    joined = padded.reshape(seconds.shape[0], bins, factor, seconds.shape[2]).sum(axis=2)
    first = (plan.first - before) // factor
    return joined, replace(plan, bin_s=plan.bin_s * factor, first=first, bins=bins)


def steps_in(steps: Sequence[StepRow], window: tuple[float, float]) -> list[StepRow]:
    """Steps that lie wholly inside a window."""
    return [step for step in steps if window[0] <= step.t_start and step.t_end <= window[1]]


def structure(
    devices: DeviceSums,
    pools: Mapping[int, str | None],
    steps: Sequence[StepRow],
    window: tuple[float, float],
    moved_at: float | None,
) -> Structure:
    """Of a window, from what its devices did there: the rate of each pool at the pace of its busy time.

    moved_at: when the partition changed last, unix seconds; None when it never did.
    """
    if not any(pools.values()):
        return Structure(told="Without pools there is no split that could be wrong.")
    if moved_at is not None and moved_at > window[0]:
        return Structure(told="The partition changed later than this window begins, and former homes are not kept.")
    inside = steps_in(steps, window)
    if len(inside) < FEWEST_STEPS:
        return Structure(told=f"Cannot be told from fewer than {FEWEST_STEPS} whole steps; {len(inside)} lie in it.")
    idle = idle_fraction(total(devices))
    if idle is None:
        return Structure(told="No device time is known here.")
    found = measured_bubbles(devices, pools, groups=sum(s.groups for s in inside), idle_fraction=min(1.0, idle))
    if found is None:
        return Structure(told="Cannot be told: a pool did none of its own work here.")
    return Structure(structural=found.structural, residual=found.residual)


def stored_structure(run: RunRow, moved_at: float | None) -> Structure | None:
    """Of a whole run that is over, as its result has it; None while it is not known for good."""
    idle = (run.result or {}).get("idle") if run.state in TERMINAL else None
    if not isinstance(idle, dict) or idle.get("structural_fraction") is None:
        return None
    moved = "Pools as they were at the end: the partition changed while it ran." if moved_at is not None else ""
    return Structure(structural=idle["structural_fraction"], residual=idle["residual_fraction"], told=moved)
