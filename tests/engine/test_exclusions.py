"""When a run ends since too many of its groups are excluded, and when it does not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from engine.run.exclusions import LEAST_WINDOW, MOST_REPLACED, MOST_TIMEOUTS, Exclusions
from tests.engine.simulated import Physics
from tests.engine.simulated_run import SimulatedRun, make_job

B = 4


def sections(arm: str, **schedule: Any) -> dict[str, Any]:
    devices = {"partition": "auto"} if arm == "colocated" else {}
    return {"schedule": {"arm": arm, **schedule}, "task": {"items": 1000}, "devices": devices}


ARMS = ("no_borrow", "bidirectional", "colocated")


def fail(exclusions: Exclusions, count: int, reason: str = "reward_failed") -> None:
    for _ in range(count):
        exclusions.excluded(reason, "the last one said why")


def test_three_quarters_of_the_newest_groups_may_fail_and_not_one_more() -> None:
    exclusions = Exclusions(B)
    for _ in range(LEAST_WINDOW // 4):
        exclusions.scored()
        fail(exclusions, 3)
    assert exclusions.complaint is None
    fail(exclusions, 1)  # the oldest, a scored one, is no longer among the newest
    assert exclusions.complaint is not None
    assert exclusions.complaint.startswith(f"49 of the last {LEAST_WINDOW} groups were excluded (49 reward_failed), ")
    assert exclusions.complaint.endswith("the last one said why")
    assert exclusions.counts == {"reward_failed": 49}


def test_a_few_groups_prove_nothing() -> None:
    exclusions = Exclusions(B)
    fail(exclusions, LEAST_WINDOW - 1)
    assert exclusions.complaint is None
    fail(exclusions, 1)
    assert exclusions.complaint is not None


def test_two_steps_of_groups_are_looked_at_where_that_is_more() -> None:
    exclusions = Exclusions(64)
    fail(exclusions, 127)
    assert exclusions.complaint is None
    fail(exclusions, 1)
    assert exclusions.complaint is not None


def test_groups_without_signal_are_no_failures_and_counted_from_step_to_step() -> None:
    exclusions = Exclusions(B)
    fail(exclusions, MOST_REPLACED * B, "no_signal")
    assert exclusions.complaint is None
    exclusions.step_made()
    fail(exclusions, MOST_REPLACED * B, "no_signal")
    assert exclusions.complaint is None
    fail(exclusions, 1, "no_signal")
    assert exclusions.complaint is not None
    assert "more than 64 groups without signal were replaced (16 x prompts_per_step)" in exclusions.complaint
    assert exclusions.counts == {"no_signal": 2 * MOST_REPLACED * B + 1}


def test_prompts_that_are_too_long_count_with_rewards_that_fail_and_are_told_apart() -> None:
    exclusions = Exclusions(B)
    fail(exclusions, 40, "prompt_too_long")
    fail(exclusions, LEAST_WINDOW - 40)
    assert exclusions.complaint is not None
    assert "64 groups were excluded (40 prompt_too_long, 24 reward_failed), which is more than" in exclusions.complaint


@pytest.mark.parametrize("arm", ARMS)
@pytest.mark.parametrize("reason", ["prompt_too_long", "no_signal"])
def test_a_run_whose_items_end_before_a_step_is_made_has_failed_and_says_why(
    arm: str, reason: str, tmp_path: Path
) -> None:
    job = make_job(**sections(arm) | {"algorithm": {"steps": 2}, "task": {"items": 16, "epochs": 1}})
    run = SimulatedRun(job, tmp_path, physics=Physics(excluded=1.0, reason=reason))
    run.play()
    assert run.run.state == "failed"
    told = f"the items ended before a step could be made: 16 {reason} groups were excluded"
    assert run.run.error == told + (
        ". The last one that failed: no answer could be read" if reason != "no_signal" else ""
    )
    assert run.run.error in run.recorder.logs


def test_a_reward_that_never_came_in_time_is_given_up_before_the_window_is_full() -> None:
    exclusions = Exclusions(B)
    fail(exclusions, MOST_TIMEOUTS - 1, "reward_timeout")
    fail(exclusions, 1, "reward_failed")
    assert exclusions.complaint is None
    fail(exclusions, 1, "reward_timeout")
    assert exclusions.complaint is not None
    assert exclusions.complaint.startswith(f"scoring took too long for {MOST_TIMEOUTS} groups, and none was ever")


@pytest.mark.parametrize("scored", ["scored", "without signal"])
def test_a_reward_that_came_in_time_once_has_the_whole_window(scored: str) -> None:
    exclusions = Exclusions(B)
    if scored == "scored":
        exclusions.scored()
    else:
        exclusions.excluded("no_signal", "all of its answers earn 1")
    fail(exclusions, LEAST_WINDOW // 2, "reward_timeout")
    assert exclusions.complaint is None


@pytest.mark.parametrize("arm", ARMS)
def test_a_run_whose_rewards_all_fail_ends_with_a_sentence(arm: str, tmp_path: Path) -> None:
    run = SimulatedRun(make_job(**sections(arm)), tmp_path, physics=Physics(excluded=1.0))
    run.play()
    assert (run.run.state, run.consumed()) == ("failed", [])
    assert run.run.error is not None
    assert "which is more than three quarters of them. The last one: no an" in run.run.error
    assert LEAST_WINDOW <= run.recorder.columns["excluded"]["reward_failed"] < 2 * LEAST_WINDOW


# -- dynamic sampling -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("arm", ARMS)
def test_groups_without_signal_are_replaced_until_every_step_is_full(arm: str, tmp_path: Path) -> None:
    run = SimulatedRun(make_job(**sections(arm)), tmp_path, physics=Physics(excluded=0.6, reason="no_signal"))
    run.play()
    assert (run.run.state, run.run.error) == ("finished", None)
    assert [len(step.taken) for step, _ in run.recorder.steps] == [4] * 5
    replaced = run.recorder.columns["excluded"]["no_signal"]
    assert replaced == len(run.excluded()) > 10
    assert not any("is excluded" in text for text in run.recorder.logs), "they are no fault"


@pytest.mark.parametrize("arm", ARMS)
def test_on_policy_each_step_consumes_the_next_prompts_with_a_signal_whoever_answered_them(
    arm: str, tmp_path: Path
) -> None:
    physics = Physics(excluded=0.6, reason="no_signal")
    run = SimulatedRun(make_job(**sections(arm, staleness=0.0)), tmp_path, physics=physics)
    run.play()
    steps = [sorted(group.index for group in step.taken) for step, _ in run.recorder.steps]
    wanted = [place for place in range(max(map(max, steps)) + 1) if place not in set(run.excluded())]
    assert steps == [wanted[4 * step : 4 * step + 4] for step in range(5)]


@pytest.mark.parametrize("arm", ARMS)
def test_a_task_without_any_signal_ends_the_run_with_a_sentence(arm: str, tmp_path: Path) -> None:
    run = SimulatedRun(make_job(**sections(arm)), tmp_path, physics=Physics(excluded=1.0, reason="no_signal"))
    run.play()
    assert run.run.state == "failed"
    assert run.run.error is not None
    assert run.run.error.startswith("more than 64 groups without signal were replaced (16 x prompts_per_step) and no")
    assert run.recorder.columns["excluded"]["no_signal"] >= MOST_REPLACED * B
