"""The one definition of a run's throughput, so that the pages, the command line and the comparisons agree."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TypeVar

Step = TypeVar("Step")


def steady(steps: Sequence[Step], staleness: float) -> Sequence[Step]:
    """The steps that count: without the first max(1, ceil(s)) and the last ceil(s), in which a run fills and drains.

    Raises ValueError for a staleness below 0.
    """
    if not staleness >= 0:
        raise ValueError(f"staleness must be a number >= 0, got {staleness!r}")
    tail = math.ceil(staleness)
    return steps[max(1, tail) : len(steps) - tail]


def throughput(steps: Sequence[tuple[float, float]], staleness: float) -> float | None:
    """Prompt plus response tokens per second over the steady part of a run (design section 8).

    `steps`: (tokens, seconds) of each consumed step in order. The first max(1, ceil(s)) steps and the last ceil(s) are
    dropped: the run fills and drains that many steps' worth of groups. None when no time is left to divide by.
    Raises ValueError for a staleness below 0.
    """
    counted = steady(steps, staleness)
    seconds = math.fsum(duration for _, duration in counted)
    return math.fsum(tokens for tokens, _ in counted) / seconds if seconds > 0 else None
