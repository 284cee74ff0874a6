"""Fits `seconds = sum of amount * cost` to the units of a run: how long a step, a sequence, a token, a chunk take.

Costs are never negative. What the units cannot tell apart stays as it was last known: where two amounts hardly vary
against each other (all batches equally full), the earlier division between their costs is kept and only the total is
fitted. One odd unit moves the fit by no more than one that is three usual errors off. Every unit is predicted before it
is entered, so the reported errors are those of forecasts. It refuses amounts and seconds that are no measurement.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from planner.drift import MEDIAN_TO_DEVIATION
from planner.fitting import ERRORS_KEPT, Errors, summary

DECAY = 0.995
"""Weight of a unit per unit of age: about 400 effective ones, since a unit may be a few decode steps of one replica and
a hundred of them not a second of a run."""

WINDOW = 512
"""Units kept: the oldest would weigh 8% of the newest."""

REFIT_SHARE, MOST_BETWEEN = 8, 16
"""A fit takes 0.4 ms: it is made anew when an eighth more units are there, and after 16 at the latest."""

ROUNDS = 3
"""Times that the weights of odd units and the scale of all are found anew."""

CLIP = 3.0
"""Usual errors above which a unit's pull grows no more."""

NOISE_FLOOR = 0.02
"""Relative error that counts as usual even where errors are smaller: below, the clock and the clip would fight."""

SHARE_DOUBT = 0.3
"""Standard deviation of what is known beforehand of each cost's share of the time: nearly nothing, so that a few units
that do vary are believed, and what none of them tells stays put."""

SHARE_TOLD = 0.05
"""A cost whose share the units tell to within this is what is known of it from then on."""

RECENT = 0.3
"""Weight of the newest unit in the factor of the last few: on shared cores speeds wander by a tenth within seconds,
which a fit to hundreds of units does not follow."""

MOST_RECENT = 2.0
"""Largest factor, either way, that one unit says."""

Array = NDArray[np.float64]


