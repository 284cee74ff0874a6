"""What the arms that lend decide in one small picture: blocks 0 and 1 of the RollPool, 2 and 3 of the TrainPool, one
device each; B = 4. A group takes a rollouter 4 s and a trainer 2 s, a switch 1 s each way."""

from __future__ import annotations

import math
from typing import Any

import pytest

from planner.policy import actions as act
from planner.policy.decide import decide
from planner.policy.improvements import ALL
from planner.policy.state import Returned, RolloutReplica, State, TrainReplica
from planner.profile import SwitchCosts
from tests.policy.builders import (
    B,
    bound,
    finished,
    full_step,
    make_block,
    make_estimates,
    make_rollout,
    make_state,
    make_step,
    make_train,
)

LENDING_ARMS = ("opportunistic", "bidirectional_paper", "bidirectional", "rollout_on_train", "train_on_rollout")
ROLLOUT_ON_TRAIN, TRAIN_ON_ROLLOUT = "rollout_on_train", "train_on_rollout"
ROLL_0, ROLL_1, TRAIN_2, TRAIN_3 = (make_block(block, "rollout" if block < 2 else "train") for block in range(4))


def rollouter(device: int, **overrides: Any) -> RolloutReplica:
    fields: dict[str, Any] = {"block": device, "free_groups": 2, "lease": 7 if device >= 2 else None}
    return make_rollout(device, **(fields | overrides))


def trainer(device: int, **overrides: Any) -> TrainReplica:
    fields: dict[str, Any] = {"block": device, "lease": 7 if device < 2 else None}
    return make_train(device, **(fields | overrides))


def lending_state(arm: str, **overrides: Any) -> State:
    """At s = 0 the step begins, everybody is at home and idle."""
    fields: dict[str, Any] = {
        "arm": arm,
        "streaming": arm not in ("opportunistic", "bidirectional_paper"),
        "bound": bound(0),
        "rollout": (rollouter(0), rollouter(1)),
        "train": (trainer(2), trainer(3)),
        "blocks": (ROLL_0, ROLL_1, TRAIN_2, TRAIN_3),
        "estimates": make_estimates(),
        "improvements": ALL,
        "chunks_ahead": 1,
    }
    return make_state(**(fields | overrides))


def batch_state(arm: str, **overrides: Any) -> State:
    """All of the step's groups are taken and none is trained; nothing may be started before the next version."""
    fields: dict[str, Any] = {"started": B, "step": full_step(staleness=0, queue=(1, 2, 3, 4))}
    return lending_state(arm, **(fields | overrides))


def actions_of(state: State, kind: type, now: float = 0.0) -> list[Any]:
    """The actions of this kind, each with a reason."""
    actions = decide(state, now)
    assert actions == decide(state, now)
    assert all(action.reason for action in actions)
    return [action for action in actions if isinstance(action, kind)]


def lends(state: State, now: float = 0.0) -> list[tuple[int, str]]:
    return [(lend.block, lend.direction) for lend in actions_of(state, act.Lend, now)]


def ends(state: State, now: float = 0.0) -> list[tuple[int, bool]]:
    return [(end.block, end.revoke) for end in actions_of(state, act.EndLease, now)]


def starts(state: State, now: float = 0.0) -> list[tuple[int, int]]:
    return [(start.device, start.count) for start in actions_of(state, act.StartGroups, now)]


# -- the published gates ----------------------------------------------------------------------------------------------


def test_the_paper_lends_an_idle_train_pool_as_a_whole_and_reserves_its_share_before_primaries_pull() -> None:
    state = lending_state("bidirectional_paper")
    # 4 groups: 4 * 4 / 2 = 8 s by two rollouters, 4 s by four; the gain of 4 s exceeds 1 + 1; Q_a = 2/4 * 4 = 2
    assert lends(state) == [(2, ROLLOUT_ON_TRAIN), (3, ROLLOUT_ON_TRAIN)]
    assert [(lend.reserved_groups, lend.gain_s, lend.cost_s) for lend in actions_of(state, act.Lend)] == [
        (1, 4.0, 2.0),
        (1, 4.0, 2.0),
    ]
    assert starts(state) == []


