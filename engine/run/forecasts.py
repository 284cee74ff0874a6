"""How the policy's forecasts of a step's end have erred, so that a lease is not charged for an error of the model.

A gate below s = 1 foretells when the step ends without the lease. Measured against the plain forecast, every lease of a
model that is too hopeful loses and every lease of one that is too gloomy wins. Forecasts made where nothing was lent
in the step tell that error apart from what leases do; where there are none, all forecasts are taken, each for what was
decided.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from math import isfinite
from statistics import median

from planner.policy import actions as act

KEPT = 32
"""Forecasts that count; lengths drift."""

LEAST = 4
"""Forecasts before they are corrected at all."""


@dataclass(frozen=True, slots=True)
class _Foretold:
    at: float
    end_s: float
    lent: bool


class Forecasts:
    """Of one run."""

    def __init__(self) -> None:
        self._pending: list[_Foretold] = []
        self._alone: deque[float] = deque(maxlen=KEPT)
        self._all: deque[float] = deque(maxlen=KEPT)

    def decided(self, action: act.Lend | act.Refuse, now: float) -> None:
        """A gate foretold the end of the present step: with the lease that it granted, or without any."""
        if action.alone_s is None or not isfinite(action.alone_s):
            return
        lent = isinstance(action, act.Lend)
        end_s = action.alone_s - (action.gain_s - action.cost_s if lent else 0.0)
        if end_s > 0 and isfinite(end_s):
            self._pending.append(_Foretold(now, end_s, lent))

    def step_closes(self, now: float, *, lent: bool) -> None:
        """The step's last group is trained. `lent`: some device was lent while it was being filled."""
        for one in self._pending:
            ratio = (now - one.at) / one.end_s
            self._all.append(ratio)
            if not one.lent and not lent:
                self._alone.append(ratio)
        self._pending.clear()

    @property
    def error(self) -> float:
        """What really passes for one second that is foretold; 1 while too little is known."""
        if len(self._alone) >= LEAST:
            return median(self._alone)
        return median(self._all) if len(self._all) >= LEAST else 1.0
