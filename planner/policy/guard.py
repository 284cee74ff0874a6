"""The never-slower guard: a direction whose leases measurably lose time is switched off for a while, and says so.

One guard per direction. What it looks at is measured, not predicted: gain of a lease = model at the actual work without
the lease, minus the actual time (design section 7). A gate that a wrong model fools is caught here.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from planner.intervals import upper_bound
from planner.policy.wording import told

MIN_LEASES = 8
"""Leases before a verdict: with fewer, t quantiles are so wide that only a disaster shows (design section 7)."""

WINDOW_LEASES = 16
"""Leases that are remembered: twice the least, so that a small loss shows and a dozen bad ones outweigh the good."""

OFF_S = 600.0
"""Seconds that a direction stays off: a wrong one then probes with at most some 8 leases in ten minutes, and a run of
an hour still gets it back when response lengths or speeds have changed."""

CONFIDENCE = 0.9
"""Of the one-sided bound that a direction is switched off by (design section 7)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Guard:
    """What is known of one direction. A fresh one is on and has seen nothing."""

    gains_s: tuple[float, ...] = ()
    """seconds won by each of the last leases, oldest first, at most WINDOW_LEASES; emptied when it goes off"""
    off_until: float | None = None
    """seconds of the run until which the direction is off; None: it is on"""
    reason: str = "no lease has been measured"
    """one sentence with its numbers"""


def observe(guard: Guard, gain_s: float, now: float) -> Guard:
    """The guard after a lease has ended with this measured gain at `now` (s of the run).

    A lease that ends while the direction is off began before and changes nothing; after that the window is empty.
    Raises ValueError for a gain that is no number.
    """
    if not math.isfinite(gain_s):
        raise ValueError(f"a measured gain must be a number of seconds, got {gain_s!r}")
    if is_off(guard, now):
        return guard
    gains_s = (*guard.gains_s, gain_s)[-WINDOW_LEASES:]
    mean_s = math.fsum(gains_s) / len(gains_s)
    if len(gains_s) < MIN_LEASES:
        return Guard(gains_s=gains_s, reason=f"only {len(gains_s)} of {MIN_LEASES} leases have been measured")
    bound_s = upper_bound(gains_s, CONFIDENCE)
    measured = (
        f"the last {len(gains_s)} leases won {told(mean_s)} on average, with 90% confidence at most {told(bound_s)}"
    )
    if bound_s < 0:
        return Guard(off_until=now + OFF_S, reason=f"off for {told(OFF_S)}: {measured}")
    return Guard(gains_s=gains_s, reason=f"on: {measured}")


def is_off(guard: Guard, now: float) -> bool:
    """Whether no lease may be granted in this direction at `now` (s of the run)."""
    return guard.off_until is not None and now < guard.off_until