def test_the_paper_lends_an_idle_roll_pool_when_the_batch_waits() -> None:
    slow = make_estimates(train_on_rollout=SwitchCosts(in_s=1.0, out_s=0.5, grad_s=0.25))
    # T_no = 4 * 2 / 2 = 4 s; one unit is drained in 1 s, three by four trainers take 1.5 s: 1 + 1.5 + 0.75 = 3.25 s
    state = batch_state("bidirectional_paper", estimates=slow)
    assert lends(state) == [(0, TRAIN_ON_ROLLOUT), (1, TRAIN_ON_ROLLOUT)]
    # at 1 + 1.5 + 1.5 = 4 s it is not less
    assert lends(batch_state("bidirectional_paper")) == []


DEAR = make_estimates(rollout_on_train=SwitchCosts(in_s=3.0, out_s=1.0))
"""A lease costs the 4 s that it would gain."""


@pytest.mark.parametrize(
    ("state", "direction", "reason"),
    [
        pytest.param(
            lending_state("bidirectional_paper", estimates=DEAR),
            ROLLOUT_ON_TRAIN,
            "the gain of 4.00 s does not exceed the switch cost of 4.00 s",
            id="rollouters",
        ),
        pytest.param(
            batch_state("bidirectional_paper"), TRAIN_ON_ROLLOUT, "which is not less than 4.00 s without", id="trainers"
        ),
    ],
)
def test_the_paper_refuses_with_a_reason_and_asks_once_in_an_idle_window(
    state: State, direction: str, reason: str
) -> None:
    (refusal,) = actions_of(state, act.Refuse)
    assert refusal.direction == direction
    assert reason in refusal.reason
    others = [action for action in decide(state, 0.0) if not isinstance(action, act.Refuse)]
    assert others  # the primaries go on
    asked = State(**{name: getattr(state, name) for name in State.__slots__} | {"refused": frozenset({direction})})
    assert decide(asked, 0.0) == others


@pytest.mark.parametrize(
    "overrides",
    [
        pytest.param({"train": (trainer(2, busy="chunk", chunks=1), trainer(3))}, id="a trainer works"),
        pytest.param({"unconsumed": finished(1, 2, 3, 4, staleness=0), "started": B}, id="the trainer lacks nothing"),
        pytest.param({"closing_since": 0.0, "step": full_step(staleness=0, trained=B)}, id="the step is being made"),
        pytest.param(
            {"blocks": (ROLL_0, ROLL_1, TRAIN_2, make_block(3, "train", lease_state="dead"))}, id="a block is dead"
        ),
        pytest.param({"estimates": None}, id="nothing is known of the costs"),
    ],
)
def test_the_paper_asks_no_gate_for_rollouters(overrides: dict[str, Any]) -> None:
    state = lending_state("bidirectional_paper", **overrides)
    assert [lend for lend in lends(state) if lend[1] == ROLLOUT_ON_TRAIN] == []
    assert [r for r in actions_of(state, act.Refuse) if r.direction == ROLLOUT_ON_TRAIN] == []


# -- reservations -----------------------------------------------------------------------------------------------------


def reserving(lease_state: str = "preparing", *, arm: str = "bidirectional_paper", **overrides: Any) -> State:
    """Two groups are started, two may be; both are reserved for blocks 2 and 3, lent at 10 s."""
    lent = {"lease": 7, "lease_state": lease_state, "since": 10.0, "reserved": 1}
    fields: dict[str, Any] = {
        "started": 2,
        "rollout": (rollouter(0, in_flight=1, free_groups=1), rollouter(1, in_flight=1, free_groups=1)),
        "train": (),
        "blocks": (ROLL_0, ROLL_1, make_block(2, "train", **lent), make_block(3, "train", **lent)),
    }
    return lending_state(arm, **(fields | overrides))


