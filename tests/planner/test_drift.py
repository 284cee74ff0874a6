"""The drift test: quiet while nothing changes, quick and right about what changed when it does."""

from __future__ import annotations

import math

import numpy as np
import pytest

from planner.drift import LIMIT, SLACK, THRESHOLD, DriftTest, Verdict

NOISE = 0.1


def errors(seed: int, count: int, factor: float = 1.0, noise: float = NOISE) -> list[float]:
    """Signed relative errors of a stage that takes `factor` times the predicted seconds."""
    return (factor * (1 + noise * np.random.default_rng(seed).standard_normal(count)) - 1).tolist()


def first_alarm(test: DriftTest, values: list[float]) -> tuple[int, Verdict]:
    """Observations until the alarm, and the alarm."""
    for count, value in enumerate(values, start=1):
        verdict = test.observe(value)
        if verdict.drifted:
            return count, verdict
    return len(values) + 1, Verdict(drifted=False)


@pytest.mark.parametrize("seed", range(4))
def test_five_thousand_steady_observations_with_10_percent_noise_raise_no_alarm(seed: int) -> None:
    test = DriftTest()
    assert not any(test.observe(error).drifted for error in errors(seed, 5000))


@pytest.mark.parametrize("seed", range(4))
def test_noise_far_above_the_floor_is_learnt_and_is_no_change(seed: int) -> None:
    test = DriftTest()
    lognormal = np.exp(0.25 * np.random.default_rng(seed).standard_normal(2000)) - 1
    assert sum(test.observe(error).drifted for error in lognormal.tolist()) == 0


@pytest.mark.parametrize(("factor", "direction"), [(1.3, "slower"), (0.7, "faster")])
@pytest.mark.parametrize("before", [0, 50, 1000])
def test_a_change_of_30_percent_is_found_within_20_observations(factor: float, direction: str, before: int) -> None:
    delays: list[int] = []
    for seed in range(20):
        test = DriftTest()
        assert not any(test.observe(error).drifted for error in errors(seed, before))
        delay, verdict = first_alarm(test, errors(seed + 100, 40, factor))
        delays.append(delay)
        assert verdict.direction == direction
        assert verdict.since is not None
        assert abs(verdict.since - before) <= 10
    assert max(delays) <= 20
    assert np.median(delays) <= 8


def test_the_alarm_comes_when_the_sums_arithmetic_says() -> None:
    # an error of 0.31 is cut to 3 usual errors: 2 are left after the slack, and the 4th makes 8
    test = DriftTest()
    assert [test.observe(0.31).drifted for _ in range(4)] == [False, False, False, True]
    assert (LIMIT - SLACK) * 4 == THRESHOLD


def test_one_straggler_however_long_is_no_change() -> None:
    test = DriftTest()
    for place in range(300):
        assert not test.observe(50.0 if place % 20 == 0 else 0.0).drifted


def test_the_change_is_dated_to_its_first_observation_and_the_test_then_starts_anew() -> None:
    test = DriftTest()
    assert first_alarm(test, [0.0] * 30 + [0.5] * 4) == (34, Verdict(drifted=True, direction="slower", since=30))
    assert test.observed == 34
    assert first_alarm(test, [0.0] * 5 + [-0.5] * 4) == (9, Verdict(drifted=True, direction="faster", since=39))


@pytest.mark.parametrize("error", [math.nan, math.inf])
def test_an_error_that_is_no_number_is_refused(error: float) -> None:
    with pytest.raises(ValueError, match="a relative error must be a finite number, got"):
        DriftTest().observe(error)
