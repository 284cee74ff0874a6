"""What `bidirectional` reckons with before it lends, by hand: the small picture of `test_borrow`, B = 4, a group takes
a rollouter 4 s and a trainer 2 s, a switch 1 s each way, a group's latency is 8 s."""

from __future__ import annotations

import math
from typing import Any

import pytest

from planner.policy.outlook import Outlook, outlook_of
from planner.policy.returns import plan_of, work_of
from planner.policy.state import Block, Returned
from planner.stage_model import StageModel
from tests.policy.builders import B, bound, finished, make_block, make_estimates, make_rollout, make_step, make_train
from tests.policy.test_borrow import ROLL_0, ROLL_1, TRAIN_2, TRAIN_3, lending_state


def make_view(now: float = 0.0, trainable: int = 0, **overrides: Any) -> Outlook:
    """Two rollouters and two trainers at home at s = 1."""
    return outlook_of(lending_state("bidirectional", **({"bound": bound(1)} | overrides)), now, trainable)


def blocks(*changed: Block) -> tuple[Block, ...]:
    """The four blocks, some of them changed."""
    given = {block.block: block for block in (ROLL_0, ROLL_1, TRAIN_2, TRAIN_3, *changed)}
    return tuple(given.values())


@pytest.mark.parametrize(
    ("block", "lease_state", "rollouters", "trainers"),
    [
        pytest.param(1, "preparing", 2, 3, id="it will train"),
        pytest.param(1, "working", 2, 2, id="its replicas are in the picture already"),
        pytest.param(1, "draining", 2, 2, id="they still are"),
        pytest.param(1, "releasing", 3, 2, id="it will generate again"),
        pytest.param(3, "preparing", 3, 2, id="it will generate"),
        pytest.param(3, "releasing", 2, 3, id="it will train again"),
    ],
)
def test_blocks_between_two_roles_count_in_the_one_that_they_go_to(
    block: int, lease_state: str, rollouters: int, trainers: int
) -> None:
    lent = make_block(block, "rollout" if block < 2 else "train", lease=7, lease_state=lease_state)
    view = make_view(blocks=blocks(lent))
    assert (view.rollouters, view.trainers) == (rollouters, trainers)


def test_a_dead_block_is_neither_at_home_nor_lent() -> None:
    dead = (make_block(1, "rollout", lease_state="dead"), make_block(3, "train", lease=7, lease_state="dead"))
    view = make_view(blocks=blocks(*dead))
    assert (view.home_rollout, view.home_train, view.lent_rollout, view.lent_train) == ((ROLL_0,), (TRAIN_2,), (), ())
    assert view.auxiliaries == ()


@pytest.mark.parametrize(
    ("now", "lease_state", "age_s"),
    [
        pytest.param(15.0, "working", 4.0, id="granted at 10 s, at work since 11 s"),
        pytest.param(10.5, "preparing", 0.0, id="it prepares"),
    ],
)
def test_a_lease_is_as_old_as_its_work(now: float, lease_state: str, age_s: float) -> None:
    view = make_view(now, blocks=blocks(make_block(3, "train", lease=7, lease_state=lease_state, since=10.0)))
    assert [(lent.block, lent.age_s) for lent in view.auxiliaries] == [(3, age_s)]


def test_auxiliaries_on_their_way_home_bring_no_more_groups() -> None:
    assert make_view(blocks=blocks(make_block(3, "train", lease=7, lease_state="releasing"))).auxiliaries == ()


# -- rates ------------------------------------------------------------------------------------------------------------


def test_the_trainers_run_dry_when_the_stock_does() -> None:
    view = make_view(trainable=2, unconsumed=finished(1, 2, 3, 4))
    # nobody generates, two trainers take a group a second: the 4 finished ones, and 2 more while the step goes on
    assert view.dry_in(0, 2, at_close=True) == pytest.approx(4.0)
    assert view.dry_in(0, 2, at_close=False) == pytest.approx(6.0)
    assert view.dry_in(0, 0, at_close=False) == math.inf
    assert view.dry_in(8, 2, at_close=False) == math.inf


def test_steps_that_are_under_way_at_once_share_the_tail() -> None:
    slow = make_estimates(rollout=StageModel(a=3.0, b=4.0))
    # 4 groups at 4 s by two replicas take 8 s, and 3 s of tail, which at s = 1 two steps have at the same time
    assert make_view(bound=bound(0), estimates=slow).steady_rate(2) == pytest.approx(4 / (8 + 3))
    assert make_view(bound=bound(1), estimates=slow).steady_rate(2) == pytest.approx(4 / (8 + 1.5))
    assert make_view(bound=bound(1), estimates=slow).steady_rate(0) == 0.0


def test_a_role_that_is_half_full_is_slower() -> None:
    view = make_view()
    # a replica with one of two groups runs at 1 / (1 + 1), a full one at 2 / (2 + 1): 3/4 of 2 replicas / 4 s
    assert view.supply(2, 2.0) == pytest.approx(0.75 * 0.5)
    assert view.supply(2, 4.0) == pytest.approx(0.5)
    assert view.supply(2, 40.0) == pytest.approx(0.5)
    assert view.supply(2, 0.0) == 0.0


