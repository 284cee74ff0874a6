"""The gates in tables, with the arithmetic beside them; models are M = a + b * W / d."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.policy.gates import drain_prefix, gate_rollout_on_train, gate_train_on_rollout, split_groups
from planner.stage_model import StageModel


def model(a: float = 0, b: float = 1) -> StageModel:
    return StageModel(a=a, b=b)


# -- who gets which groups --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("groups", "primaries", "auxiliaries", "shares"),
    [
        pytest.param(5, 1, 1, (2, 3), id="2.5 goes up"),
        pytest.param(7, 3, 1, (5, 2), id="1.75 goes up"),
        pytest.param(1, 3, 1, (1, 0), id="0.25 is none"),
        pytest.param(2, 3, 1, (1, 1), id="0.5 goes up"),
        pytest.param(0, 3, 1, (0, 0), id="no groups"),
        pytest.param(8, 3, 0, (8, 0), id="no auxiliary"),
        pytest.param(8, 0, 3, (0, 8), id="no primary"),
    ],
)
def test_groups_are_shared_by_replicas_and_halves_go_to_the_auxiliaries(
    groups: int, primaries: int, auxiliaries: int, shares: tuple[int, int]
) -> None:
    assert split_groups(groups=groups, primaries=primaries, auxiliaries=auxiliaries) == shares


@given(groups=st.integers(0, 10**18), primaries=st.integers(1, 64), auxiliaries=st.integers(1, 64))
def test_shares_add_up_and_are_within_half_a_group_of_the_exact_share(
    groups: int, primaries: int, auxiliaries: int
) -> None:
    primary, auxiliary = split_groups(groups=groups, primaries=primaries, auxiliaries=auxiliaries)
    assert primary + auxiliary == groups
    assert primary >= 0
    replicas = primaries + auxiliaries
    assert -replicas < 2 * (auxiliary * replicas - auxiliaries * groups) <= replicas


@pytest.mark.parametrize("numbers", [(8, 0, 0), (-1, 1, 1), (8, -1, 2), (8, 2, -1)], ids=str)
def test_shares_without_replicas_or_of_negative_numbers_are_refused(numbers: tuple[int, int, int]) -> None:
    groups, primaries, auxiliaries = numbers
    with pytest.raises(ValueError, match=f"got {groups} groups, {primaries} primaries, {auxiliaries} auxiliaries"):
        split_groups(groups=groups, primaries=primaries, auxiliaries=auxiliaries)


# -- rollouter on TrainPool -------------------------------------------------------------------------------------------

ROLLOUT: dict[str, Any] = {
    "groups": 8,
    "primaries": 2,
    "auxiliaries": 2,
    "model": model(a=3, b=4),
    "in_s": 4.0,
    "out_s": 3.0,
}
"""8 groups: 3 + 4 * 8 / 2 = 19 s alone, 3 + 4 * 8 / 4 = 11 s together: a gain of 8 s against 7 s."""


@pytest.mark.parametrize(
    ("changes", "admit", "gain_s", "cost_s", "shares"),
    [
        pytest.param({}, True, 8.0, 7.0, (4, 4), id="8 s are more than 7 s"),
        pytest.param({"out_s": 4.0}, False, 8.0, 8.0, (8, 0), id="equality rejects"),
        pytest.param({"in_s": 8.0, "out_s": 0.0}, False, 8.0, 8.0, (8, 0), id="C_in alone counts as much"),
        pytest.param({"groups": 0, "in_s": 0, "out_s": 0}, False, 0.0, 0, (0, 0), id="no groups are missing"),
        pytest.param(
            {"groups": 1, "primaries": 3, "auxiliaries": 1, "in_s": 0, "out_s": 0},
            False,
            1 / 3,
            0,
            (1, 0),
            id="4/3 s - 4/4 s would pay, but Q_a = round(1/4) = 0",
        ),
        pytest.param({"auxiliaries": 0, "in_s": 0, "out_s": 0}, False, 0.0, 0, (8, 0), id="nothing to lend"),
        pytest.param({"in_s": math.inf}, False, 8.0, math.inf, (8, 0), id="a cost that is not known"),
        pytest.param({"in_s": math.nan}, False, 8.0, math.nan, (8, 0), id="a cost that is no number"),
        pytest.param({"primaries": 0}, True, math.inf, 7.0, (0, 8), id="all primaries are gone"),
    ],
)
def test_trainers_become_rollouters_only_when_the_gain_exceeds_the_cost(
    changes: dict[str, Any], admit: bool, gain_s: float, cost_s: float, shares: tuple[int, int]
) -> None:
    verdict = gate_rollout_on_train(**(ROLLOUT | changes))
    assert verdict.admit is admit
    assert verdict.gain_s == pytest.approx(gain_s)
    assert verdict.cost_s == pytest.approx(cost_s, nan_ok=True)
    assert (verdict.primary_groups, verdict.auxiliary_groups) == shares


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        (
            {},
            (
                "8 groups by 2 primaries and 2 auxiliaries take 11.0 s instead of 19.0 s: the gain of 8.00 s exceeds "
                "the switch cost of 7.00 s"
            ),
        ),
        (
            {"out_s": 4.0},
            (
                "8 groups by 2 primaries and 2 auxiliaries take 11.0 s instead of 19.0 s: the gain of 8.00 s does "
                "not exceed the switch cost of 8.00 s"
            ),
        ),
        ({"groups": 0}, "the trainer lacks no groups"),
        (
            {"groups": 1, "primaries": 3, "auxiliaries": 1},
            "none of 1 group falls to the auxiliaries beside 3 primaries and 1 auxiliary",
        ),
    ],
    ids=["admitted", "too dear", "no groups", "no share"],
)
def test_the_verdict_on_rollouters_says_why_with_its_numbers(changes: dict[str, Any], reason: str) -> None:
    assert gate_rollout_on_train(**(ROLLOUT | changes)).reason == reason


# -- trainer on RollPool ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("units", "in_s", "drained"),
    [
        pytest.param([10.0] * 4, 6.0, 2, id="M(10) = 3.5, M(20) = 6: equality drains"),
        pytest.param([10.0] * 4, 5.99, 1, id="a moment less: one"),
        pytest.param([10.0] * 4, 100.0, 4, id="all of them"),
        pytest.param([10.0] * 4, 0.0, 0, id="no time"),
        pytest.param([30.0, 1.0, 1.0], 6.0, 0, id="the small ones behind are not pulled forward"),
        pytest.param([10.0, 30.0, 1.0], 6.0, 1, id="nor those behind a large one"),
        pytest.param([], 6.0, 0, id="no units"),
        pytest.param([10.0] * 4, math.nan, 0, id="a time that is no number"),
    ],
)
def test_the_primaries_drain_whole_units_from_the_head_while_the_auxiliaries_prepare(
    units: list[float], in_s: float, drained: int
) -> None:
    assert drain_prefix(units=units, in_s=in_s, model=model(a=1, b=0.5), primaries=2) == drained


def test_drained_units_of_uneven_size_are_summed_exactly() -> None:
    assert drain_prefix(units=[0.1] * 12, in_s=1.0, model=model(), primaries=1) == 10


def test_without_primaries_nothing_is_drained() -> None:
    assert drain_prefix(units=[1.0], in_s=1e9, model=model(), primaries=0) == 0


TRAIN: dict[str, Any] = {
    "units": [8.0] * 4,
    "primaries": 1,
    "auxiliaries": 1,
    "model": model(),
    "in_s": 7.5,
    "out_s": 7.0,
    "grad_s": 1.0,
}
"""4 units of 8: 32 s alone; nothing is drained in 7.5 s; 16 s together; with the lease 7.5 + 16 + 7 + 1 = 31.5 s."""


@pytest.mark.parametrize(
    ("changes", "admit", "drained", "alone_s", "joint_s", "borrow_s"),
    [
        pytest.param({}, True, 0, 32.0, 16.0, 31.5, id="31.5 s are less than 32 s"),
        pytest.param({"out_s": 7.5}, False, 0, 32.0, 16.0, 32.0, id="equality rejects"),
        pytest.param({"grad_s": 1.5}, False, 0, 32.0, 16.0, 32.0, id="merging gradients counts"),
        pytest.param({"in_s": 8.0}, True, 1, 32.0, 12.0, 28.0, id="one unit is drained: 8 + 24 / 2 + 7 + 1"),
        pytest.param({"in_s": 32.0}, False, 4, 32.0, 0.0, 40.0, id="all are drained"),
        pytest.param({"units": []}, False, 0, 0.0, 0.0, 15.5, id="no work remains"),
        pytest.param({"auxiliaries": 0}, False, 0, 32.0, 32.0, 47.5, id="nothing to lend"),
        pytest.param({"out_s": math.nan}, False, 0, 32.0, 16.0, math.nan, id="a cost that is no number"),
        pytest.param({"primaries": 0}, True, 0, math.inf, 32.0, 47.5, id="all primaries are gone"),
    ],
)
def test_rollouters_become_trainers_only_when_the_work_ends_earlier(
    changes: dict[str, Any], admit: bool, drained: int, alone_s: float, joint_s: float, borrow_s: float
) -> None:
    verdict = gate_train_on_rollout(**(TRAIN | changes))
    assert verdict.admit is admit
    assert (verdict.drained, verdict.alone_s, verdict.joint_s) == (drained, alone_s, joint_s)
    assert verdict.borrow_s == pytest.approx(borrow_s, nan_ok=True)


def test_no_auxiliary_is_never_worth_a_lease_even_where_rounding_says_so() -> None:
    units, alone = [0.7, 0.1], model(b=3)
    in_s = alone.seconds(units[0], 1)
    free = gate_train_on_rollout(units=units, primaries=1, auxiliaries=0, model=alone, in_s=in_s, out_s=0, grad_s=0)
    assert (free.admit, free.drained, free.borrow_s) == (False, 1, pytest.approx(free.alone_s))


def test_the_gain_and_the_cost_of_a_trainers_lease_are_those_that_its_times_imply() -> None:
    verdict = gate_train_on_rollout(**TRAIN)
    assert (verdict.gain_s, verdict.cost_s) == (16.0, 15.5)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        (
            {"in_s": 8.0},
            (
                "4 units take 28.0 s with 1 auxiliary (1 while they prepare, the rest in 12.0 s, switching 16.0 s), "
                "which is less than 32.0 s without"
            ),
        ),
        (
            {"out_s": 7.5},
            (
                "4 units take 32.0 s with 1 auxiliary (0 while they prepare, the rest in 16.0 s, switching 16.0 s), "
                "which is not less than 32.0 s without"
            ),
        ),
        ({"in_s": 32.0}, "the primaries finish all 4 units within the 32.0 s of preparing"),
        ({"units": []}, "no trainer work remains"),
        ({"auxiliaries": 0}, "there is no auxiliary to lend"),
    ],
    ids=["admitted", "too dear", "all drained", "no work", "no auxiliary"],
)
def test_the_verdict_on_trainers_says_why_with_its_numbers(changes: dict[str, Any], reason: str) -> None:
    assert gate_train_on_rollout(**(TRAIN | changes)).reason == reason
