"""When a gate is asked: once per idle window of a pool, and where gates come last, after everything else."""

from __future__ import annotations

import pytest

from planner.policy import actions as act
from planner.policy.idle import window_over
from planner.profile import TrainSpeed
from planner.simulator.simulator import Simulator
from tests.simulator.builders import make_profile, make_setup

WHY = "why"


@pytest.mark.parametrize(
    ("action", "direction"),
    [
        (act.TrainChunk(device=4, group_ids=(1,), reason=WHY), "rollout_on_train"),
        (act.StartGroups(device=0, count=1, reason=WHY), "train_on_rollout"),
        (act.ResumeGroups(device=0, group_ids=(1,), reason=WHY), "train_on_rollout"),
        (act.LoadWeights(device=0, version=1, reason=WHY), "train_on_rollout"),
        (act.TakeGroups(group_ids=(1,), reason=WHY), None),
        (act.ShipGradient(device=4, reason=WHY), None),
    ],
    ids=lambda value: type(value).__name__ if not isinstance(value, str | None) else str(value),
)
def test_an_idle_window_ends_with_work_and_the_roll_pools_with_a_version_too(
    action: act.Action, direction: str | None
) -> None:
    assert window_over(action) == direction


def test_the_published_rules_lend_for_the_last_steps_too_when_no_prompt_is_left_to_start() -> None:
    profile = make_profile(train=TrainSpeed(tokens_per_s=175.0, chunk_s=0.5, max_chunk_groups=2))
    split = {"rollout_devices": 12, "train_devices": 4}
    setup = make_setup(profile, arm="bidirectional_paper", streaming=False, staleness=4, steps=12, **split)
    trace = Simulator(setup).run()
    # four steps wait for slow trainers when the last prompt is started: each is a window of its own
    for step in trace.steps[-4:]:
        assert any(step.began_at <= lease.granted_at < step.ended_at for lease in trace.leases), step.version


def test_greedy_borrowing_lends_at_the_moment_in_which_the_other_pool_got_all_that_it_can_take() -> None:
    setup = make_setup(arm="opportunistic", streaming=False, staleness=4, rollout_devices=4, train_devices=12)
    trace = Simulator(setup).run()
    assert trace.leases[0].granted_at == 0.0
    assert trace.leases[0].direction == "rollout_on_train"
