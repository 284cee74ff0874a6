"""How far a mean of a few measurements may be trusted: Student's t and the intervals made with it.

Pure arithmetic. It refuses an interval from fewer than two values: one measurement says nothing about its own error.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from statistics import NormalDist

SERIES_FROM = 100.0
"""Degrees of freedom from which the series is right to 1e-7, so that the distribution itself need not be asked."""

FRACTION_TERMS = 200
"""Terms of the continued fraction of the incomplete beta function: it needs some 20 below `SERIES_FROM` degrees."""

MOST_ITERATIONS = 100
"""Newton steps before a quantile is given up: it doubles its distance in the longest tail, of one degree."""


@lru_cache(maxsize=256)
def student_t(probability: float, degrees: float) -> float:
    """Quantile of Student's t to ten digits; fractions of a degree are allowed. Raises ValueError outside (0, 1) and
    for no degrees.

    Starts at the Cornish-Fisher series about the normal quantile (Abramowitz and Stegun, 26.7.5), which lies nearer to
    the middle than the quantile, so that Newton's steps approach it from one side.
    """
    if not 0 < probability < 1:
        raise ValueError(f"a probability must be above 0 and below 1, got {probability!r}")
    if not degrees > 0:
        raise ValueError(f"degrees of freedom must be above 0, got {degrees!r}")
    if probability < 0.5:
        return -student_t(1 - probability, degrees)
    t = _series(NormalDist().inv_cdf(probability), degrees)
    if degrees >= SERIES_FROM:
        return t
    for _ in range(MOST_ITERATIONS):
        step = (probability - student_t_cdf(t, degrees)) / _density(t, degrees)
        t += step
        if abs(step) <= 1e-12 * (1 + abs(t)):
            break
    return t


def student_t_cdf(t: float, degrees: float) -> float:
    """Probability of a value up to t, by the regularized incomplete beta function."""
    tail = _incomplete_beta(degrees / 2, 0.5, degrees / (degrees + t * t)) / 2
    return 1 - tail if t > 0 else tail


def upper_bound(values: Sequence[float], confidence: float) -> float:
    """One-sided upper bound of the mean of two or more values: mean + t * s / sqrt(n)."""
    mean, error = _mean_and_error(values)
    return mean + student_t(confidence, len(values) - 1) * error


def mean_interval(values: Sequence[float], confidence: float) -> tuple[float, float] | None:
    """Two-sided interval of the mean; None for fewer than two values."""
    if len(values) < 2:
        return None
    mean, error = _mean_and_error(values)
    half = student_t((1 + confidence) / 2, len(values) - 1) * error
    return mean - half, mean + half


def _mean_and_error(values: Sequence[float]) -> tuple[float, float]:
    """The mean and its standard error."""
    n = len(values)
    if n < 2:
        raise ValueError(f"an error of a mean needs at least 2 values, got {n}")
    mean = math.fsum(values) / n
    variance = math.fsum((value - mean) ** 2 for value in values) / (n - 1)
    return mean, math.sqrt(variance / n)


def _series(z: float, degrees: float) -> float:
    terms = (
        (z**3 + z) / 4,
        (5 * z**5 + 16 * z**3 + 3 * z) / 96,
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384,
    )
    return z + sum(term / degrees ** (power + 1) for power, term in enumerate(terms))


def _density(t: float, degrees: float) -> float:
    log = math.lgamma((degrees + 1) / 2) - math.lgamma(degrees / 2) - math.log(degrees * math.pi) / 2
    return math.exp(log - (degrees + 1) / 2 * math.log1p(t * t / degrees))


def _incomplete_beta(a: float, b: float, x: float) -> float:
    """I_x(a, b) by its continued fraction (DLMF 8.17.22), on the side where that converges fast."""
    if not 0 < x < 1:
        return min(1.0, max(0.0, x))
    if x > (a + 1) / (a + b + 2):
        return 1 - _incomplete_beta(b, a, 1 - x)
    value = 1.0
    for n in range(FRACTION_TERMS, 0, -1):
        m = n // 2
        if n % 2:
            term = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        else:
            term = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        value = 1 + term / value
    log = math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x)
    return math.exp(log) / (a * value)
