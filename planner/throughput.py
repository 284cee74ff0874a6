"""The one definition of a run's throughput, so that the pages, the command line and the comparisons agree."""

from __future__ import annotations

import math
from collections.abc import Sequence


def throughput(steps: Sequence[tuple[float, float]], staleness: float) -> float | None:
    """Prompt plus response tokens per second over the steady part of a run (design section 8).

    `steps`: (tokens, seconds) of each consumed step in order. The first max(1, ceil(s)) steps and the last ceil(s) are
    dropped: the run fills and drains that many steps' worth of groups. None when no time is left to divide by.
    Raises ValueError for a staleness below 0.
    """
    if not staleness >= 0:
        raise ValueError(f"staleness must be a number >= 0, got {staleness!r}")
    tail = math.ceil(staleness)
    steady = steps[max(1, tail) : len(steps) - tail]
    seconds = math.fsum(duration for _, duration in steady)
    return math.fsum(tokens for tokens, _ in steady) / seconds if seconds > 0 else None