def test_a_lease_delivers_when_its_first_groups_have_gone_all_the_way() -> None:
    empty: dict[str, Any] = {"started": 2 * B}
    # two auxiliaries finish 2 / 4 groups a second, in the 16 - 8 s that are left after a latency of 8 s
    assert make_view(**empty).supply_over(16.0, 2) == pytest.approx(0.5 * 8 / 16)
    assert make_view(**empty).supply_over(8.0, 2) == 0.0
    lent = make_block(3, "train", lease=7, since=10.0)
    working: dict[str, Any] = {"blocks": blocks(lent), "rollout": (make_rollout(3, block=3, lease=7),)}
    # one that has worked for 4 s delivers after 4 s more
    assert make_view(15.0, **empty, **working).supply_over(16.0, 0) == pytest.approx(0.25 * 12 / 16)
    assert make_view(15.0, **empty, **working).supply_over(16.0, 0, frozenset({3})) == 0.0


@pytest.mark.parametrize(
    ("trainers", "newly_lent", "length_s"),
    [
        # the others start 2 / 4 groups a second, the trainer that stays opens as many; its own rollouter takes 1 / 4
        pytest.param(2, 0, 6 / 0.25, id="none is lost while it prepares, 0.25 a second then"),
        pytest.param(2, 2, (6 - 0.5) / 0.75, id="two lent ones more start 0.5 meanwhile, and 0.75 are left a second"),
        pytest.param(4, 0, 64.0, id="more is opened than started: as far as is foreseen, 8 latencies of 8 s"),
    ],
)
def test_a_lease_lasts_while_there_are_groups_to_start(trainers: int, newly_lent: int, length_s: float) -> None:
    assert make_view().lease_length(6, TRAIN_3, trainers, newly_lent) == pytest.approx(length_s)


@pytest.mark.parametrize(
    ("overrides", "supply", "share"),
    [
        # of two trainers at 0.5 groups a second each the block's is the last to be served, over 10 s
        pytest.param({}, 0.75, 0.5, id="half of it is left to it"),
        pytest.param({}, 0.25, 0.0, id="the other one takes all"),
        pytest.param({}, 2.0, 1.0, id="more than both can train"),
        pytest.param({"trainable": 1, "unconsumed": finished(1)}, 0.75, 0.9, id="2 that are there add 0.2 a second"),
    ],
)
def test_a_block_would_be_busy_at_home_for_what_the_other_trainers_leave(
    overrides: dict[str, Any], supply: float, share: float
) -> None:
    assert make_view(**overrides).use_at_home(TRAIN_3, 2, 10.0, supply) == pytest.approx(share)


# -- what is left of a step -------------------------------------------------------------------------------------------


def test_the_work_of_a_step_is_what_its_groups_still_need() -> None:
    slow = make_estimates(rollout=StageModel(a=3.0, b=4.0))
    state: dict[str, Any] = {
        "bound": bound(0),
        "estimates": slow,
        "started": 3,
        "rollout": tuple(make_rollout(device, block=device, in_flight=1, left_groups=1.0) for device in (0, 1)),
        "returned": (Returned(group_id=2, version=0, on_policy=True),),
    }
    # two in flight and one that came back, all at their beginning, and one that is not started
    work = work_of(make_view(**state), helpers=True)
    assert (work.rollout, work.untrained, work.trainable) == (4.0, 4, 0)
    assert (work.group_s, work.train_s, work.tail_s) == (4.0, 2.0, 3.0)
    # optimizer and weight sync 1 s each, and the next step's first group after 0.6 of the tail
    assert work.spare_s == pytest.approx(1 + 1 + 0.6 * 3)
    assert (work.helpers, work.helpers_in_s) == (2, 1.0)
    assert work_of(make_view(**state), helpers=False).helpers == 0


def test_a_chunk_that_runs_is_half_done() -> None:
    step = make_step(taken=((0, bound(0)),) * B, trained=1)
    train = (make_train(2, block=2, busy="chunk", chunks=1, groups=2), make_train(3, block=3))
    view = make_view(bound=bound(0), started=B, step=step, train=train, trainable=1)
    # 4 of the step, 1 trained, 2 in a chunk of which one is expected to be done
    assert work_of(view, helpers=False).untrained == 2
    assert work_of(view, helpers=False).rollout == 0


def test_the_plan_counts_replicas_by_where_they_are() -> None:
    lent = make_block(2, "train", lease=7)
    rollout = (make_rollout(0, block=0), make_rollout(1, block=1), make_rollout(2, block=2, lease=7))
    plan = plan_of(make_view(blocks=blocks(lent), rollout=rollout, train=(make_train(3, block=3),)))
    assert (plan.home_rollouters, plan.trainers, plan.lent, plan.auxiliaries, plan.primaries) == (2, 1, 1, 1, 1)
    assert (plan.in_s, plan.out_s) == (1.0, 1.0)
