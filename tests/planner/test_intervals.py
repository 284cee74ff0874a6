"""Student's t against printed tables and against its own density, and the intervals of a mean by hand."""

from __future__ import annotations

import math

import pytest

from planner.intervals import mean_interval, student_t, student_t_cdf, upper_bound

TABLE = {
    # degrees: one-sided 90%, 95%, 97.5%, 99.5% (Abramowitz and Stegun, table 26.10)
    1: (3.078, 6.314, 12.706, 63.657),
    2: (1.886, 2.920, 4.303, 9.925),
    3: (1.638, 2.353, 3.182, 5.841),
    4: (1.533, 2.132, 2.776, 4.604),
    9: (1.383, 1.833, 2.262, 3.250),
    30: (1.310, 1.697, 2.042, 2.750),
    120: (1.289, 1.658, 1.980, 2.617),
}


@pytest.mark.parametrize("degrees", TABLE)
def test_the_quantiles_are_those_of_the_printed_table(degrees: int) -> None:
    found = tuple(round(student_t(probability, degrees), 3) for probability in (0.9, 0.95, 0.975, 0.995))
    assert found == TABLE[degrees]


def t_cdf(t: float, df: float, steps: int = 2000) -> float:
    """1/2 plus the density's integral from 0 to t by Simpson's rule."""
    scale = math.exp(math.lgamma((df + 1) / 2) - math.lgamma(df / 2)) / math.sqrt(df * math.pi)
    density = [scale * (1 + (t * i / steps) ** 2 / df) ** (-(df + 1) / 2) for i in range(steps + 1)]
    return 0.5 + t / steps / 3 * (density[0] + density[-1] + 4 * sum(density[1:-1:2]) + 2 * sum(density[2:-1:2]))


@pytest.mark.parametrize("degrees", [1, 1.5, 2, 2.7, 7, 31, 99.9, 100, 400])
@pytest.mark.parametrize("probability", [0.6, 0.9, 0.975])
def test_a_quantile_leaves_its_probability_below_it(probability: float, degrees: float) -> None:
    assert t_cdf(student_t(probability, degrees), degrees) == pytest.approx(probability, abs=1e-7)


def test_one_degree_is_the_cauchy_distribution_far_into_its_tail() -> None:
    for probability in (0.75, 0.99, 0.9999):
        assert student_t(probability, 1) == pytest.approx(math.tan(math.pi * (probability - 0.5)), rel=1e-9)


def test_the_distribution_is_symmetric() -> None:
    assert student_t(0.025, 3) == -student_t(0.975, 3)
    assert student_t(0.5, 3) == pytest.approx(0, abs=1e-12)
    assert student_t_cdf(-2.0, 5) == pytest.approx(1 - student_t_cdf(2.0, 5))


@pytest.mark.parametrize(("probability", "degrees"), [(0.0, 3), (1.0, 3), (0.9, 0)])
def test_what_is_no_probability_or_no_degree_is_refused(probability: float, degrees: float) -> None:
    with pytest.raises(ValueError, match="must be above 0"):
        student_t(probability, degrees)


def test_an_interval_of_a_mean_by_hand() -> None:
    # 1, 2, 6: mean 3, s = sqrt((4 + 1 + 9) / 2) = 2.645751, standard error 1.527525, t(0.975, 2) = 4.302653
    interval = mean_interval([1.0, 2.0, 6.0], 0.95)
    assert interval == pytest.approx((3 - 6.572411, 3 + 6.572411), abs=1e-6)


def test_an_upper_bound_by_hand() -> None:
    # 1, 2, 6 again: t(0.9, 2) = 1.885618
    assert upper_bound([1.0, 2.0, 6.0], 0.9) == pytest.approx(3 + 1.885618 * 1.527525, abs=1e-6)


def test_one_value_has_no_interval() -> None:
    assert mean_interval([1.0], 0.95) is None
    with pytest.raises(ValueError, match="at least 2 values, got 1"):
        upper_bound([1.0], 0.9)
