"""Simulated runs on the work of a real one: the same tokens for every arm and schedule, over and over."""

from __future__ import annotations

from typing import Any

import pytest

from planner.simulator.bounds import fluid_throughput
from planner.simulator.workload import Workload
from tests.simulator.builders import ARMS, make_setup, play
from tests.simulator.invariants import problems

GROUPS = ((100, 200, 300, 400), (50, 50, 50, 50), (10, 20, 30, 1000))


def test_recorded_groups_are_used_in_order_and_over_and_over() -> None:
    workload = Workload.of(make_setup(recorded=GROUPS))
    assert [workload.group(place) for place in range(5)] == [list(GROUPS[place % 3]) for place in range(5)]


@pytest.mark.parametrize("arm", ARMS)
def test_every_arm_consumes_the_tokens_that_were_recorded(arm: str) -> None:
    for staleness in (0, 1):
        setup = make_setup(arm=arm, recorded=GROUPS, staleness=staleness)
        trace = play(setup)
        assert problems(setup, trace) == []
        prompts = 4 * 30
        places = [place for step in trace.steps for place in step.places]
        assert sum(step.tokens for step in trace.steps) == sum(sum(GROUPS[place % 3]) + prompts for place in places)
        assert sum(step.tokens for step in trace.steps) / trace.wall_s < fluid_throughput(setup) * 1.05


def test_the_seed_of_a_recorded_run_moves_its_noise_and_not_its_work() -> None:
    one, other = (play(make_setup(recorded=GROUPS, seed=seed)) for seed in (0, 1))
    assert sum(step.tokens for step in one.steps) == sum(step.tokens for step in other.steps)
    assert one.wall_s != other.wall_s


@pytest.mark.parametrize(
    ("recorded", "told"),
    [
        ((), "at least 1 group, got none"),
        (((1, 2, 3, 4), (1, 2, 3)), r"4 responses of at least 1 token, group 1 has \(1, 2, 3\)"),
        (((1, 2, 3, 0),), "group 0 has"),
    ],
)
def test_recorded_work_that_is_none_is_refused(recorded: Any, told: str) -> None:
    with pytest.raises(ValueError, match=told):
        make_setup(recorded=recorded)
