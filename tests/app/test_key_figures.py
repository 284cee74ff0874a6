"""The five numbers and the time left, against hand-computed values."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from app.key_figures import (
    busy_over_time,
    five_numbers,
    idle_fraction,
    lag_percentile,
    seconds_left,
    tokens_per_s,
    total,
)
from storage.records import RunRow, StepRow
from storage.words import COLUMNS


def make_run(**fields: Any) -> RunRow:
    values: dict[str, Any] = {
        "run_id": "r",
        "state": "running",
        "staleness": 1.0,
        "steps": 4,
        "start_step": 0,
        "steps_target": 10,
        "buffer_groups": 5,
        "in_flight_groups": 3,
    }
    return RunRow(**{**values, **fields})


def make_step(step: int, seconds: float = 2.0, lag: dict[int, int] | None = None, **fields: Any) -> StepRow:
    values: dict[str, Any] = {
        "run_id": "r",
        "step": step,
        "t_start": 100 + (step - 1) * seconds,
        "t_end": 100 + step * seconds,
        "groups": 8,
        "prompt_tokens": 300,
        "response_tokens": 100,
        "staleness": 1.0,
        "lag": lag if lag is not None else {0: 3, 1: 5},
        "lag_max": 1,
    }
    return StepRow(**{**values, **fields})


def numbers(run: RunRow | None = None, **given: Any) -> dict[str, Any]:
    values: dict[str, Any] = {"recent": {}, "whole": {}, "steps": [], "prompts_per_step": 8}
    return {n.key: n for n in five_numbers(run or make_run(), **{**values, **given})}


def test_nothing_known_is_a_dash_and_never_zero() -> None:
    found = numbers(make_run(buffer_groups=None, in_flight_groups=None))
    assert {k: n.value for k, n in found.items()} == {
        "busy": "–",
        "idle": "–",
        "tokens": "–",
        "lag": "– / 1",
        "buffer": "– / 16",
    }
    assert all(n.exact is None for n in found.values())


def test_busy_is_what_was_not_idle_of_the_known_time() -> None:
    # 20 of 100 s idle lately, 30 of 300 s over the run: 10 points below its mean
    found = numbers(
        recent={"rollout": 80.0, "idle_staleness_cap": 20.0},
        whole={"rollout": 200.0, "train": 70.0, "idle_no_work": 10.0, "idle_paused": 20.0},
    )
    assert found["busy"].value == "80.0 %"
    assert found["busy"].exact == pytest.approx(0.8)
    assert (found["busy"].note, found["busy"].tone) == ("-10.0 pp against the run's mean", "bad")
    assert (found["idle"].value, found["idle"].note) == ("30 device-s", "10.0 % of the run")


def test_throughput_leaves_out_the_filling_and_the_draining_step() -> None:
    # s=1: the first and the last step are dropped, two steps of 400 tokens in 2 s are left
    steps = [make_step(1, response_tokens=9999), make_step(2), make_step(3), make_step(4, response_tokens=9999)]
    assert tokens_per_s(steps, 1.0) == pytest.approx(200.0)
    assert tokens_per_s(steps[:2], 1.0) is None


@pytest.mark.parametrize(
    ("lags", "p95"),
    [
        ([{0: 19, 1: 1}], 0),  # 19 of 20 are 95%
        ([{0: 18, 1: 2}], 1),
        ([{0: 8}, {1: 8}, {2: 4}], 2),
        ([], None),
        ([{}], None),
    ],
    ids=["just below", "just above", "over steps", "no steps", "no groups"],
)
def test_lag_percentile(lags: list[dict[int, int]], p95: int | None) -> None:
    assert lag_percentile([make_step(i + 1, lag=lag) for i, lag in enumerate(lags)]) == p95


def test_lag_over_the_bound_of_its_own_step_is_bad_and_a_lowered_bound_alone_is_not() -> None:
    assert numbers(make_run(staleness=0.0), steps=[make_step(1)])["lag"].tone == "off"
    over = numbers(steps=[make_step(1, lag={2: 8}, lag_max=2)])["lag"]
    assert (over.value, over.note, over.tone) == ("2 / 1", "over the cap", "bad")


@pytest.mark.parametrize(("staleness", "room"), [(0.0, 8), (0.25, 10), (1.0, 16), (2.3, 26)])
def test_the_buffer_holds_a_step_and_the_start_allowance(staleness: float, room: int) -> None:
    assert numbers(make_run(staleness=staleness))["buffer"].value == f"5 / {room}"


def test_time_left_is_the_median_pace_of_the_steps_still_to_do() -> None:
    # ends 2 s apart but for one pause of 50 s; 6 steps are left
    steps = [make_step(i) for i in range(1, 9)] + [make_step(9, t_end=166.0)]
    assert seconds_left(make_run(), steps) == pytest.approx(12.0)
    assert seconds_left(make_run(start_step=5), steps) == pytest.approx(2.0)
    assert seconds_left(make_run(), steps[:1]) is None
    assert seconds_left(make_run(state="finished"), steps) is None


def test_sums_of_chosen_devices() -> None:
    per_device = {0: {"rollout": 1.0}, 1: {"rollout": 2.0, "idle_paused": 1.0}, 2: {"train": 4.0}}
    assert total(per_device, {0, 1}) == {"rollout": 3.0, "idle_paused": 1.0}
    assert idle_fraction(total(per_device)) == pytest.approx(1 / 8)
    assert idle_fraction({}) is None


def test_busy_over_time_leaves_out_what_is_not_known() -> None:
    seconds = np.zeros((1, 4, len(COLUMNS)))
    seconds[0, 0, COLUMNS.index("rollout")] = 1.0
    seconds[0, 2, COLUMNS.index("rollout")] = 0.5
    seconds[0, 2, COLUMNS.index("idle_paused")] = 0.5
    assert busy_over_time(seconds) == (1.0, 0.5)
