"""What operators asked for goes before the arm: recalls, moves, the cap on lent devices, the shortest lease."""

from __future__ import annotations

import math
from typing import Any

import pytest

from planner.policy.actions import EndLease, Lend, Move, Refuse
from planner.policy.decide import decide
from planner.policy.state import Limits, Moving
from planner.policy.steered import steering, within
from tests.policy.builders import full_step, make_block, make_rollout, make_state, make_train

ARMS = ("no_borrow", "opportunistic", "bidirectional_paper", "bidirectional")


def moving(block: int, to: str, **overrides: Any) -> Moving:
    return Moving(**({"block": block, "to": to, "home": (block,), "awaited": False} | overrides))


def lend(block: int, direction: Any = "rollout_on_train") -> Lend:
    return Lend(block=block, direction=direction, gain_s=3.0, cost_s=1.0, reason="it pays")


def end(block: int, *, revoke: bool = False) -> EndLease:
    return EndLease(block=block, lease=5, revoke=revoke, reason="it is over")


@pytest.mark.parametrize("arm", ARMS)
def test_a_rollouter_that_is_to_train_leaves_at_once_whatever_it_generates(arm: str) -> None:
    state = make_state(
        arm=arm,
        rollout=(make_rollout(0, in_flight=5), make_rollout(1)),
        train=(make_train(2),),
        moving=(moving(0, "train"),),
    )
    assert decide(state, 0.0) == [Move(block=0, to="train", reason="the partition changes: it goes to the TrainPool")]


@pytest.mark.parametrize("busy", ["chunk", "evaluate", "gradient", "optimizer", "checkpoint"])
def test_a_trainer_that_is_to_generate_leaves_when_it_has_done_what_it_was_handed(busy: str) -> None:
    trainers = (make_train(1, busy=busy, leaving=True), make_train(2))
    state = make_state(train=trainers, moving=(moving(1, "rollout"),))
    assert steering(state) == []
    idle = make_state(train=(make_train(1, leaving=True), make_train(2)), moving=(moving(1, "rollout"),))
    assert [type(action) for action in steering(idle)] == [Move]


def test_a_trainer_that_an_evaluation_waits_for_does_not_leave() -> None:
    state = make_state(train=(make_train(1), make_train(2)), moving=(moving(1, "rollout", awaited=True),))
    assert steering(state) == []


@pytest.mark.parametrize("arm", ARMS)
def test_a_trainer_that_is_to_leave_begins_no_chunk(arm: str) -> None:
    leaving, other = make_train(1, leaving=True, busy="chunk", chunks=1, groups=1), make_train(2)
    state = make_state(
        arm=arm, train=(leaving, other), moving=(moving(1, "rollout"),), step=full_step(queue=(0, 1, 2, 3))
    )
    devices = {action.device for action in decide(state, 0.0) if type(action).__name__ == "TrainChunk"}
    assert devices == {2}


@pytest.mark.parametrize("arm", ARMS)
@pytest.mark.parametrize("state_of_lease", ["preparing", "working"])
def test_a_lent_block_that_is_to_move_is_called_home_first(arm: str, state_of_lease: str) -> None:
    block = make_block(1, "train", lease=7, lease_state=state_of_lease)
    state = make_state(arm=arm, blocks=(block,), train=(make_train(2),), moving=(moving(1, "rollout"),))
    (called,) = decide(state, 0.0)
    assert isinstance(called, EndLease)
    assert (called.block, called.lease, called.revoke, called.reason) == (1, 7, False, "it goes to the RollPool")


@pytest.mark.parametrize("state_of_lease", ["draining", "releasing"])
def test_one_that_is_on_its_way_home_is_not_called_again(state_of_lease: str) -> None:
    block = make_block(1, "train", lease=7, lease_state=state_of_lease)
    assert steering(make_state(blocks=(block,), recalled=frozenset({1}), moving=(moving(1, "rollout"),))) == []


def test_a_dead_block_does_not_move() -> None:
    block = make_block(0, "rollout", lease_state="dead")
    assert steering(make_state(blocks=(block,), moving=(moving(0, "train"),))) == []


def test_a_lease_whose_direction_is_off_ends_under_every_arm() -> None:
    block = make_block(1, "train", lease=7)
    for arm in ARMS:
        (called,) = decide(make_state(arm=arm, blocks=(block,), recalled=frozenset({1})), 0.0)
        assert isinstance(called, EndLease)
        assert called.reason == "the settings lend in this direction no more"


def test_a_run_that_stops_moves_nothing_and_one_that_pauses_does() -> None:
    assert steering(make_state(stopping=True, moving=(moving(0, "train"),))) == []
    assert len(steering(make_state(paused=True, moving=(moving(0, "train"),)))) == 1


def test_leases_beyond_the_cap_are_refused_once_per_idle_window() -> None:
    home = [make_block(block, "train", devices=2) for block in (1, 3, 5)]
    blocks = (*home, make_block(7, "train", devices=2, lease=4))
    state = make_state(blocks=blocks, limits=Limits(lend_cap=5))
    found = within(state, 0.0, [lend(1), lend(3), lend(5)])
    assert found == [lend(1)], "four devices are out, and a lease of the same window says all there is to say"
    full = make_state(blocks=blocks, limits=Limits(lend_cap=3))
    (refused,) = within(full, 0.0, [lend(1), lend(3)])
    assert isinstance(refused, Refuse)
    assert refused.reason == "an operator allows 3 lent devices at a time; it pays"
    told = make_state(blocks=blocks, limits=Limits(lend_cap=3), refused=frozenset({"rollout_on_train"}))
    assert within(told, 0.0, [lend(1)]) == []


def test_a_cap_of_nothing_lends_nothing() -> None:
    state = make_state(blocks=(make_block(1, "train"),), limits=Limits(lend_cap=0))
    assert [type(action) for action in within(state, 0.0, [lend(1)])] == [Refuse]


def test_a_young_lease_does_not_end_and_an_operator_may_take_it_back() -> None:
    blocks = (make_block(1, "train", lease=5, since=10.0),)
    state = make_state(blocks=blocks, limits=Limits(min_lease_s=4.0))
    assert within(state, 13.9, [end(1)]) == []
    assert within(state, 14.0, [end(1)]) == [end(1)]
    assert within(state, 10.0, [end(1, revoke=True)]) == [end(1, revoke=True)]


def test_a_block_that_is_to_move_is_not_lent() -> None:
    state = make_state(blocks=(make_block(1, "train"),), moving=(moving(1, "rollout"),))
    assert within(state, 0.0, [lend(1)]) == []


def test_without_limits_the_arm_has_its_way() -> None:
    actions = [lend(1), end(2)]
    assert within(make_state(), math.inf, actions) is actions
