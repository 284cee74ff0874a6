"""Fits by hand, their confidence against simulated noise, and the online fit through a change."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.fitting import (
    ERRORS_KEPT,
    ONLINE_MINIMUM,
    ONLINE_WINDOW,
    OnlineFit,
    Sample,
    errors_of,
    fit,
)
from planner.stage_model import StageModel

TRUE = StageModel(a=3.0, b=2.0)


def samples(*triples: tuple[float, int, float]) -> list[Sample]:
    return [Sample(workload=workload, replicas=replicas, seconds=seconds) for workload, replicas, seconds in triples]


def measured(seed: int, count: int, model: StageModel = TRUE, noise: float = 0.1) -> list[Sample]:
    """Units of 4 to 32 groups on 1 to 4 replicas, seconds scattered in proportion."""
    random = np.random.default_rng(seed)
    units: list[Sample] = []
    for _ in range(count):
        workload, replicas = float(random.integers(4, 33)), int(random.integers(1, 5))
        seconds = model.seconds(workload, replicas) * math.exp(noise * random.standard_normal())
        units.append(Sample(workload=workload, replicas=replicas, seconds=seconds))
    return units


# -- the fit ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given_", "decay", "a", "b"),
    [
        pytest.param([(8, 2, 11.0), (16, 2, 19.0)], 1.0, 3.0, 2.0, id="two points: a line"),
        pytest.param([(1, 1, 1.0), (2, 1, 3.0), (3, 1, 5.0)], 1.0, 0.0, 22 / 14, id="a=-1: through the origin"),
        # ages 2, 1, 0: weights .25, .5, 1: b = (.25*1 + .5*6 + 1*15) / (.25*1 + .5*4 + 1*9)
        pytest.param([(1, 1, 1.0), (2, 1, 3.0), (3, 1, 5.0)], 0.5, 0.0, 18.25 / 11.25, id="the origin, weighted"),
        pytest.param([(1, 1, 5.0), (2, 1, 4.0)], 1.0, 4.5, 0.0, id="more work in less time: the mean"),
        # weights .5 and 1: (.5*5 + 4) / 1.5
        pytest.param([(1, 1, 5.0), (2, 1, 4.0)], 0.5, 13 / 3, 0.0, id="the mean, weighted"),
        pytest.param([(8, 2, 8.0), (4, 1, 12.0)], 1.0, 0.0, 2.5, id="one load: through the origin"),
        pytest.param([(8, 2, 8.0)], 1.0, 0.0, 2.0, id="one sample"),
    ],
)
def test_fit_by_hand(given_: list[tuple[float, int, float]], decay: float, a: float, b: float) -> None:
    model = fit(samples(*given_), decay).model
    assert (model.a, model.b) == (pytest.approx(a), pytest.approx(b))


def test_recent_samples_count_for_more_the_faster_the_decay() -> None:
    changed = samples((4, 1, 11.0), (8, 1, 19.0), (4, 1, 22.0), (8, 1, 38.0))
    old, new = 19.0, 38.0
    predicted = [fit(changed, decay).model.seconds(8, 1) for decay in (1.0, 0.5, 0.1)]
    assert old < predicted[0] < predicted[1] < predicted[2] < new


@given(
    a=st.floats(0, 100),
    b=st.floats(0.01, 100),
    units=st.lists(st.tuples(st.integers(1, 500), st.integers(1, 64)), min_size=2, max_size=30),
    decay=st.floats(0.5, 1),
)
def test_units_that_obey_the_form_are_predicted_exactly(
    a: float, b: float, units: list[tuple[int, int]], decay: float
) -> None:
    true = StageModel(a=a, b=b)
    got = fit(samples(*((w, d, true.seconds(w, d)) for w, d in units)), decay)
    assert got.residuals.p90 < 1e-6
    assert got.samples == len(units)


@given(
    units=st.lists(st.tuples(st.integers(1, 100), st.integers(1, 8), st.floats(0.01, 1000)), min_size=1, max_size=20),
    decay=st.floats(0.3, 1),
    scale=st.floats(0.01, 100),
)
def test_coefficients_are_times_and_follow_the_unit_of_time(
    units: list[tuple[int, int, float]], decay: float, scale: float
) -> None:
    model = fit(samples(*units), decay).model
    scaled = fit(samples(*((w, d, seconds * scale) for w, d, seconds in units)), decay).model
    assert model.a >= 0
    assert model.b >= 0
    for workload, replicas, _ in units:
        expected = model.seconds(workload, replicas) * scale
        assert scaled.seconds(workload, replicas) == pytest.approx(expected, rel=1e-6)


def test_effective_samples_are_the_number_without_decay_and_fewer_with_it() -> None:
    units = measured(0, 40)
    assert fit(units, 1.0).effective_samples == pytest.approx(40)
    # weights 1, 1/2, 1/4, ...: 2^2 / (4/3)
    assert fit(units, 0.5).effective_samples == pytest.approx(3.0)


def test_residuals_are_relative_to_what_was_measured() -> None:
    # the constant model of 4.5 against 5 and 4: errors 0.1 and 0.125
    residuals = fit(samples((1, 1, 5.0), (2, 1, 4.0)), 1.0).residuals
    assert (residuals.median, residuals.p90) == (pytest.approx(0.1125), pytest.approx(0.1225))
    assert residuals.count == 2


def test_errors_on_other_samples_are_told_apart_from_residuals() -> None:
    errors = errors_of(TRUE, samples((8, 2, 22.0), (8, 2, 10.0)))
    assert errors is not None
    assert (errors.median, errors.count) == (pytest.approx((0.5 + 0.1) / 2), 2)
    assert errors_of(TRUE, []) is None


@pytest.mark.parametrize(
    ("given_", "decay", "message"),
    [
        ([], 1.0, r"needs at least 1 sample \(workload, replicas, seconds\), got none"),
        ([(1, 1, 1.0)], 0.0, "the age decay must be above 0 and at most 1, got 0.0"),
        ([(1, 1, 1.0)], 1.1, "the age decay must be above 0 and at most 1, got 1.1"),
    ],
)
def test_what_cannot_be_fitted_is_refused(given_: list[tuple[float, int, float]], decay: float, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        fit(samples(*given_), decay)


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ({"workload": 0}, "workload of a sample must be a number above 0, got 0"),
        ({"workload": math.nan}, "workload of a sample must be a number above 0, got nan"),
        ({"replicas": 0}, "replicas of a sample must be at least 1, got 0"),
        ({"seconds": 0.0}, "seconds of a sample must be a number above 0, got 0.0"),
        ({"seconds": math.inf}, "seconds of a sample must be a number above 0, got inf"),
    ],
)
def test_a_sample_that_is_no_measurement_is_refused(overrides: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Sample(**{"workload": 8.0, "replicas": 2, "seconds": 11.0} | overrides)


# -- its confidence ---------------------------------------------------------------------------------------------------


def test_the_band_holds_about_nine_in_ten_new_measurements() -> None:
    inside = total = 0
    for seed in range(60):
        fitted = fit(measured(seed, 12), 1.0)
        for unit in measured(seed + 1000, 20):
            band = fitted.interval(unit.workload, unit.replicas)
            assert band is not None
            inside += band[0] <= unit.seconds <= band[1]
            total += 1
    assert 0.86 <= inside / total <= 0.94


def test_standard_errors_are_the_scatter_of_the_coefficients_over_repetitions() -> None:
    fits = [fit(measured(seed, 60), 0.97) for seed in range(150)]
    for coefficient in ("a", "b"):
        scatter = np.std([getattr(each.model, coefficient) for each in fits])
        claimed = np.mean([getattr(each, f"standard_error_{coefficient}") for each in fits])
        assert claimed == pytest.approx(scatter, rel=0.2)
    assert np.mean([each.noise for each in fits]) == pytest.approx(0.1, rel=0.1)


def test_a_coefficient_that_was_held_at_zero_has_no_standard_error() -> None:
    origin = fit(samples((1, 1, 1.0), (2, 1, 3.0), (3, 1, 5.0), (4, 1, 7.1)), 1.0)
    assert origin.standard_error_a is None
    assert origin.standard_error_b is not None
    constant = fit(samples((1, 1, 5.0), (2, 1, 4.0), (3, 1, 3.0), (4, 1, 2.5)), 1.0)
    assert constant.standard_error_b is None
    assert constant.standard_error_a is not None


def test_too_few_samples_give_no_confidence() -> None:
    for few in (measured(0, 2), measured(0, 3)):
        fitted = fit(few, 1.0)
        assert (fitted.noise, fitted.standard_error_a, fitted.covariance) == (None, None, None)
        assert fitted.interval(8, 2) is None
    assert fit(measured(0, 50), 0.2).interval(8, 2) is None, "fast decay leaves 1.5 effective samples"


def test_no_work_takes_no_time_and_no_replica_for_ever_with_certainty() -> None:
    fitted = fit(measured(0, 20), 1.0)
    assert fitted.interval(0, 2) == (0.0, 0.0)
    assert fitted.interval(8, 0) == (math.inf, math.inf)


# -- with a prior -----------------------------------------------------------------------------------------------------


def test_one_load_scales_the_prior_instead_of_forgetting_its_fixed_part() -> None:
    # at W/d = 4 the prior says 11 s; 22 s measured: twice as slow
    model = fit(samples((8, 2, 22.0), (4, 1, 22.0)), 1.0, prior=TRUE).model
    assert (model.a, model.b) == (pytest.approx(6.0), pytest.approx(4.0))


def test_a_falling_line_scales_the_prior_too() -> None:
    model = fit(samples((1, 1, 5.0), (2, 1, 4.0)), 1.0, prior=TRUE).model
    assert model.a / model.b == pytest.approx(TRUE.a / TRUE.b)


def test_a_prior_changes_nothing_where_the_samples_tell_the_slope() -> None:
    units = measured(0, 20)
    assert fit(units, 1.0, prior=StageModel(a=50, b=0.1)).model == fit(units, 1.0).model


# -- online -----------------------------------------------------------------------------------------------------------


def test_the_prior_answers_until_there_are_enough_samples() -> None:
    prior = StageModel(a=1, b=1)
    online = OnlineFit(prior=prior)
    for unit in measured(0, ONLINE_MINIMUM - 1, model=prior):
        online.observe(unit)
        assert online.model == prior
        assert online.fit is None
    online.observe(measured(1, 1, model=prior)[0])
    assert online.fit is not None
    assert online.model == online.fit.model


def test_without_a_prior_there_is_no_model_and_no_error_until_then() -> None:
    online = OnlineFit()
    for unit in measured(0, ONLINE_MINIMUM):
        assert (online.model, online.errors) == (None, None)
        online.observe(unit)
    assert online.model is not None
    assert online.errors is None
    online.observe(measured(1, 1)[0])
    assert online.errors is not None
    assert online.errors.count == 1


def test_a_unit_is_predicted_before_it_is_entered() -> None:
    online = OnlineFit(prior=TRUE)
    online.observe(Sample(workload=8, replicas=2, seconds=22.0))
    assert online.errors is not None
    assert online.errors.median == pytest.approx(0.5), "11 s were forecast"


def test_an_online_fit_is_the_fit_of_its_window() -> None:
    units = measured(3, ONLINE_WINDOW + 50, noise=0.05)
    online = OnlineFit(decay=0.99)
    for unit in units:
        online.observe(unit)
    assert online.fit == fit(units[-ONLINE_WINDOW:], 0.99)
    assert online.errors is not None
    assert online.errors.count == ERRORS_KEPT


@pytest.mark.parametrize("seed", range(2))
def test_steady_units_raise_no_alarm_and_their_forecasts_err_by_their_noise(seed: int) -> None:
    online = OnlineFit()
    assert not any(online.observe(unit).drifted for unit in measured(seed, 2500))
    assert online.errors is not None
    # of a normal error of 10%, the median size is 6.7% and the 90th percentile 16.4%
    assert online.errors.median == pytest.approx(0.067, abs=0.02)
    assert online.errors.p90 == pytest.approx(0.164, abs=0.04)


@pytest.mark.parametrize("factor", [1.3, 0.7])
def test_a_change_is_found_and_the_samples_from_before_it_are_forgotten(factor: float) -> None:
    changed = StageModel(a=TRUE.a * factor, b=TRUE.b * factor)
    for seed in range(5):
        online = OnlineFit(prior=TRUE)
        for unit in measured(seed, 200):
            online.observe(unit)
        delay = next(
            place for place, unit in enumerate(measured(seed + 50, 60, changed), 1) if online.observe(unit).drifted
        )
        assert delay <= 25
        assert online.model is not None
        assert online.model.seconds(16, 2) == pytest.approx(changed.seconds(16, 2), rel=0.15), "at once"
        for unit in measured(seed + 90, 20, changed):
            online.observe(unit)
        assert online.fit is not None
        assert online.fit.samples <= 20 + delay + 5
        assert online.model.seconds(16, 2) == pytest.approx(changed.seconds(16, 2), rel=0.08)
        assert [each.direction for each in online.drifts] == ["slower" if factor > 1 else "faster"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"minimum": 0}, "minimum must be within 1 and the window of 256 samples, got 0"),
        ({"minimum": 9, "window": 8}, "minimum must be within 1 and the window of 8 samples, got 9"),
        ({"decay": 0.0}, "the age decay must be above 0 and at most 1, got 0.0"),
    ],
)
def test_a_wrong_option_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        OnlineFit(**options)
