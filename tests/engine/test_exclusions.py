"""When a run ends since too many of its groups are excluded, and when it does not."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.run.exclusions import LEAST_WINDOW, MOST_REPLACED, Exclusions
from tests.engine.simulated import Physics
from tests.engine.simulated_run import SimulatedRun, make_job

B = 4


def fail(exclusions: Exclusions, count: int, reason: str = "reward_failed") -> None:
    for _ in range(count):
        exclusions.excluded(reason, "the last one said why")


def test_half_of_the_newest_groups_may_fail_and_not_one_more() -> None:
    exclusions = Exclusions(B)
    for _ in range(LEAST_WINDOW // 2):
        exclusions.scored()
        fail(exclusions, 1)
    assert exclusions.complaint is None
    fail(exclusions, 1)  # the oldest, a scored one, is no longer among the newest
    assert exclusions.complaint is not None
    assert exclusions.complaint.startswith(f"17 of the last {LEAST_WINDOW} groups have no reward")
    assert exclusions.complaint.endswith("the last one said why")
    assert exclusions.counts == {"reward_failed": 17}


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
    assert "65 groups without signal were replaced" in exclusions.complaint
    assert exclusions.counts == {"no_signal": 2 * MOST_REPLACED * B + 1}


@pytest.mark.parametrize("arm", ["no_borrow", "bidirectional", "colocated"])
def test_a_run_whose_rewards_all_fail_ends_with_a_sentence(arm: str, tmp_path: Path) -> None:
    sections = {"schedule": {"arm": arm}, "task": {"items": 1000}}
    if arm == "colocated":
        sections["devices"] = {"partition": "auto"}
    run = SimulatedRun(make_job(**sections), tmp_path, physics=Physics(excluded=1.0))
    run.play()
    assert (run.run.state, run.consumed()) == ("failed", [])
    assert run.run.error is not None
    assert "of the last 32 groups have no reward, which is more than half of them: no answer could" in run.run.error
    assert LEAST_WINDOW <= run.recorder.columns["excluded"]["reward_failed"] < 2 * LEAST_WINDOW
