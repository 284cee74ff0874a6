"""What a recorded run would have made under other settings: its measured throughput times the simulated ratio. Pure.

    measured --> as it was, simulated: the model's error on this run --> otherwise, simulated: expected, as wide

The model's own bias cancels in the ratio; how far it is off on the run as it was is how far to trust the rest.
"""

from __future__ import annotations

import math

from planner.whatif import Band


def error_of(measured: float | None, as_is: float | None) -> float | None:
    """Simulated over measured throughput of the run as it was, less 1; None before both are known."""
    return as_is / measured - 1 if measured and as_is else None


def expected(measured: float | None, as_is: float | None, otherwise: float | None) -> Band | None:
    """Throughput under other settings, with a band as wide as the model is off on this run, either way; None before all
    three are known."""
    error = error_of(measured, as_is)
    if error is None or not otherwise:
        return None
    assert measured
    assert as_is
    middle, factor = measured * otherwise / as_is, math.exp(abs(math.log1p(error)))
    return Band(low=middle / factor, middle=middle, high=middle * factor)