class LinearFit:
    """Costs of one kind of unit, in seconds per amount."""

    def __init__(
        self,
        *,
        shares: Sequence[float],
        floors: Sequence[float],
        minimum: int,
        given: Sequence[float] | None = None,
    ) -> None:
        """`shares`: how the time divides between the amounts where nothing tells it. `floors`: least share of each.
        `minimum`: units before there is a fit. `given`: costs that hold until then."""
        self._shares = np.array(shares, dtype=np.float64)
        self._floors = np.array(floors, dtype=np.float64)
        self._minimum = minimum
        self._known: Array | None = None if given is None else np.array(given, dtype=np.float64)
        self._costs = self._known
        self._rows = np.empty((2 * WINDOW, len(shares) + 1))
        self._end = 0
        self._count = self._fitted_at = 0
        self._seen = np.zeros(len(shares), dtype=bool)
        self._noise: float | None = None
        self._factor = 1.0
        """Seconds of the last few units over their usual ones."""
        self._errors: deque[float] = deque(maxlen=ERRORS_KEPT)
        self._ages = DECAY ** np.arange(WINDOW - 1, -1, -1, dtype=np.float64)

    def observe(self, amounts: Sequence[float], seconds: float) -> None:
        """Predict the unit, keep the error, enter the unit. Raises ValueError for what is no measurement."""
        if not 0 < seconds < math.inf:
            raise ValueError(f"seconds of a unit must be a number above 0, got {seconds!r}")
        if not all(0 <= amount < math.inf for amount in amounts) or not any(amounts):
            raise ValueError(f"amounts of a unit must be numbers >= 0 and one above 0, got {tuple(amounts)!r}")
        if self._costs is not None:
            usual = sum(amount * cost for amount, cost in zip(amounts, self._costs.tolist(), strict=True))
            self._errors.append(abs(usual * self._factor - seconds) / seconds)
            ratio = min(max(seconds / usual, 1 / MOST_RECENT), MOST_RECENT) if usual > 0 else 1.0
            self._factor = self._factor ** (1 - RECENT) * ratio**RECENT
        if self._end == len(self._rows):
            self._rows[:WINDOW] = self._rows[WINDOW:]
            self._end = WINDOW
        self._rows[self._end, :-1] = amounts
        self._rows[self._end, -1] = seconds
        self._end += 1
        self._count += 1
        if self._count >= max(self._minimum, self._fitted_at + min(MOST_BETWEEN, self._fitted_at // REFIT_SHARE)):
            self._fit()

    @property
    def costs(self) -> tuple[float, ...] | None:
        """Seconds per amount: the fit, else what was given; None with neither."""
        return None if self._costs is None else tuple(self._costs.tolist())

    @property
    def costs_now(self) -> tuple[float, ...]:
        """The costs at the speed of the last few units. Raises ValueError where there are none."""
        if self._costs is None:
            raise ValueError("no cost was measured or given")
        return tuple((self._costs * self._factor).tolist())

    @property
    def measured(self) -> bool:
        """There is a fit."""
        return self._fitted_at > 0

    @property
    def count(self) -> int:
        """Units seen."""
        return self._count

    @property
    def noise(self) -> float | None:
        """Usual relative error of a unit on the fitted ones, as a standard deviation; None without a fit."""
        return self._noise

    @property
    def errors(self) -> Errors | None:
        """Errors of the last forecasts, each made before its unit was entered; None before there was one."""
        return summary(list(self._errors))

    def seen(self, place: int) -> bool:
        """Some unit of a fit had this amount."""
        return bool(self._seen[place])

    def _fit(self) -> None:
        rows = self._rows[max(0, self._end - WINDOW) : self._end]
        x, y = rows[:, :-1], rows[:, -1]
        age = self._ages[-len(rows) :]
        # a first fit is relative to the measured seconds, which itself keeps an odd long unit small
        costs, predicted, weight = self._costs, y, age
        noise = NOISE_FLOOR
        if costs is not None:
            predicted, noise, weight = _weighed(x, y, age, costs)
        for _ in range(ROUNDS):
            z, target = x / predicted[:, None], y / predicted
            costs = self._solve(z, target, weight, noise)
            predicted, noise, weight = _weighed(x, y, age, costs)
        assert costs is not None, "there is at least one round"
        # hiccups are all on one side: the usual unit is faster than the mean one, and it is the time of all that counts
        clipped = np.minimum(y / predicted, 1 + CLIP * noise)
        costs = costs * float(age @ (predicted * clipped) / (age @ predicted))
        self._costs, self._noise, self._fitted_at = costs, noise, self._count

    def _solve(self, z: Array, target: Array, weight: Array, noise: float) -> Array:
        """The costs for which the shares of the time come closest to all of it, near to what is known."""
        weighted = z * weight[:, None]
        gram, moment = weighted.T @ z, weighted.T @ target
        scale = np.sqrt(np.diag(gram) / weight.sum())
        active = np.flatnonzero(scale > 0)
        self._seen |= scale > 0
        if self._known is None:
            mean = weighted.sum(axis=0) / weight.sum()
            self._known = np.divide(self._shares, mean, out=np.zeros_like(mean), where=mean > 0)
        known = self._known * _factor(gram, moment, self._known)
        scale = scale[active]
        gram = gram[np.ix_(active, active)] / np.outer(scale, scale)
        doubt = (noise / SHARE_DOUBT) ** 2
        shares = _at_least(
            gram + doubt * np.eye(len(active)),
            moment[active] / scale + doubt * known[active] * scale,
            self._floors[active],
        )
        costs = known.copy()
        costs[active] = shares / scale
        variance = np.diag(np.linalg.inv(gram + 1e-9 * np.trace(gram) * np.eye(len(active)))) * noise**2
        told = active[variance < SHARE_TOLD**2]
        self._known = known
        self._known[told] = costs[told]
        return costs


def _weighed(x: Array, y: Array, age: Array, costs: Array) -> tuple[Array, float, Array]:
    """Predicted seconds, the usual relative error, and weights that an odd unit loses."""
    # a prediction of nearly nothing would make the unit's relative error anything
    predicted = np.maximum(x @ costs, 0.05 * y)
    errors = np.abs(y / predicted - 1)
    noise = max(NOISE_FLOOR, MEDIAN_TO_DEVIATION * float(np.median(errors)))
    return predicted, noise, age * np.minimum(1.0, CLIP * noise / np.maximum(errors, 1e-12))


def _factor(gram: Array, moment: Array, costs: Array) -> float:
    """What these costs have to be multiplied with to come closest."""
    size = float(costs @ gram @ costs)
    return float(costs @ moment) / size if size > 0 else 1.0


def _at_least(gram: Array, moment: Array, floors: Array) -> Array:
    """The minimum of the quadratic form with every coordinate at its floor or above: the worst is put there first."""
    free = np.ones(len(floors), dtype=bool)
    found = floors.copy()
    while free.any():
        rest = moment[free] - gram[np.ix_(free, ~free)] @ floors[~free]
        solution = np.linalg.solve(gram[np.ix_(free, free)], rest)
        below = solution - floors[free]
        if below.min() >= 0:
            found[free] = solution
            break
        free[np.flatnonzero(free)[below.argmin()]] = False
    return found
