"""Runs beside each other: their key figures, each against a baseline. Pure arithmetic on result fields.

The same figures for the page and the command line, from what a run's result says. A figure that is not known is None,
and so is its ratio; a baseline of 0 has no ratio either, nor have an emulated and a real run one to each other.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

NOT_COMPARABLE = "emulated and real runs are not comparable: no difference is given between them"
"""Said beside figures of both."""

LAST_STEPS = 10
"""Steps behind the reward at the end: one step's is noise."""

Result = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One figure of a run."""

    name: str
    """As the JSON of `runs compare` names it."""
    label: str
    """For people, with its unit."""
    spec: str
    """How it is written: a format specification."""
    better: int
    """1: more is better, -1: less is, 0: neither."""
    of: Callable[[Result], float | None]
    """Its value in a result."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A figure of every run."""

    figure: Figure
    """Which one."""
    values: tuple[float | None, ...]
    """In the order of the runs; the baseline is first."""
    alike: tuple[bool, ...]
    """Whether each run is comparable with the baseline, in the same order."""

    @property
    def ratios(self) -> tuple[float | None, ...]:
        """Each over the baseline's; 1 for the baseline itself, None for what is not comparable with it."""
        return tuple(
            ratio(value, self.values[0]) if alike else None
            for value, alike in zip(self.values, self.alike, strict=True)
        )


def rows(results: Sequence[Result]) -> list[Row]:
    """Every figure that at least one run has. The first result is the baseline's."""
    alike = comparable(results)
    found = [Row(figure=f, values=tuple(f.of(result) for result in results), alike=alike) for f in FIGURES]
    return [row for row in found if any(value is not None for value in row.values)]


def comparable(results: Sequence[Result]) -> tuple[bool, ...]:
    """Whether each run may be judged against the first: what real devices took says nothing about a profile that was
    played, nor the other way."""
    played = [result.get("kind") == "emulated" for result in results]
    return tuple(each == played[0] for each in played)


def ratio(value: float | None, base: float | None) -> float | None:
    """`value` over `base`; None where either is not known, or where there is nothing to divide by."""
    return None if value is None or not base else value / base


def at(result: Result, *path: str) -> float | None:
    """A number inside a result; None where it is not known, or where an older version did not store it."""
    here: Any = result
    for name in path:
        here = here.get(name) if isinstance(here, Mapping) else None
    known = isinstance(here, int | float) and not isinstance(here, bool) and math.isfinite(here)
    return float(here) if known else None


def lost_hours(result: Result) -> float | None:
    """Idle device-hours."""
    share, device_s = at(result, "idle", "fraction"), at(result, "idle", "device_s")
    return None if share is None or device_s is None else share * device_s / 3600


def last_reward(result: Result) -> float | None:
    """Mean reward of the last `LAST_STEPS` steps that have one."""
    known = [value for value in (result.get("reward") or {}).get("per_step", ()) if value is not None][-LAST_STEPS:]
    return math.fsum(known) / len(known) if known else None


def last_accuracy(result: Result) -> float | None:
    """Held-out accuracy when it was measured last."""
    found = result.get("eval") or ()
    return at(found[-1], "accuracy") if found else None


def median_step(result: Result) -> float | None:
    """Seconds of the median step."""
    found = result.get("step_s") or ()
    return median(found) if found else None


def leases(result: Result) -> float | None:
    """Leases that brought anything, in both directions."""
    counts = [at(result, "leases", direction, "delivered") for direction in result.get("leases") or {}]
    known = [count for count in counts if count is not None]
    return math.fsum(known) if known else None


FIGURES = (
    Figure(
        name="throughput_tokens_per_s",
        label="throughput, tokens/s",
        spec=",.0f",
        better=1,
        of=lambda r: at(r, "throughput_tokens_per_s"),
    ),
    Figure(
        name="idle_fraction", label="idle share of device time", spec=".1%", better=-1,
        of=lambda r: at(r, "idle", "fraction"),
    ),
    Figure(name="lost_device_hours", label="lost device-hours", spec=",.3f", better=-1, of=lost_hours),
    Figure(
        name="structural_fraction", label="structural bubbles", spec=".1%", better=-1,
        of=lambda r: at(r, "idle", "structural_fraction"),
    ),
    Figure(
        name="residual_fraction", label="residual bubbles", spec=".1%", better=-1,
        of=lambda r: at(r, "idle", "residual_fraction"),
    ),
    Figure(name="step_s", label="median step, s", spec=",.3g", better=-1, of=median_step),
    Figure(name="steps", label="steps", spec=",.0f", better=0, of=lambda r: at(r, "steps")),
    Figure(name="tokens", label="tokens", spec=",.0f", better=0, of=lambda r: at(r, "tokens")),
    Figure(name="wall_s", label="wall time, s", spec=",.1f", better=0, of=lambda r: at(r, "wall_s")),
    Figure(name="reward_last", label=f"reward, last {LAST_STEPS} steps", spec=".3f", better=1, of=last_reward),
    Figure(name="accuracy_last", label="held-out accuracy, last", spec=".1%", better=1, of=last_accuracy),
    Figure(name="lag_max", label="largest lag, versions", spec=",.0f", better=0, of=lambda r: at(r, "lag", "max")),
    Figure(name="utilisation", label="useful share of device time", spec=".1%", better=1,
           of=lambda r: at(r, "utilisation")),
    Figure(name="bound_ratio", label="of the work bound", spec=".1%", better=1, of=lambda r: at(r, "bound_ratio")),
    Figure(name="leases_delivered", label="leases that delivered", spec=",.0f", better=0, of=leases),
    Figure(name="deaths", label="workers that died", spec=",.0f", better=-1, of=lambda r: at(r, "deaths")),
)  # fmt: skip
"""What runs are compared by, in the order in which it is shown."""