def test_primaries_leave_reserved_groups_alone_until_twice_the_preparing_time_is_over() -> None:
    assert starts(reserving(), now=11.0) == []
    assert starts(reserving(), now=12.0) == []  # 2 * C_in = 2 s
    assert starts(reserving(), now=12.1) == [(0, 1), (1, 1)]


def test_primaries_start_what_is_not_reserved() -> None:
    assert starts(reserving(started=1), now=11.0) == [(0, 1)]


def test_a_primary_that_has_run_dry_takes_a_reserved_group() -> None:
    state = reserving(rollout=(rollouter(0), rollouter(1, in_flight=1, free_groups=1)))
    assert starts(state, now=11.0) == [(0, 1)]


def test_an_auxiliary_takes_what_is_reserved_for_its_block_and_no_more() -> None:
    own = (rollouter(2), rollouter(3))
    home = (rollouter(0, in_flight=1, free_groups=1), rollouter(1, in_flight=1, free_groups=1))
    assert starts(reserving("working", rollout=home + own), now=11.0) == [(2, 1), (3, 1)]
    # a third group may be started: nothing of it is the auxiliaries'
    assert starts(reserving("working", rollout=home + own, started=1), now=11.0) == [(0, 1), (2, 1), (3, 1)]


def test_an_auxiliary_of_ours_is_filled_to_capacity_and_nothing_is_reserved() -> None:
    state = reserving(
        "working",
        arm="bidirectional",
        rollout=(rollouter(0, in_flight=2, free_groups=0), rollouter(2)),
        blocks=(ROLL_0, make_block(2, "train", lease=7, since=10.0)),
    )
    assert starts(state, now=11.0) == [(2, 2)]


# -- greedy borrowing -------------------------------------------------------------------------------------------------

FULL = (rollouter(0, in_flight=2, free_groups=0), rollouter(1, in_flight=2, free_groups=0))
"""Rollouters without room."""


def test_opportunistic_lends_idle_pools_without_asking_a_model() -> None:
    dear = make_estimates(
        rollout_on_train=SwitchCosts(in_s=1e6, out_s=1e6), train_on_rollout=SwitchCosts(in_s=1e6, out_s=1e6)
    )
    state = lending_state("opportunistic", bound=bound(1), started=4, rollout=FULL, estimates=dear)
    assert lends(state) == [(2, ROLLOUT_ON_TRAIN), (3, ROLLOUT_ON_TRAIN)]
    assert all(math.isnan(lend.gain_s) for lend in actions_of(state, act.Lend))
    step = full_step(staleness=0, queue=(3, 4), trained=1)
    busy = (trainer(2, busy="chunk", chunks=1), trainer(3, busy="chunk", chunks=1))
    assert lends(batch_state("opportunistic", step=step, train=busy, estimates=dear)) == [
        (0, TRAIN_ON_ROLLOUT),
        (1, TRAIN_ON_ROLLOUT),
    ]


def test_opportunistic_lets_the_primaries_pull_first_and_lends_only_for_what_is_left() -> None:
    assert lends(lending_state("opportunistic")) == []
    assert starts(lending_state("opportunistic")) == [(0, 2), (1, 2)]
    assert lends(lending_state("opportunistic", started=B, rollout=FULL)) == []  # nothing may be started


# -- ours -------------------------------------------------------------------------------------------------------------


def test_ours_lends_the_training_block_that_would_be_idle_at_home_and_keeps_the_one_that_is_busy() -> None:
    state = lending_state("bidirectional", bound=bound(1), started=4, rollout=FULL)
    # two full rollouters finish 0.5 groups/s, which is what one of the trainers trains
    assert lends(state) == [(2, ROLLOUT_ON_TRAIN)]


def test_ours_lends_rollout_blocks_when_nothing_may_be_started_and_charges_no_return_that_is_hidden() -> None:
    # as the paper's case above, but C_out is hidden by C_grad, optimizer and weight sync: 1 + 1.5 + 0.5 = 3 s of 4
    assert lends(batch_state("bidirectional")) == [(0, TRAIN_ON_ROLLOUT), (1, TRAIN_ON_ROLLOUT)]
    assert lends(batch_state("bidirectional", improvements=ALL.without("cheap_return"))) == []


