"""When a step ends under a division of the devices, by hand: rollout work flows, its tail follows, then training."""

from __future__ import annotations

import math
from typing import Any

import pytest

from planner.policy.returns import Plan, best, counts_to_try, end_lending, end_returning
from planner.policy.step_end import StepWork, rolled_in, step_end


def make_work(**overrides: Any) -> StepWork:
    """6 groups at 2 s a rollouter, the last one 3 s late; none is trainable yet; a trainer takes 2 s a group."""
    fields: dict[str, Any] = {
        "rollout": 6.0,
        "tail_s": 3.0,
        "trainable": 0,
        "untrained": 6,
        "group_s": 2.0,
        "train_s": 2.0,
        "helpers": 0,
        "helpers_in_s": 0.0,
    }
    return StepWork(**(fields | overrides))


@pytest.mark.parametrize(
    ("rollouters", "seconds"),
    [
        pytest.param([(0.0, 2)], 9.0, id="12 replica-seconds by two, and the tail: 6 + 3"),
        pytest.param([(0.0, 2), (2.0, 4)], 7.0, id="4 by two, then 8 by four: 2 + 2 + 3"),
        pytest.param([(0.0, 2), (4.0, 1)], 11.0, id="8 by two, then 4 by one: 4 + 4 + 3"),
        pytest.param([(0.0, 0), (5.0, 3)], 12.0, id="nobody for 5 s, then 12 by three: 5 + 4 + 3"),
        pytest.param([(0.0, 2), (2.0, 0)], math.inf, id="all leave before the work is done"),
    ],
)
def test_rollout_work_is_shared_by_those_that_are_there(rollouters: list[tuple[float, int]], seconds: float) -> None:
    assert rolled_in(make_work(), rollouters) == pytest.approx(seconds)


def test_a_step_whose_groups_are_all_generated_waits_for_no_rollouter() -> None:
    assert rolled_in(make_work(rollout=0.0), [(0.0, 0)]) == 0.0


@pytest.mark.parametrize(
    ("overrides", "trainers", "seconds"),
    [
        # two rollouters: the first group after 0.6 * 3 = 1.8 s, the last one after 9 s
        pytest.param({}, [(0.0, 1)], 13.8, id="3.6 of 6 groups from 1.8 s to 9 s, the other 2.4 in 4.8 s"),
        pytest.param({"train_s": 0.5}, [(0.0, 1)], 9.5, id="the last group is trained when it is there: 9 + 0.5"),
        pytest.param({"trainable": 2}, [(0.0, 1)], 12.0, id="it begins at once: 4.5 groups until 9 s, 1.5 in 3 s"),
        pytest.param({}, [(0.0, 0), (5.0, 1)], 17.0, id="home at 5 s: 2 groups until 9 s, 4 in 8 s"),
        pytest.param({}, [(0.0, 0)], math.inf, id="nobody trains"),
        pytest.param(
            {"helpers": 2, "helpers_in_s": 1.0},
            [(0.0, 1)],
            10 + 1.9 / 1.5,
            id="two more from 9 + 1 s: 4.1 groups until then, 1.9 at 1.5 a second",
        ),
        pytest.param(
            {"rollout": 0.0, "trainable": 4, "untrained": 4}, [(0.0, 2)], 4.0, id="all are there: 4 groups by two"
        ),
    ],
)
def test_a_step_ends_when_its_last_group_is_trained(
    overrides: dict[str, Any], trainers: list[tuple[float, int]], seconds: float
) -> None:
    assert step_end(make_work(**overrides), [(0.0, 2)], trainers) == pytest.approx(seconds)


# -- lending and coming home ------------------------------------------------------------------------------------------


def make_plan(**overrides: Any) -> Plan:
    fields: dict[str, Any] = {
        "home_rollouters": 2,
        "trainers": 2,
        "lent": 0,
        "auxiliaries": 1,
        "primaries": 1,
        "in_s": 1.0,
        "out_s": 1.0,
    }
    return Plan(**(fields | overrides))


def test_lending_a_block_takes_its_trainer_away_and_it_comes_home_when_that_is_best() -> None:
    work = make_work(rollout=4.0, tail_s=0.0, untrained=4)  # 8 replica-seconds
    # nobody lent: generated in 4 s, by then all 4 groups could be trained; the last one ends at 4 + 2 s
    assert end_lending(work, make_plan(), 0) == pytest.approx(6.0)
    # one of two lent, generating from 1 s on, when 2 of the 8 are done:
    # home at once: generated in 4 s; trained 1 until 2 s and 2 until 4 s; the last group at 4 + 2 = 6 s
    # half way, at 2 s: generated in 2 + 3 / 2 = 3.5 s, home at 3 s; trained 1.5 + 0.5, 2 left at 1 a second: 5.5 s
    # at the end, at 3 s: home at 4 s; trained 1.5 + 0.5, 2 left: 6 s
    assert end_lending(work, make_plan(), 1) == pytest.approx(5.5)


def test_a_block_that_goes_home_generates_no_more_and_trains_after_the_way_home() -> None:
    work = make_work(tail_s=0.0, trainable=2, untrained=8)  # 12 replica-seconds
    lent = make_plan(trainers=1, lent=1)
    # two rollouters take 6 s; a trainer until 1 s, then two: 0.5 + 5 groups until 6 s, the other 2.5 in 2.5 s
    assert end_returning(work, lent, 1) == pytest.approx(8.5)
    # home at 2 s instead: generated in 5 s, trained 1.5 + 2 until then, 4.5 left: 9.5 s; at 4 s: 10.5 s
    assert end_returning(work, lent, 0) == pytest.approx(8.5)  # nothing is better than to go at once


def test_of_equal_ends_the_one_that_moves_fewer_blocks_is_taken() -> None:
    assert best([(5.0, 3), (4.0, 2), (4.0, 1), (6.0, 0)]) == (4.0, 1)


@pytest.mark.parametrize(
    ("most", "counts"), [(0, [0]), (1, [0, 1]), (3, [0, 1, 2, 3]), (8, [0, 1, 2, 4, 6, 8])], ids=str
)
def test_no_more_than_seven_counts_are_tried(most: int, counts: list[int]) -> None:
    assert counts_to_try(most) == counts
