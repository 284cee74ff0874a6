"""Runs beside each other: figures of results, and ratios that are never made up."""

from __future__ import annotations

from typing import Any

import pytest

from planner import side_by_side

RESULT: dict[str, Any] = {
    "throughput_tokens_per_s": 100.0,
    "idle": {"fraction": 0.25, "device_s": 7200.0, "structural_fraction": 0.2, "residual_fraction": 0.05},
    "step_s": [1.0, 2.0, 9.0],
    "steps": 3,
    "tokens": 1200,
    "wall_s": 20.0,
    "reward": {"per_step": [0.0] * 5 + [0.5, None, 0.7, *[0.6] * 8]},
    "eval": [{"step": 0, "accuracy": 0.1}, {"step": 20, "accuracy": 0.4}],
    "lag": {"max": 1},
    "utilisation": 0.7,
    "bound_ratio": 0.8,
    "leases": {"rollout_on_train": {"delivered": 3}, "train_on_rollout": {"delivered": 2}},
    "deaths": 0,
}


def values(*results: dict[str, Any]) -> dict[str, tuple[float | None, ...]]:
    return {row.figure.name: row.values for row in side_by_side.rows(results)}


def test_each_figure_is_that_of_the_result() -> None:
    found = {name: value[0] for name, value in values(RESULT).items()}
    assert found == {
        "throughput_tokens_per_s": 100.0,
        "idle_fraction": 0.25,
        "lost_device_hours": 0.5,  # a quarter of two device-hours
        "structural_fraction": 0.2,
        "residual_fraction": 0.05,
        "step_s": 2.0,
        "steps": 3.0,
        "tokens": 1200.0,
        "wall_s": 20.0,
        "reward_last": pytest.approx((0.5 + 0.7 + 8 * 0.6) / 10),
        "accuracy_last": 0.4,
        "lag_max": 1.0,
        "utilisation": 0.7,
        "bound_ratio": 0.8,
        "leases_delivered": 5.0,
        "deaths": 0.0,
    }


def test_ratios_are_over_the_first_run() -> None:
    other = RESULT | {"throughput_tokens_per_s": 150.0, "idle": {"fraction": 0.5}, "deaths": 2}
    rows = {row.figure.name: row.ratios for row in side_by_side.rows([RESULT, other])}
    assert rows["throughput_tokens_per_s"] == (1.0, 1.5)
    assert rows["idle_fraction"] == (1.0, 2.0)
    assert rows["lost_device_hours"] == (1.0, None), "the other run's device time is not known"
    assert rows["deaths"] == (None, None), "nothing can be told over 0"


@pytest.mark.parametrize(
    ("base", "other", "alike"),
    [("cpu", "emulated", False), ("emulated", "cpu", False), ("emulated", "emulated", True), ("cuda", "cpu", True)],
)
def test_a_real_run_and_an_emulated_one_have_their_figures_and_no_ratio(base: str, other: str, alike: bool) -> None:
    results = [RESULT | {"kind": kind} for kind in (base, other)]
    assert side_by_side.comparable(results) == (True, alike)
    rows = {row.figure.name: row for row in side_by_side.rows(results)}
    assert rows["throughput_tokens_per_s"].values == (100.0, 100.0)
    assert rows["throughput_tokens_per_s"].ratios == (1.0, 1.0 if alike else None)


def test_what_no_run_has_is_left_out_and_what_one_lacks_is_not_known() -> None:
    found = values({"throughput_tokens_per_s": None, "steps": 3}, {"throughput_tokens_per_s": 7.0, "steps": 4})
    assert found == {"throughput_tokens_per_s": (None, 7.0), "steps": (3.0, 4.0)}


@pytest.mark.parametrize("broken", [{}, {"idle": None}, {"idle": {"fraction": True}}, {"lag": {"max": float("nan")}}])
def test_a_result_of_another_version_has_gaps_and_no_errors(broken: dict[str, Any]) -> None:
    assert values(broken) == {}
