"""How a pool is called, and how reasons tell a time: a lease lasts minutes with a large model, milliseconds with a
small one.
"""

from __future__ import annotations

import math

POOLS = {"rollout": "RollPool", "train": "TrainPool"}
"""Home role -> what its pool is called."""


def told(seconds: float) -> str:
    """Three digits at most, in s or ms."""
    if not math.isfinite(seconds):
        return "endless"
    size = abs(seconds)
    if size >= 100:
        return f"{seconds:.0f} s"
    if size >= 10:
        return f"{seconds:.1f} s"
    if size >= 1:
        return f"{seconds:.2f} s"
    return "0 s" if size < 5e-6 else f"{1000 * seconds:.3g} ms"
