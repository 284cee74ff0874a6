"""Says when a stage's times have changed for good: a two-sided CUSUM test on the signed errors of its predictions.

It knows errors and their order only: no clock, no model, and it forgets nothing by itself beyond its own sums; what a
change means for a fit is decided in `planner.fitting`. It refuses an error that is no finite number.

The errors are measured in units of their own usual size, so that one set of constants serves quiet trainers and
rollouts with long tails. False alarms, measured on 400,000 steady observations each: none at 10% noise (normal or
lognormal), 1 in 100,000 at 25% lognormal noise, 1 in 16,000 at 40%. Below an online fit, whose own doubt about small
loads lasts for some units: about 1 in 40,000 at 10% noise and loads from 0.1 to 64.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass
from statistics import median
from typing import Literal

Direction = Literal["slower", "faster"]

NOISE_FLOOR = 0.1
"""Relative error that counts as usual even where errors are smaller: a change of a tenth changes no decision worth
forgetting all samples for, and the age decay of the fit follows it anyway."""

SLACK = 1.0
"""Usual errors taken off every error before it is added: what a change must exceed to be seen. 1 is half of the shift
of 2 (20% at the noise floor) that the test is tuned to find soonest."""

THRESHOLD = 8.0
"""Sum of what is left at which a change is announced. Lower finds a change an observation or two sooner and raises a
false alarm thousands of times more often."""

LIMIT = 3.0
"""Largest error that is believed, in usual errors: one straggler, however long, adds 2 of the 8, so a change is never
announced by fewer than 4 units."""

SCALE_WINDOW = 100
"""Errors whose usual size is measured: enough for 10% accuracy, few enough to follow a job through its phases."""

SCALE_MINIMUM = 20
"""Errors before their size is measured at all; until then the noise floor stands in."""

MEDIAN_TO_DEVIATION = 1.4826
"""Standard deviation of a normal distribution over the median of its size: outliers do not move a median."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What the test says after one observation."""

    drifted: bool
    """a change is announced with this observation; the test has started anew"""
    direction: Direction | None = None
    """what the stage became; None without a change"""
    since: int | None = None
    """number of the first observation after the change, counted from 0 over the test's life; None without a change"""


STEADY = Verdict(drifted=False)


class DriftTest:
    """Two one-sided sums that only lasting errors of one sign can raise to the threshold."""

    def __init__(self) -> None:
        self._observed = 0
        self._sums: dict[Direction, float] = {"slower": 0.0, "faster": 0.0}
        self._since: dict[Direction, int] = {"slower": 0, "faster": 0}
        self._sizes: deque[float] = deque(maxlen=SCALE_WINDOW)

    @property
    def observed(self) -> int:
        """Errors seen so far."""
        return self._observed

    def observe(self, error: float) -> Verdict:
        """Enter one signed relative error, seconds / predicted - 1: above 0 is slower. Raises ValueError if not finite.

        At 10% noise a lasting change of 30% is announced after 6 observations in the median and 20 at most (measured),
        one of 20% after 10 in the median; below 10% never, and an online fit may follow 20% before it is announced.
        """
        if not math.isfinite(error):
            raise ValueError(f"a relative error must be a finite number, got {error!r}")
        size = max(-LIMIT, min(LIMIT, error / self._scale()))
        verdict = STEADY
        signs: tuple[tuple[Direction, float], ...] = (("slower", size), ("faster", -size))
        for direction, signed in signs:
            if self._sums[direction] == 0:
                self._since[direction] = self._observed
            self._sums[direction] = max(0.0, self._sums[direction] + signed - SLACK)
            if self._sums[direction] >= THRESHOLD:
                verdict = Verdict(drifted=True, direction=direction, since=self._since[direction])
        self._observed += 1
        self._sizes.append(abs(error))
        if verdict.since is not None:
            self._start_anew(verdict.since)
        return verdict

    def _scale(self) -> float:
        if len(self._sizes) < SCALE_MINIMUM:
            return NOISE_FLOOR
        return max(NOISE_FLOOR, MEDIAN_TO_DEVIATION * median(self._sizes))

    def _start_anew(self, since: int) -> None:
        """Errors against the model of before the change say nothing of the noise after it."""
        for _ in range(min(self._observed - since, len(self._sizes))):
            self._sizes.pop()
        self._sums = {"slower": 0.0, "faster": 0.0}
