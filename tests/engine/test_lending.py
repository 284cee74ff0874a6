"""The life of a lease as the engine lives it."""

from __future__ import annotations

import pytest

from tests.engine.lent import Lent


def test_a_lease_is_written_at_each_change_of_its_life() -> None:
    lent = Lent()
    row = lent.whole(2, start=100.0, groups=3)
    assert lent.states() == ["preparing", "working", "releasing", "released"]
    assert (row.lease, row.direction, row.block, row.devices) == (0, "rollout_on_train", 2, [2])
    times = (row.granted_at, row.ready_at, row.working_at, row.ended_at, row.released_at)
    assert times == (100.0, 100.75, 101.0, 110.0, 111.0)
    assert (row.ended_by, row.end_reason, row.reason) == ("policy", "it is over", "it pays")
    assert (row.in_s, row.out_s, row.tokens, row.groups) == (1.0, 1.0, 100, 3)
    assert row.phases == {"in_told": 0.5, "in_load": 0.25, "out_told": 0.25, "out_load": 0.5}


def test_a_chunk_that_ends_first_is_not_part_of_the_way_home() -> None:
    lent = Lent()
    lent.grant(0, 100.0)
    lent.ready(0, 100.5, 100.75)
    lent.work(0, 101.0)
    lent.end(0, 110.0, draining=True)
    lent.lending.chunk_done(0, 2, 50)
    row = lent.release(0, 113.0, 114.0)
    # the chunk took from 110 to 113, the way home from 113 to 114
    assert (row.out_s, row.phases["out_chunk"], row.chunks, row.groups) == (1.0, 3.0, 1, 2)
    assert lent.states() == ["preparing", "working", "draining", "released"]


def test_a_preparation_under_the_optimizer_step_costs_from_when_the_device_took_it_up() -> None:
    lent = Lent()
    lent.grant(2, 100.0, hidden=True)
    lent.ready(2, 104.0, 104.5)
    lent.work(2, 105.0)
    lent.end(2, 106.0)
    assert lent.release(2, 106.0, 107.0).in_s == 1.0


def test_a_lease_that_ends_while_it_prepares_is_unused_and_never_works() -> None:
    lent = Lent()
    lent.grant(2, 100.0)
    lent.end(2, 100.5)
    assert not lent.ready(2, 100.4, 100.75), "the role must not be entered any more"
    row = lent.release(2, 101.0, 102.0)
    assert (row.ended_by, row.in_s, row.working_at, row.ready_at) == ("unused", None, None, 100.75)


def test_a_lease_under_which_nothing_was_done_is_unused() -> None:
    lent = Lent()
    lent.grant(2, 100.0)
    lent.ready(2, 100.5, 100.75)
    lent.end(2, 101.0)
    assert lent.release(2, 101.0, 102.0).ended_by == "unused"


def test_ending_a_lease_twice_keeps_the_first_reason_and_time() -> None:
    lent = Lent()
    lent.grant(0, 100.0)
    lent.ready(0, 100.5, 100.75)
    lent.end(0, 110.0, draining=True)
    lease = lent.end(0, 111.0, revoke=True, draining=True)
    assert (lease.ended_at, lease.ended_by) == (110.0, "policy")


@pytest.mark.parametrize("end", ["died", "run_ended"])
@pytest.mark.parametrize("state", ["preparing", "working", "draining", "releasing"])
def test_a_lease_is_cut_in_any_state_when_its_device_dies_or_the_run_ends(state: str, end: str) -> None:
    lent = Lent()
    lent.grant(0, 100.0)
    if state != "preparing":
        lent.ready(0, 100.5, 100.75)
    if state in ("draining", "releasing"):
        lent.end(0, 105.0, draining=state == "draining")
    if end == "died":
        lent.lending.die(0, 106.0)
    else:
        lent.lending.close(106.0)
    row = lent.rows[-1]
    assert (row.state, row.ended_by, row.released_at, row.measured_gain_s) == ("released", end, 106.0, None)
    assert row.ended_at == (105.0 if state in ("draining", "releasing") else 106.0)
    assert not lent.lending.out
    assert lent.lending.over == (end == "run_ended")


def test_a_dead_device_is_not_lent_before_it_lives_again() -> None:
    lent = Lent()
    lent.lending.die(2, 50.0)
    assert [block.lease_state for block in lent.lending.blocks()] == ["", "", "dead", ""]
    with pytest.raises(AssertionError, match="device 2 is dead"):
        lent.grant(2, 51.0)
    lent.lending.back(2, 60.0)
    assert lent.grant(2, 61.0).life.lease_id == 0


def test_a_device_is_lent_under_one_lease_at_a_time() -> None:
    lent = Lent()
    lent.grant(2, 100.0)
    with pytest.raises(AssertionError, match="device 2 is lent already"):
        lent.grant(2, 101.0)
    with pytest.raises(AssertionError, match="reports lease 7, not 0"):
        lent.lending.working(2, 7, 101.0)


def test_what_was_reserved_is_used_up_by_what_is_pulled_and_given_up_with_the_lease() -> None:
    lent = Lent()
    lent.grant(2, 100.0, reserved_groups=3)
    lent.lending.pulled(2, 2)
    lent.lending.pulled(0, 1)
    assert [block.reserved for block in lent.lending.blocks()] == [0, 0, 1, 0]
    lent.end(2, 101.0)
    assert not any(block.reserved for block in lent.lending.blocks())


def test_auxiliary_work_is_booked_on_the_lease_that_is_out() -> None:
    lent = Lent()
    lent.lending.worked(2, 1.0, 0.5)
    lease = lent.grant(2, 100.0)
    lent.lending.worked(2, 2.0, 1.5)
    lent.lending.generated(2, 9, 50, 1.0)  # of a lease that is over
    lent.lending.generated(2, 0, 20, 0.5)
    assert (lease.busy_s, lease.cpu_s, lease.tokens, lease.groups) == (2.0, 1.5, 20, 0.5)
