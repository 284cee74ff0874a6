"""Response lengths of a run's last groups: their spread as `Lengths`, and the lengths themselves to draw from.

Moments of the logs; where many responses were cut at the maximum, from the quantiles below the cut. Groups come in the
order in which they finish. It refuses groups of another size.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from planner.profile import Lengths

KEPT = 512
"""Groups behind the spread: a few steps, so that drift is seen, and few enough to follow a model that learns."""

RECENT = 128
"""Groups that batches are drawn from: those of the last few steps, which the next ones will be like. Their mean length
is known to 4 to 6%."""

STEPS_FOR_DRIFT = 4
"""Steps' worth of groups below which no drift is told: the spread of three means is noise."""

CUT_SHARE = 0.02
"""Share of responses at the cut above which the moments of the logs are of a visibly cut distribution."""

LEAST_UNCUT, LEAST_UNCUT_SHARE = 16, 0.2
"""Responses below the cut that two quantiles need: a few, and enough of all not to lay the line through a tail."""

QUANTILES = (0.2, 0.8)
"""Quantiles, among the responses below the cut, through which the line of the lognormal is laid."""

MOST_SPREAD = 3.0
"""Standard deviation of a log beyond which a job file takes it for a misplaced number."""

Array = NDArray[np.float64]


class RecordedLengths:
    """The lengths of the groups that finished last."""

    def __init__(self, *, group_size: int, per_step: int, most: int | None = None) -> None:
        """`per_step`: groups of a step. `most`: tokens at which responses are cut; None: the longest seen."""
        self._group_size = group_size
        self._per_step = per_step
        self._most = most
        self._groups: deque[tuple[int, ...]] = deque(maxlen=KEPT)
        self._prompts: deque[float] = deque(maxlen=KEPT)

    def add(self, lengths: Sequence[int], prompt_tokens: float) -> None:
        """Enter a finished group. Raises ValueError for a group of another size or a length below 0."""
        if len(lengths) != self._group_size or min(lengths) < 0 or prompt_tokens < 0:
            raise ValueError(
                f"a group has {self._group_size} lengths of at least 0 tokens, got {tuple(lengths)!r} and a prompt of "
                f"{prompt_tokens!r}"
            )
        self._groups.append(tuple(lengths))
        self._prompts.append(prompt_tokens)

    def __len__(self) -> int:
        return len(self._groups)

    @property
    def prompt_tokens(self) -> float:
        """Mean tokens of a prompt."""
        return sum(self._prompts) / len(self._prompts)

    def recent(self) -> Array:
        """Lengths of the last groups, one a row."""
        return np.array(list(self._groups)[-RECENT:], dtype=np.float64)

    def fit(self) -> Lengths:
        """The spread of the lengths that are kept."""
        tokens = np.maximum(np.array(self._groups, dtype=np.float64), 1.0)
        cut = max(1, int(tokens.max()) if self._most is None else self._most)
        logs = np.log(tokens)
        means = logs.mean(axis=1)
        within = float(logs.var(axis=1, ddof=1).mean()) if self._group_size > 1 else 0.0
        between, drift = self._between(means)
        group = max(0.0, between - within / self._group_size)
        middle, spread = float(logs.mean()), math.sqrt(group + within)
        ratio = 1.0
        below = logs[tokens < cut]
        share = 1 - below.size / logs.size
        if CUT_SHARE < share <= 1 - LEAST_UNCUT_SHARE and below.size >= LEAST_UNCUT:
            middle, uncut = _line(below, 1 - share)
            ratio = max(1.0, uncut / spread) if spread > 0 else 1.0
        return Lengths(
            median=min(math.exp(middle), float(cut)),
            max=cut,
            sigma_group=min(ratio * math.sqrt(group), MOST_SPREAD),
            sigma_response=min(ratio * math.sqrt(within), MOST_SPREAD),
            drift=min(drift, MOST_SPREAD),
        )

    def _between(self, means: Array) -> tuple[float, float]:
        """Variance of the groups' means within a step, and the standard deviation of the steps' own level."""
        steps = len(means) // self._per_step
        if steps < STEPS_FOR_DRIFT or self._per_step < 2:
            return (float(means.var(ddof=1)) if len(means) > 1 else 0.0), 0.0
        by_step = means[-steps * self._per_step :].reshape(steps, self._per_step)
        between = float(by_step.var(axis=1, ddof=1).mean())
        level = float(by_step.mean(axis=1).var(ddof=1)) - between / self._per_step
        return between, math.sqrt(max(0.0, level))


def _line(below: Array, share: float) -> tuple[float, float]:
    """Mean and standard deviation of the normal distribution of the logs of which these are the lower `share`."""
    low, high = np.quantile(below, QUANTILES)
    normal = NormalDist()
    z_low, z_high = (normal.inv_cdf(quantile * share) for quantile in QUANTILES)
    spread = float(high - low) / (z_high - z_low)
    return float(high) - spread * z_high, spread
