"""Structural and residual bubbles, by hand."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.bubbles import Bubbles, bubbles, busy_rate


def split(**overrides: Any) -> Bubbles:
    given: dict[str, Any] = {
        "rollout_devices": 4,
        "train_devices": 12,
        "rate_rollout": 1.0,
        "rate_train": 0.75,
        "idle_fraction": 0.3,
    }
    return bubbles(**given | overrides)


@pytest.mark.parametrize(
    ("overrides", "structural", "residual"),
    [
        pytest.param({}, 1 / 16, 0.3 - 1 / 16, id="4 devices wait a quarter of the time: 4 * 0.25 / 16"),
        pytest.param({"rate_rollout": 0.25}, 0.3, 0.0, id="12 * 2/3 / 16 = 0.5 is clipped to the idle 0.3"),
        pytest.param({"rate_rollout": 0.75}, 0.0, 0.3, id="equal rates: all of it is residual"),
        pytest.param({"idle_fraction": 0.0}, 0.0, 0.0, id="nothing is idle"),
    ],
)
def test_structural_bubbles_come_from_unequal_rates(
    overrides: dict[str, float], structural: float, residual: float
) -> None:
    got = split(**overrides)
    assert (got.structural, got.residual) == (pytest.approx(structural), pytest.approx(residual))


@given(
    rollout_devices=st.integers(1, 99),
    train_devices=st.integers(1, 99),
    rate_rollout=st.floats(1e-3, 1e3),
    rate_train=st.floats(1e-3, 1e3),
    idle_fraction=st.floats(0, 1),
)
def test_the_two_parts_are_shares_that_add_up_to_the_idle_time(**given_: float) -> None:
    got = split(**given_)
    assert got.structural + got.residual == pytest.approx(given_["idle_fraction"])
    assert got.structural >= 0
    assert got.residual >= 0


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ({"rollout_devices": 0}, "each pool must have at least 1 device, got 0 and 12"),
        ({"rate_train": 0.0}, r"the rates must be numbers above 0 groups/s, got 1.0 and 0.0"),
        ({"rate_rollout": float("nan")}, "the rates must be numbers above 0"),
        ({"idle_fraction": 1.2}, "the idle fraction must be within 0 to 1, got 1.2"),
    ],
    ids=lambda value: value if isinstance(value, str) else None,
)
def test_bad_input_is_refused_with_its_value(overrides: dict[str, float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        split(**overrides)


def test_the_busy_rate_is_that_of_a_pool_that_never_waits() -> None:
    # 30 groups took 20 busy device-seconds; 4 devices have 4 of them a second: 30 * 4 / 20
    assert busy_rate(groups=30, devices=4, busy_device_s=20.0) == pytest.approx(6.0)


def test_a_pool_that_did_nothing_has_no_rate() -> None:
    assert busy_rate(groups=0, devices=4, busy_device_s=20.0) is None
    assert busy_rate(groups=3, devices=4, busy_device_s=0.0) is None
