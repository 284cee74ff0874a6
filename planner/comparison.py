"""Comparing configurations on the same work: paired ratios, their spread, and what is the fairest to compare with.

Pure arithmetic on throughputs by repeat. Runs of one repeat follow each other closely, so that a ratio within a repeat
is free of the machine's slow drift; ratios are averaged as logarithms. What did not run to its end is None, takes no
part, and is never a zero.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from planner.intervals import mean_interval

CONFIDENCE = 0.95
"""Of every interval that is reported: the usual one, so that nobody has to ask."""

Series = Mapping[int, float | None]
"""Repeat -> tokens/s; None where its run gave none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """Some measurements of one figure."""

    mean: float
    """arithmetic or geometric, as the function says"""
    min: float
    max: float
    count: int
    """values behind it, at least 1"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ratio:
    """One configuration's throughput over another's."""

    mean: float
    """geometric mean of the ratios within a repeat"""
    low: float | None
    high: float | None
    """two-sided 95% t interval; None with fewer than two repeats"""
    pairs: int
    """repeats in which both ran to the end, at least 1"""


def spread(values: Iterable[float | None]) -> Spread | None:
    """Arithmetic mean, smallest and largest of the values that are known; None when none is."""
    known = [value for value in values if value is not None]
    if not known:
        return None
    return Spread(mean=math.fsum(known) / len(known), min=min(known), max=max(known), count=len(known))


def speed(series: Series) -> Spread | None:
    """Geometric mean, smallest and largest throughput; None when no run gave one."""
    known = list(_known(series).values())
    if not known:
        return None
    low, high = min(known), max(known)
    # rounding of the logarithms may not put the mean of equal values outside of them
    return Spread(mean=min(high, max(low, _geometric(known))), min=low, max=high, count=len(known))


def ratio(ours: Series, theirs: Series) -> Ratio | None:
    """Ours over theirs, paired within each repeat; None when no repeat has both."""
    above, below = _known(ours), _known(theirs)
    logs = [math.log(above[repeat] / below[repeat]) for repeat in sorted(above.keys() & below.keys())]
    if not logs:
        return None
    interval = mean_interval(logs, CONFIDENCE)
    low, high = (math.exp(interval[0]), math.exp(interval[1])) if interval else (None, None)
    return Ratio(mean=math.exp(math.fsum(logs) / len(logs)), low=low, high=high, pairs=len(logs))


def fastest(series: Mapping[str, Series]) -> str | None:
    """The name with the highest geometric mean over the repeats that all of them have, or over its own where they have
    none in common; the first of equals. Names without any throughput are left out; None when that leaves nothing."""
    known = {name: found for name, of_name in series.items() if (found := _known(of_name))}
    if not known:
        return None
    common = set.intersection(*(set(found) for found in known.values()))
    means = {
        name: _geometric([value for repeat, value in found.items() if not common or repeat in common])
        for name, found in known.items()
    }
    return max(means, key=means.__getitem__)


def work_ratio(rollout_work: float, train_work: float) -> float | None:
    """x: the larger stage's work over the smaller one's, at least 1; None where a stage has none."""
    if not (rollout_work > 0 and train_work > 0):
        return None
    return max(rollout_work, train_work) / min(rollout_work, train_work)


def lending_limit(*, rollout_work: float, train_work: float, rollout_devices: int, train_devices: int) -> float | None:
    """The most that any arm can gain over a no_borrow whose busier pool never waits; None where a stage has no work.

    That no_borrow takes max(w_r/g_r, w_t/g_t), no arm less than (w_r + w_t)/(g_r + g_t); on a 1:1 split their ratio is
    2x/(1+x) (design section 8). Work in device-seconds, per token or per anything.
    """
    if work_ratio(rollout_work, train_work) is None or min(rollout_devices, train_devices) < 1:
        return None
    slower = max(rollout_work / rollout_devices, train_work / train_devices)
    return slower * (rollout_devices + train_devices) / (rollout_work + train_work)


def _known(series: Series) -> dict[int, float]:
    return {repeat: value for repeat, value in series.items() if value is not None and value > 0}


def _geometric(values: Iterable[float]) -> float:
    logs = [math.log(value) for value in values]
    return math.exp(math.fsum(logs) / len(logs))
