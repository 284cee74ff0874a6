"""What a lease turned out to be worth, and what the never-slower guard makes of it."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from engine.config import ScheduleConfig
from engine.run.lending import Lending
from planner.policy.guard import MIN_LEASES, OFF_S
from tests.engine.lent import ESTIMATES, Lent


def test_a_rollout_lease_has_won_its_groups_at_full_load_less_the_switch() -> None:
    # 3 groups of 2 s each, less 1 s in and 1 s out
    row = Lent().whole(2, start=100.0, groups=3)
    assert (row.measured_gain_s, row.regret_s) == (4.0, 0.0)


def test_a_training_lease_pays_only_for_the_part_of_its_way_home_that_nothing_hides() -> None:
    lent = Lent()
    lent.grant(0, 100.0)
    lent.ready(0, 100.5, 100.75)
    lent.work(0, 101.0)
    lent.lending.chunk_done(0, 4, 100)
    lent.lending.merged(0.5)
    lent.end(0, 110.0)
    row = lent.release(0, 110.25, 112.0)
    # 4 groups of 0.25 s, less 1 s in, less 0.5 s merging, less max(0, 2 out - (0.5 merging + 0.3 optimizer + 0.2 sync))
    assert row.measured_gain_s == pytest.approx(4 * 0.25 - 1.0 - 0.5 - (2.0 - 1.0))
    assert row.regret_s == pytest.approx(1.5)
    assert row.grad_s == 0.5


def test_a_training_lease_that_goes_on_is_measured_as_foretold_by_the_step_that_it_was_granted_in() -> None:
    lent = Lent()
    lent.grant(0, 100.0)
    lent.ready(0, 100.5, 100.75)
    lent.work(0, 101.0)
    lent.lending.chunk_done(0, 8, 100)
    lent.lending.step_closes(105.0)
    lent.lending.merged(0.5)
    lent.lending.chunk_done(0, 12, 100)
    lent.lending.step_closes(110.0)
    lent.end(0, 111.0)
    row = lent.release(0, 111.25, 111.5)
    # 1 s in, 0.5 s merging; the way home of 0.5 s is hidden; 20 groups of 0.25 s in all, 8 of them in the first step,
    # in which the two trainers at home would have trained them
    assert row.measured_gain_s == pytest.approx(20 * 0.25 - 1.5)
    assert row.foretold_gain_s == pytest.approx(8 * 0.25 / 2 - 1.5)
    assert lent.lending.guards["train_on_rollout"].gains_s == (row.measured_gain_s,), "the guard is told all of it"


def test_any_other_lease_is_measured_as_foretold_by_all_that_it_did() -> None:
    row = Lent().whole(2, start=100.0, groups=3)
    assert row.foretold_gain_s == row.measured_gain_s == 4.0
    lent = Lent()
    lent.grant(2, 100.0, alone_s=20.0)
    lent.ready(2, 100.5, 100.75)
    lent.end(2, 110.0)
    lent.release(2, 110.0, 111.0)
    lent.lending.step_closes(113.0)
    assert lent.rows[-1].foretold_gain_s == lent.rows[-1].measured_gain_s == 7.0


def test_a_lease_for_the_end_of_a_step_has_won_the_time_by_which_the_step_closed_earlier() -> None:
    lent = Lent()
    lent.grant(2, 100.0, alone_s=20.0)
    lent.ready(2, 100.5, 100.75)
    lent.work(2, 101.0)
    lent.end(2, 110.0)
    lent.lending.step_closes(113.0)
    lent.lending.step_closes(150.0)
    assert lent.release(2, 110.0, 111.0).measured_gain_s == 7.0  # 100 + 20 - 113


def test_a_lease_that_was_home_before_its_step_closed_is_measured_when_it_does() -> None:
    lent = Lent()
    lent.grant(2, 100.0, alone_s=20.0)
    lent.ready(2, 100.5, 100.75)
    lent.end(2, 110.0)
    assert lent.release(2, 110.0, 111.0).measured_gain_s is None
    assert lent.lending.guards["rollout_on_train"].gains_s == ()
    lent.lending.step_closes(125.0)
    assert lent.rows[-1].measured_gain_s == -5.0  # 100 + 20 - 125
    assert lent.rows[-1].regret_s == 5.0
    lent.lending.step_closes(150.0)
    assert lent.lending.guards["rollout_on_train"].gains_s == (-5.0,)


def test_leases_of_one_decision_share_what_it_won() -> None:
    lent = Lent()
    for device in (2, 3):
        lent.grant(device, 100.0, alone_s=20.0)
        lent.ready(device, 100.5, 100.75)
        lent.work(device, 101.0)
        lent.end(device, 110.0)
        lent.release(device, 110.0, 111.0)
    lent.lending.step_closes(114.0)
    assert [row.measured_gain_s for row in lent.rows[-2:]] == [3.0, 3.0]


def test_what_a_dead_lease_had_trained_and_not_shipped_is_not_delivered() -> None:
    lent = Lent()
    lent.grant(0, 100.0)
    lent.ready(0, 100.5, 100.75)
    lent.work(0, 101.0)
    lent.lending.chunk_done(0, 4, 100)
    lent.lending.die(0, 105.0, lost_groups=4)
    row = lent.rows[-1]
    assert (row.ended_by, row.groups, row.chunks, row.tokens, row.grad_s) == ("died", 0.0, 0, 0, None)
    assert not lent.lending.merged(0.5)


def test_a_lease_in_whose_step_a_worker_died_says_nothing_to_the_guard() -> None:
    lent = Lent()
    lent.grant(2, 100.0, alone_s=20.0)
    lent.ready(2, 100.5, 100.75)
    lent.work(2, 101.0)
    lent.end(2, 110.0)
    lent.release(2, 110.0, 111.0)
    lent.lending.die(0, 112.0)
    lent.lending.step_closes(150.0)
    assert lent.rows[-1].measured_gain_s == -30.0
    assert lent.lending.guards["rollout_on_train"].gains_s == ()
    lent.lending.back(0, 151.0)
    assert lent.whole(2, start=200.0, groups=5.0).measured_gain_s == 8.0
    assert lent.lending.guards["rollout_on_train"].gains_s == (8.0,)


def test_only_a_direction_that_is_held_off_is_told_as_such() -> None:
    lent, start = Lent(), 1000.0
    for place in range(MIN_LEASES):
        assert lent.lending.held_off(start) == {}
        lent.whole(2, start=start + 20 * place, groups=0.01 * place)
    now = start + 20 * MIN_LEASES
    assert set(lent.lending.held_off(now)) == {"rollout_on_train"}
    assert lent.lending.held_off(now + OFF_S) == {}


def test_a_forecast_that_never_ends_is_no_measure() -> None:
    lent = Lent()
    lent.grant(2, 100.0, alone_s=math.inf, gain_s=math.inf)
    lent.ready(2, 100.5, 100.75)
    lent.work(2, 101.0)
    lent.end(2, 110.0)
    row = lent.release(2, 110.0, 111.0)
    assert row.gain_s is None
    assert row.measured_gain_s == -2.0  # by its groups, of which there are none: the switch alone


def test_nothing_is_said_of_a_gain_without_estimates() -> None:
    lent = Lent()
    lent.grant(2, 100.0, gain_s=math.nan)
    lent.ready(2, 100.5, 100.75)
    lent.end(2, 110.0)
    row = lent.release(2, 110.0, 111.0, None)
    assert (row.gain_s, row.measured_gain_s, row.regret_s) == (None, None, None)


# -- the guard --------------------------------------------------------------------------------------------------------


def test_leases_that_lose_time_switch_their_direction_off_for_a_while() -> None:
    lent, start = Lent(), 1000.0
    for place in range(MIN_LEASES):
        assert lent.lending.open_directions(start) == {"rollout_on_train", "train_on_rollout"}
        # nothing gained, 2 s of switching, and not always alike
        lent.whole(2, start=start + 20 * place, groups=0.01 * place)
    now = start + 20 * MIN_LEASES
    assert lent.lending.open_directions(now) == {"train_on_rollout"}
    assert lent.lending.guards["rollout_on_train"].reason.startswith("off for")
    assert lent.lending.open_directions(now + OFF_S) == {"rollout_on_train", "train_on_rollout"}


def test_the_published_rules_and_greedy_borrowing_have_no_guard() -> None:
    for arm in ("bidirectional_paper", "opportunistic"):
        lent = Lent(arm)
        for place in range(2 * MIN_LEASES):
            lent.whole(2, start=1000.0 + 20 * place, groups=0.01 * place)
        assert lent.lending.open_directions(5000.0) == {"rollout_on_train", "train_on_rollout"}


@pytest.mark.parametrize("arm", ["rollout_on_train", "train_on_rollout"])
def test_an_arm_of_one_direction_lends_in_no_other(arm: str) -> None:
    assert Lent(arm).lending.open_directions(0.0) == {arm}


def test_where_nothing_can_be_lent_a_device_is_in_no_block() -> None:
    lending = Lending(
        run_id="run", schedule=ScheduleConfig(arm="no_borrow"), blocks=(), now=0.0, write=lambda row: None
    )
    assert (lending.blocks(), lending.block_of(3), lending.lease_on(3), lending.out) == ((), -1, None, False)
    lending.die(3, 1.0)
    lending.back(3, 2.0)


def test_a_slow_cost_is_told_as_it_is() -> None:
    costly = replace(ESTIMATES, full_load_group_s=0.0)
    lent = Lent()
    lent.grant(2, 100.0)
    lent.ready(2, 100.5, 100.75)
    lent.work(2, 130.0)
    lent.end(2, 140.0)
    assert lent.release(2, 140.0, 170.0, costly).measured_gain_s == -60.0