def test_ours_lends_no_rollout_block_while_a_group_may_be_started_or_without_work() -> None:
    assert lends(batch_state("bidirectional", started=B - 1, rollout=FULL)) == []
    assert lends(batch_state("bidirectional", step=full_step(staleness=0, queue=(), trained=B))) == []


# -- what every arm respects ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("arm", LENDING_ARMS)
def test_a_direction_that_is_switched_off_is_respected(arm: str) -> None:
    for direction in (ROLLOUT_ON_TRAIN, TRAIN_ON_ROLLOUT):
        only = {"directions": frozenset({direction})}
        found = {
            kind
            for state in (
                lending_state(arm, **only),
                lending_state(arm, **only, bound=bound(1), started=4, rollout=FULL),
                batch_state(arm, **only),
            )
            for _, kind in lends(state)
        }
        assert found <= {direction}
        none = {"directions": frozenset[str]()}
        assert lends(lending_state(arm, **none, bound=bound(1), started=4, rollout=FULL)) == []
        assert lends(batch_state(arm, **none)) == []


@pytest.mark.parametrize("lease_state", ["preparing", "working", "draining", "releasing"])
@pytest.mark.parametrize("arm", LENDING_ARMS)
def test_no_lease_opens_against_an_active_one_of_the_other_direction(arm: str, lease_state: str) -> None:
    lent = make_block(1, "rollout", lease=7, lease_state=lease_state)
    free = {"bound": bound(1), "started": 4, "rollout": FULL[:1], "blocks": (ROLL_0, lent, TRAIN_2, TRAIN_3)}
    working = (trainer(1),) if lease_state in ("working", "draining") else ()
    state = lending_state(arm, **free, train=(*working, trainer(2), trainer(3)))
    assert [lend for lend in lends(state) if lend[1] == ROLLOUT_ON_TRAIN] == []
    lent = make_block(3, "train", lease=7, lease_state=lease_state)
    state = batch_state(arm, train=(trainer(2),), blocks=(ROLL_0, ROLL_1, TRAIN_2, lent))
    assert [lend for lend in lends(state) if lend[1] == TRAIN_ON_ROLLOUT] == []


@pytest.mark.parametrize("flag", ["paused", "stopping"])
@pytest.mark.parametrize("arm", LENDING_ARMS)
def test_a_run_that_pauses_or_stops_takes_its_leases_back_and_begins_nothing(arm: str, flag: str) -> None:
    blocks = (
        make_block(0, "rollout", lease=6, lease_state="preparing"),
        make_block(1, "rollout", lease=7, lease_state="draining"),
        make_block(2, "train", lease=8, lease_state="working"),
        make_block(3, "train", lease=9, lease_state="releasing"),
    )
    state = lending_state(
        arm,
        **{flag: True},
        blocks=blocks,
        rollout=(rollouter(2),),
        train=(trainer(1, ready=False),),
        step=make_step(queue=(1, 2), taken=((0, bound(0)),) * 2),
        unconsumed=finished(3, 4, staleness=0),
        returned=(Returned(group_id=5, version=0, on_policy=True),),
    )
    assert ends(state) == [(0, True), (2, True)]
    assert all(isinstance(action, act.EndLease) for action in decide(state, 0.0))


# -- ends -------------------------------------------------------------------------------------------------------------


def lent_train(arm: str, *, lease_state: str = "working", reserved: int = 0, **overrides: Any) -> State:
    """Block 2 generates, block 3 is at home; all groups that may be are started."""
    fields: dict[str, Any] = {
        "started": B,
        "rollout": (*FULL, rollouter(2, in_flight=1, free_groups=1)),
        "train": (trainer(3),),
        "blocks": (
            ROLL_0,
            ROLL_1,
            make_block(2, "train", lease=7, lease_state=lease_state, reserved=reserved),
            TRAIN_3,
        ),
    }
    return lending_state(arm, **(fields | overrides))


