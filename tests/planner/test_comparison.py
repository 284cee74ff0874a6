"""Ratios are paired within a repeat, averaged as logarithms, and silent about what did not run."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.comparison import Ratio, fastest, lending_limit, ratio, speed, spread, work_ratio


def test_a_ratio_and_its_interval_by_hand() -> None:
    # ratios 1.1, 1.2, 1.3: logs 0.0953102, 0.1823216, 0.2623643, mean 0.1799987, s = 0.0835512
    # half = 4.302653 * 0.0835512 / sqrt(3) = 0.2075528: exp of 0.1799987 and of it -/+ half
    found = ratio({1: 110, 2: 240, 3: 390}, {1: 100, 2: 200, 3: 300})
    assert found is not None
    assert (found.mean, found.low, found.high, found.pairs) == pytest.approx(
        (1.197216, 0.972825, 1.473364, 3), abs=1e-5
    )


def test_drift_between_repeats_cancels_for_it_is_in_both_of_a_pair() -> None:
    found = ratio({1: 110, 2: 55, 3: 11}, {1: 100, 2: 50, 3: 10})
    assert found is not None
    assert (found.mean, found.low, found.high) == pytest.approx((1.1, 1.1, 1.1))


def test_one_repeat_gives_a_ratio_and_no_interval() -> None:
    assert ratio({1: 120.0}, {1: 100.0}) == Ratio(mean=pytest.approx(1.2), low=None, high=None, pairs=1)


def test_a_repeat_that_one_of_them_did_not_finish_takes_no_part() -> None:
    found = ratio({1: 120, 2: None, 3: 120}, {1: 100, 2: 100})
    assert found is not None
    assert (found.mean, found.pairs) == (pytest.approx(1.2), 1)
    assert ratio({1: None}, {1: 100}) is None
    assert ratio({1: 120}, {2: 100}) is None
    assert ratio({}, {}) is None
    assert ratio({1: 0.0}, {1: 100}) is None, "no throughput is not a throughput of nothing"


SERIES = st.dictionaries(st.integers(1, 5), st.floats(1, 1e6), min_size=5, max_size=5)


@given(SERIES, SERIES)
def test_the_ratio_the_other_way_round_is_the_inverse(ours: dict[int, float], theirs: dict[int, float]) -> None:
    forth, back = ratio(ours, theirs), ratio(theirs, ours)
    assert forth is not None
    assert back is not None
    assert forth.mean * back.mean == pytest.approx(1)
    assert forth.low is not None
    assert back.high is not None
    assert forth.low * back.high == pytest.approx(1)


@given(SERIES)
def test_a_ratio_over_itself_is_one_without_doubt(series: dict[int, float]) -> None:
    assert ratio(series, series) == Ratio(mean=1.0, low=1.0, high=1.0, pairs=5)


def test_a_spread_is_of_the_values_that_are_known() -> None:
    found = spread([1.0, None, 4.0])
    assert found is not None
    assert (found.mean, found.min, found.max, found.count) == (2.5, 1.0, 4.0, 2)
    assert spread([None, None]) is None


def test_a_speed_is_a_geometric_mean() -> None:
    found = speed({1: 100.0, 2: 400.0, 3: None})
    assert found is not None
    assert (found.mean, found.min, found.max, found.count) == (pytest.approx(200.0), 100.0, 400.0, 2)
    assert speed({1: None}) is None


@given(st.floats(1e-3, 1e9), st.integers(1, 5))
def test_the_mean_of_equal_speeds_is_that_speed(value: float, repeats: int) -> None:
    found = speed(dict.fromkeys(range(repeats), value))
    assert found is not None
    assert found.min == found.mean == found.max


def test_the_fastest_is_judged_on_the_repeats_that_all_have() -> None:
    # b's one good repeat is one that a does not have
    assert fastest({"a": {1: 100, 2: 100}, "b": {1: 99, 2: 99, 3: 900}}) == "a"
    assert fastest({"a": {1: 100}, "b": {2: 120}}) == "b", "nothing in common: each by its own"
    assert fastest({"a": {1: None}, "b": {1: 5}}) == "b"
    assert fastest({"a": {1: 5}, "b": {1: 5}}) == "a", "the first of equals"
    assert fastest({"a": {1: None}}) is None
    assert fastest({}) is None


@pytest.mark.parametrize("x", [1.0, 1.5, 4.0])
def test_on_a_one_to_one_split_the_limit_is_that_of_the_design(x: float) -> None:
    for works in ((x, 1.0), (3.0, 3.0 * x)):
        limit = lending_limit(rollout_work=works[0], train_work=works[1], rollout_devices=4, train_devices=4)
        assert limit == pytest.approx(2 * x / (1 + x))
        assert work_ratio(*works) == pytest.approx(x)


def test_on_the_split_that_fits_there_is_nothing_to_win() -> None:
    # 3 of work on 12 devices and 1 on 4: both pools are busy all the time
    assert lending_limit(rollout_work=3, train_work=1, rollout_devices=12, train_devices=4) == pytest.approx(1)
    # turned round, the rollout pool takes 3/4 where all devices would take 4/16
    assert lending_limit(rollout_work=3, train_work=1, rollout_devices=4, train_devices=12) == pytest.approx(3)


def test_a_stage_without_work_has_no_ratio_and_no_limit() -> None:
    assert work_ratio(0.0, 1.0) is None
    assert lending_limit(rollout_work=1, train_work=0, rollout_devices=1, train_devices=1) is None
    assert not math.isnan(work_ratio(2.0, 2.0) or math.nan)
