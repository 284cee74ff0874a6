"""What a change is expected to do: from the simulator, relative to what was measured, and nothing outside of it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from engine.config import load_job, settings_of
from engine.config.whatif import idle_shares, work_of
from planner.whatif import LEAST_STEPS, Lately, Work, predict

ROOT = Path(__file__).parents[2]
JOB = load_job(ROOT / "jobs" / "emulated_16.yaml", ["devices.partition=8:8", "algorithm.prompts_per_step=24"])
WORK = work_of(JOB, None)
NOW = settings_of(JOB)
LATELY = Lately(steps=10, tokens_per_s=5000.0, idle={"waiting_for_groups": 0.1, "staleness_cap": 0.05}, lag=0.5)


def ask(lately: Lately = LATELY, work: Work = WORK, **changes: Any) -> Any:
    return predict(work, NOW, NOW | changes, lately)


def test_nothing_changes_where_nothing_is_changed() -> None:
    found = ask()
    assert found.why_not is None
    assert found.ratio.middle == 1.0
    assert found.tokens_per_s.middle == LATELY.tokens_per_s
    assert found.idle == pytest.approx(LATELY.idle)
    assert found.lag == pytest.approx(LATELY.lag)


def test_a_worse_arm_is_expected_to_be_slower_and_to_idle_more() -> None:
    found = ask(arm="no_borrow")
    assert found.ratio.middle < 0.95
    assert found.tokens_per_s.middle == pytest.approx(found.ratio.middle * 5000.0)
    assert sum(found.idle.values()) > sum(LATELY.idle.values())


def test_the_model_s_error_on_this_run_widens_the_band_and_moves_nothing() -> None:
    simulated = 5000.0 * (1 + ask().model_error)
    right = ask(replace(LATELY, tokens_per_s=simulated), partition="4:12")
    wrong = ask(replace(LATELY, tokens_per_s=simulated / 1.2), partition="4:12")
    assert (right.model_error, wrong.model_error) == pytest.approx((0.0, 0.2), abs=1e-9)
    assert wrong.ratio.middle == right.ratio.middle
    assert wrong.ratio.high / wrong.ratio.middle == pytest.approx(1.2 * right.ratio.high / right.ratio.middle)


def test_more_staleness_means_more_lag() -> None:
    assert ask(staleness=3.0).lag > LATELY.lag > ask(staleness=0.0).lag == 0.0


def test_a_cap_of_no_lent_devices_is_as_an_arm_that_lends_nothing() -> None:
    capped, off = ask(lend_cap=0), ask(rollout_on_train=False, train_on_rollout=False)
    assert capped.ratio.middle == pytest.approx(off.ratio.middle, rel=0.01)


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        pytest.param({"staleness": 4.5}, "staleness 4.5 is outside 0 to 4, where the model was tested", id="staleness"),
        pytest.param(
            {"partition": "6:10"}, "the simulator cannot play it: 10 train devices are no multiple", id="split"
        ),
        pytest.param({"partition": None}, "a run without pools is not predicted", id="no pools"),
    ],
)
def test_outside_of_what_was_tested_there_is_a_reason_and_no_number(changes: dict[str, Any], told: str) -> None:
    found = ask(**changes)
    assert found.why_not.startswith(told)
    assert (found.ratio, found.tokens_per_s, found.lag, found.model_error, found.idle) == (None, None, None, None, {})


def test_a_run_that_has_hardly_begun_or_measured_nothing_is_not_predicted() -> None:
    few = ask(replace(LATELY, steps=LEAST_STEPS - 1), staleness=2.0)
    assert few.why_not == "4 steps were made with the present settings; 5 are needed"
    unknown = ask(work=replace(WORK, profile=None), staleness=2.0)
    assert unknown.why_not == "the run has not measured all of its speeds and switch costs"


def test_a_job_too_large_to_be_waited_for_is_not_simulated() -> None:
    found = ask(work=replace(WORK, prompts_per_step=4096), staleness=2.0)
    assert "too much to simulate while somebody waits" in found.why_not


def test_a_least_length_of_leases_is_played_to_its_end() -> None:
    assert ask(min_lease_s=300.0).why_not is None


def test_idle_shares_are_of_all_device_time() -> None:
    assert idle_shares({0: {"rollout": 6.0, "idle_no_work": 2.0}, 1: {"train": 8.0, "idle_staleness_cap": 4.0}}) == {
        "staleness_cap": 0.2,
        "no_work": 0.1,
    }
    assert idle_shares({}) == {}
