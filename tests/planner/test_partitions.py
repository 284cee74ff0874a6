"""Partitions: what is feasible and why not, the ranking and its ties, and what it says of borrowing."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.partitions import Candidate, Plan, feasible_partitions, plan, plan_profile
from planner.profile import SwitchCosts
from planner.stage_model import StageModel
from tests.planner.profiles import make_profile

COSTS = {
    "rollout_on_train": SwitchCosts(in_s=7.7, out_s=5.59),
    "train_on_rollout": SwitchCosts(in_s=6.16, out_s=5.62, grad_s=1.21),
}


def make_plan(**overrides: Any) -> Plan:
    given_: dict[str, Any] = {
        "devices": 16,
        "layouts": [(1, 4)],
        "prompts_per_step": 64,
        "workload": 64.0,
        "rollout": StageModel(a=0, b=4),
        "train": StageModel(a=0, b=4),
    }
    return plan(**given_ | overrides)


def split(candidate: Candidate | None) -> tuple[int, int]:
    assert candidate is not None
    return candidate.rollout_devices, candidate.train_devices


# -- feasible ---------------------------------------------------------------------------------------------------------


@given(devices=st.integers(1, 200), rho_r=st.integers(1, 12), rho_t=st.integers(1, 12))
def test_feasible_partitions_are_exactly_the_splits_with_own_and_cross_divisibility(
    devices: int, rho_r: int, rho_t: int
) -> None:
    expected = [
        (g_r, devices - g_r)
        for g_r in range(1, devices)
        if all(g % rho == 0 for g in (g_r, devices - g_r) for rho in (rho_r, rho_t))
    ]
    assert feasible_partitions(devices, rho_r, rho_t) == expected
    planned = make_plan(devices=devices, layouts=[(rho_r, rho_t)])
    assert sorted(split(each) for each in planned.candidates if each.feasible) == expected
    assert len(planned.candidates) == devices - 1, "every split is there, whatever it is"


@pytest.mark.parametrize(
    ("layout", "g_r", "borrow", "reason"),
    [
        ((4, 1), 2, True, "2 rollout devices are fewer than the rollout replica size 4"),
        ((4, 1), 1, True, "1 rollout device is fewer than the rollout replica size 4"),
        ((4, 1), 6, True, "6 rollout devices are not a multiple of the rollout replica size 4"),
        ((1, 4), 13, True, "3 trainer devices are fewer than the trainer replica size 4"),
        ((1, 4), 6, False, "10 trainer devices are not a multiple of the trainer replica size 4"),
        ((2, 4), 12, True, None),
        ((1, 8), 8, True, None),
        (
            (4, 3),
            4,
            True,
            "4 rollout devices are not a multiple of the trainer replica size 3, so they cannot all be lent",
        ),
        ((4, 3), 4, False, None),
    ],
)
def test_an_infeasible_split_says_why(layout: tuple[int, int], g_r: int, borrow: bool, reason: str | None) -> None:
    planned = make_plan(layouts=[layout], borrow=borrow)
    candidate = next(each for each in planned.candidates if each.rollout_devices == g_r)
    assert candidate.reason == reason
    assert candidate.feasible == (reason is None)
    assert (candidate.rate is None) == (reason is not None)


def test_when_nothing_is_feasible_there_is_no_plan_but_every_reason() -> None:
    planned = make_plan(layouts=[(3, 4)])
    assert (planned.best, planned.best_borrowing) == (None, None)
    assert len(planned.candidates) == 15
    assert all(each.reason for each in planned.candidates)


def test_without_borrowing_a_pool_need_not_be_able_to_host_the_other_role() -> None:
    assert make_plan(devices=7, layouts=[(4, 3)], borrow=True).best is None
    assert split(make_plan(devices=7, layouts=[(4, 3)], borrow=False).best) == (4, 3)


# -- rates and ranking ------------------------------------------------------------------------------------------------


def test_a_candidate_by_hand() -> None:
    # 4 rollout replicas: 64 * 4 / 4 = 64 s; 3 trainer replicas: 256 / 3 = 85.33 s
    best = make_plan().best
    assert best == Candidate(
        rollout_devices=4,
        train_devices=12,
        rollout_replica_size=1,
        train_replica_size=4,
        feasible=True,
        reason=None,
        rollout_replicas=4,
        train_replicas=3,
        rate_rollout=1.0,
        rate_train=0.75,
        rate=0.75,
        step_s=256 / 3,
        idle_fraction=1 / 16,  # the 4 rollout devices wait a quarter of the time
        borrowing_step_s=None,
    )


def test_candidates_are_ranked_by_rate_and_infeasible_ones_come_last() -> None:
    planned = make_plan()
    assert [split(each) for each in planned.candidates[:3]] == [(4, 12), (8, 8), (12, 4)]
    assert not any(each.feasible for each in planned.candidates[3:])


def test_the_layout_is_chosen_with_the_split() -> None:
    planned = make_plan(layouts=[(1, 4), (1, 1), (1, 1)])
    assert planned.best is not None
    assert (planned.best.train_replica_size, *split(planned.best)) == (1, 8, 8)
    assert len(planned.candidates) == 2 * 15, "a layout given twice counts once"


class Table:
    """Seconds from a table by the number of replicas."""

    def __init__(self, seconds: dict[int, float]) -> None:
        self._seconds = seconds

    def seconds(self, workload: float, replicas: int) -> float:
        return self._seconds[replicas]


def ranked_splits(rollout_s: dict[int, float], train_s: dict[int, float]) -> list[int]:
    planned = make_plan(
        devices=len(rollout_s) + 1, layouts=[(1, 1)], rollout=Table(rollout_s), train=Table(train_s), borrow=False
    )
    return [each.rollout_devices for each in planned.candidates]


def test_equal_rates_are_ordered_by_the_larger_one_then_by_fewer_rollout_devices() -> None:
    # g_r = 1, 2, 3 with g_t = 3, 2, 1: each step takes 10 s; the other pool 8, 5 and 8 s
    assert ranked_splits({1: 10, 2: 10, 3: 10}, {3: 8, 2: 5, 1: 8}) == [2, 1, 3]


def test_rates_a_billionth_apart_are_equal_and_a_chain_of_them_is_cut_from_the_fastest_down() -> None:
    # 0.7e-9 apart each: 1 and 2 are equal to the fastest (2), 3 is not, although it is within 1e-9 of 1
    fastest = 10.0
    rollout_s = {2: fastest, 1: fastest * (1 + 0.7e-9), 3: fastest * (1 + 1.4e-9)}
    assert ranked_splits(rollout_s, {3: 5, 2: 5, 1: 1}) == [1, 2, 3]


@given(
    seconds=st.lists(st.integers(1, 4), min_size=2, max_size=12),
    jitters=st.lists(st.floats(-3e-9, 3e-9), min_size=12, max_size=12),
)
def test_no_candidate_stands_before_one_that_is_more_than_a_billionth_faster(
    seconds: list[int], jitters: list[float]
) -> None:
    rollout_s = {d: s * (1 + jitters[d % 12]) for d, s in enumerate(seconds, start=1)}
    train_s = dict.fromkeys(rollout_s, 0.5)
    order = ranked_splits(rollout_s, train_s)
    assert sorted(order) == sorted(rollout_s)
    for faster, slower in pairwise(order):
        assert rollout_s[faster] <= rollout_s[slower] * (1 + 1.01e-9)


# -- borrowing --------------------------------------------------------------------------------------------------------


def test_borrowing_flattens_the_choice_and_may_prefer_another_split() -> None:
    planned = make_plan(rollout=StageModel(a=77, b=11.7), train=StageModel(a=3.9, b=3.5), **COSTS)
    feasible = [each for each in planned.candidates if each.feasible]
    steps = [each.step_s or math.nan for each in feasible]
    borrowing = [each.borrowing_step_s or math.nan for each in feasible]
    assert max(steps) / min(steps) > 1.4
    assert max(borrowing) / min(borrowing) < 1.1
    assert split(planned.best) == (8, 8)
    assert split(planned.best_borrowing) == (12, 4)


def test_nothing_is_predicted_of_borrowing_where_the_job_does_not_borrow_or_costs_are_unknown() -> None:
    for planned in (make_plan(borrow=False, **COSTS), make_plan()):
        assert planned.best is not None
        assert planned.best_borrowing is None
        assert all(each.borrowing_step_s is None for each in planned.candidates)
    assert make_plan(borrow=False).notes == ()
    assert make_plan().notes == ("the switch costs are not known, so nothing is predicted about borrowing",)


# -- notes, refusals and the job's plan -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("staleness", "notes"),
    [
        (None, 0),
        (0.0, 0),
        (1 / 64, 0),
        (2.0, 0),
        (0.01, 1),
    ],
)
def test_a_staleness_too_small_to_matter_is_said(staleness: float | None, notes: int) -> None:
    planned = make_plan(staleness=staleness, **COSTS)
    assert len(planned.notes) == notes
    if notes:
        assert planned.notes[0] == (
            "staleness 0.01 lets no group of a step of 64 be older than the trainer's version, as staleness 0 would; "
            "the first that lets one is 0.01562"
        )


def test_one_device_has_no_split_and_is_told_of_the_arm_without_pools() -> None:
    planned = make_plan(devices=1, **COSTS)
    assert planned.candidates == ()
    assert planned.notes == ("1 device cannot be split into two pools; the arm colocated needs none",)


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ({"devices": 0}, "devices must be at least 1, got 0"),
        ({"layouts": []}, r"needs at least 1 layout \(rollout replica size, trainer replica size\), got none"),
        ({"layouts": [(1, 0)]}, "replica sizes must be at least 1, got 1 for rollout and 0 for train"),
        ({"prompts_per_step": 0}, "at least 1 group and a workload above 0, got 0 and 64.0"),
        ({"workload": 0.0}, "at least 1 group and a workload above 0, got 64 and 0.0"),
        ({"train": StageModel(a=0, b=0)}, "the train model must give a step of 64 groups on 3 replicas a time above 0"),
    ],
)
def test_bad_input_is_refused_with_its_value(overrides: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make_plan(**overrides)


def test_a_job_is_planned_from_its_profile() -> None:
    planned = plan_profile(make_profile(), devices=16, layouts=[(1, 4)], prompts_per_step=64, group_size=8)
    assert split(planned.best) == (8, 8), "the study's best static split of the base regime"
    assert all(each.borrowing_step_s is not None for each in planned.candidates if each.feasible)
    off = plan_profile(make_profile(), devices=16, layouts=[(1, 4)], prompts_per_step=64, group_size=8, borrow=False)
    assert off.best_borrowing is None
    assert len([each for each in off.candidates if each.feasible]) == 3