@pytest.mark.parametrize("arm", LENDING_ARMS[:4])
def test_a_lease_of_rollouters_ends_when_they_hold_nothing_and_nothing_may_be_started(arm: str) -> None:
    assert ends(lent_train(arm)) == []
    empty = (*FULL, rollouter(2))
    assert ends(lent_train(arm, rollout=empty)) == [(2, False)]
    assert ends(lent_train(arm, rollout=empty, lease_state="draining")) == []


@pytest.mark.parametrize("arm", LENDING_ARMS[:2])
def test_a_whole_batch_calls_the_trainers_home_whatever_they_generate(arm: str) -> None:
    batch: dict[str, Any] = {
        "step": full_step(staleness=0, queue=(3, 4)),
        "train": (trainer(3, busy="chunk", chunks=1),),
    }
    for lease_state in ("preparing", "working"):
        (end,) = actions_of(lent_train(arm, lease_state=lease_state, **batch), act.EndLease)
        assert (end.block, end.lease, end.revoke) == (2, 7, False)
        assert end.reason == "the trainer has a batch"


def lent_rollout(arm: str, **overrides: Any) -> State:
    """Block 1 trains, block 0 is at home."""
    fields: dict[str, Any] = {
        "started": B,
        "rollout": (rollouter(0),),
        "train": (trainer(1), trainer(2), trainer(3)),
        "blocks": (ROLL_0, make_block(1, "rollout", lease=7), TRAIN_2, TRAIN_3),
        "step": full_step(staleness=0, queue=(), trained=2),
    }
    return lending_state(arm, **(fields | overrides))


@pytest.mark.parametrize("arm", LENDING_ARMS[:2])
def test_a_lease_of_trainers_ends_when_no_chunk_is_left_for_them(arm: str) -> None:
    busy = {"busy": "chunk", "chunks": 1}
    home = (trainer(2, **busy), trainer(3, **busy))
    assert ends(lent_rollout(arm, train=(trainer(1), *home))) == [(1, False)]
    assert ends(lent_rollout(arm, train=(trainer(1, **busy), *home))) == []


# -- the step's end ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("arm", LENDING_ARMS)
def test_only_primaries_make_the_step_when_everybody_has_shipped(arm: str) -> None:
    trained = full_step(staleness=0, trained=B)
    shipped = tuple(trainer(device, shipped=True, ready=device > 1) for device in (1, 2, 3))
    draining = (ROLL_0, make_block(1, "rollout", lease=7, lease_state="draining"), TRAIN_2, TRAIN_3)
    state = lent_rollout(arm, step=trained, train=shipped, blocks=draining, directions=frozenset[str]())
    (finish,) = actions_of(state, act.FinishStep)
    assert finish.devices == (2, 3)
    unshipped = lent_rollout(
        arm, step=trained, train=(trainer(1, ready=False), *shipped[1:]), blocks=draining, directions=frozenset[str]()
    )
    assert actions_of(unshipped, act.FinishStep) == []
    assert [ship.device for ship in actions_of(unshipped, act.ShipGradient)] == [1]


@pytest.mark.parametrize("arm", LENDING_ARMS)
def test_no_step_is_made_while_one_is_being_made_or_without_a_primary_at_home(arm: str) -> None:
    trained = full_step(staleness=0, trained=B)
    shipped = (trainer(2, shipped=True), trainer(3, shipped=True))
    closing = lending_state(arm, started=B, step=trained, train=shipped, closing_since=0.0)
    away = lent_rollout(arm, step=trained, train=(trainer(1, shipped=True),))
    for state in (closing, away):
        assert actions_of(state, act.FinishStep) == []
        assert actions_of(state, act.ShipGradient) == []


@pytest.mark.parametrize("flag", ["", "stopping"])
def test_an_auxiliary_writes_no_checkpoint(flag: str) -> None:
    step = make_step(checkpoint_due=True)
    state = lent_rollout("bidirectional", step=step, **({flag: True} if flag else {}))
    assert [checkpoint.device for checkpoint in actions_of(state, act.Checkpoint)] == [2]
