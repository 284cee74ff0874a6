"""What the arms that lend decide in one small picture: blocks 0 and 1 of the RollPool, 2 and 3 of the TrainPool, one
device each; B = 4. A group takes a rollouter 4 s and a trainer 2 s, a switch 1 s each way."""

from __future__ import annotations

import math
from typing import Any

import pytest

from planner.policy import actions as act
from planner.policy.decide import decide
from planner.policy.improvements import ALL, Improvements
from planner.policy.staleness import Unconsumed
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


def test_the_paper_counts_as_missing_only_what_is_neither_taken_nor_finished() -> None:
    flying = (rollouter(0, in_flight=1, free_groups=1), rollouter(1, in_flight=1, free_groups=1))
    state = lending_state(
        "bidirectional_paper", started=4, rollout=flying, unconsumed=finished(0, 1, staleness=0), bound=bound(0)
    )
    # 2 groups: 4 s by two rollouters, 2 s by four; the gain of 2 s does not exceed 1 + 1. All 4 would gain 4 s
    (refusal,) = actions_of(state, act.Refuse)
    assert refusal.reason.startswith("2 groups by 2 primaries and 2 auxiliaries take 2.00 s instead of 4.00 s")


def test_the_papers_reservations_add_up_to_the_auxiliaries_share() -> None:
    cheap = make_estimates(rollout_on_train=SwitchCosts(in_s=0.5, out_s=0.5))
    state = lending_state("bidirectional_paper", step=make_step(taken=((0, bound(0)),) * 2), estimates=cheap)
    # 2 groups are missing: Q_a = 2/4 * 2 = 1 for two blocks; the gain of 2 s exceeds 0.5 + 0.5
    assert [(lend.block, lend.reserved_groups) for lend in actions_of(state, act.Lend)] == [(2, 1), (3, 0)]


def test_the_paper_lends_no_rollouters_while_a_group_may_be_started_or_continued() -> None:
    cheap = make_estimates(train_on_rollout=SwitchCosts(in_s=0.1, out_s=0.1, grad_s=0.1))
    waiting = (Returned(group_id=9, version=0, on_policy=False),)
    assert lends(batch_state("bidirectional_paper", estimates=cheap)) == [(0, TRAIN_ON_ROLLOUT), (1, TRAIN_ON_ROLLOUT)]
    assert lends(batch_state("bidirectional_paper", estimates=cheap, bound=bound(1))) == []  # 8 - 4 may be started
    assert lends(batch_state("bidirectional_paper", estimates=cheap, returned=waiting)) == []


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


def test_an_auxiliary_leaves_what_nobody_has_reserved_to_the_primaries_even_when_they_have_no_room() -> None:
    full = (rollouter(0, in_flight=2, free_groups=0), rollouter(1, in_flight=2, free_groups=0))
    # four groups may be started and each auxiliary has room for two, one is reserved for each
    state = reserving("working", rollout=(*full, rollouter(2), rollouter(3)), started=0)
    assert starts(state, now=11.0) == [(2, 1), (3, 1)]


@pytest.mark.parametrize("arm", LENDING_ARMS)
def test_a_replica_with_old_weights_starts_nothing_while_its_groups_may_not_go_on_under_newer_ones(arm: str) -> None:
    """Of 2 * 4 groups that version 0 may start at s = 1 half are started: it is not the cap that holds it back."""
    for may_update, expected in ((False, []), (True, [(0, 1)])):
        old = rollouter(0, in_flight=1, free_groups=1, may_update_in_flight=may_update)
        state = lending_state(
            arm,
            bound=bound(1),
            published=1,
            started=4,
            rollout=(old,),
            step=make_step(version=1),
            directions=frozenset[str](),
        )
        assert starts(state) == expected


# -- longest groups first ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("upcoming", "changes", "picks"),
    [
        # longest first 3, 1, 2, 0, dealt to the two replicas in turn
        pytest.param((10.0, 30.0, 20.0, 40.0), ALL, [(3, 2), (1, 0)], id="all four are known"),
        pytest.param((10.0, 30.0), ALL, [(1, 2), (0, 3)], id="what is not known comes behind in its order"),
        pytest.param((), ALL, [(), ()], id="nothing is known"),
        pytest.param((10.0, 30.0, 20.0, 40.0), ALL.without("longest_first"), [(), ()], id="switched off"),
    ],
)
def test_the_longest_groups_start_first(
    upcoming: tuple[float, ...], changes: Improvements, picks: list[tuple[int, ...]]
) -> None:
    state = lending_state("bidirectional", upcoming=upcoming, improvements=changes, directions=frozenset[str]())
    found = actions_of(state, act.StartGroups)
    assert [(start.device, start.count, start.picks) for start in found] == [(0, 2, picks[0]), (1, 2, picks[1])]


def test_an_auxiliary_of_ours_is_filled_to_capacity_and_nothing_is_reserved() -> None:
    state = reserving(
        "working",
        arm="bidirectional",
        rollout=(rollouter(0, in_flight=2, free_groups=0), rollouter(2)),
        blocks=(ROLL_0, make_block(2, "train", lease=7, since=10.0)),
    )
    assert starts(state, now=11.0) == [(2, 2)]


# -- the published tail -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("idle", "now", "groups"),
    [
        # the other one's chunk of 2 groups, begun at 9 s, ends at 9 + 2 * 2 = 13 s
        pytest.param(2, 10.0, (1, 2), id="two here end at 14 s, one there at 15 s; three here at 16 s"),
        pytest.param(2, 13.0, (1, 2), id="1 and 2 both end at 17 s: the primary takes more"),
        pytest.param(0, 13.0, (1,), id="1 and 2 both end at 17 s: the auxiliary takes less"),
    ],
)
def test_the_paper_splits_the_last_groups_so_that_both_sides_end_together(
    idle: int, now: float, groups: tuple[int, ...]
) -> None:
    sides = [trainer(0), trainer(2)]
    busy = {"busy": "chunk", "chunks": 1, "groups": 2, "busy_since": 9.0}
    train = tuple(side if side.device == idle else trainer(side.device, **busy) for side in sides)
    blocks = (make_block(0, "rollout", lease=7, since=5.0), ROLL_1, TRAIN_2)
    state = batch_state(
        "bidirectional_paper",
        rollout=(rollouter(1),),
        train=train,
        blocks=blocks,
        max_chunk_groups=4,
        step=full_step(staleness=0, queue=(1, 2, 3), trained=0),
    )
    assert [(chunk.device, chunk.group_ids) for chunk in actions_of(state, act.TrainChunk, now)] == [(idle, groups)]


@pytest.mark.parametrize(
    ("ahead", "groups"),
    [
        # both end their chunks of 2 groups, begun at 9 s, at 13 s, though one is handed its next chunk at 10 s already
        pytest.param(2, (1, 2), id="the primary: two each end at 17 s; with three here the last ends at 19 s"),
        pytest.param(0, (1, 2), id="the auxiliary likewise"),
    ],
)
def test_the_paper_splits_the_tail_by_when_a_side_that_is_still_at_work_will_be_ready(
    ahead: int, groups: tuple[int, ...]
) -> None:
    at_work = {"busy": "chunk", "chunks": 1, "groups": 2, "busy_since": 9.0}
    state = batch_state(
        "bidirectional_paper",
        rollout=(rollouter(1),),
        train=tuple(trainer(d, **at_work, ahead_at=10.0 if d == ahead else 12.0) for d in (0, 2)),
        blocks=(make_block(0, "rollout", lease=7, since=5.0), ROLL_1, TRAIN_2),
        max_chunk_groups=4,
        step=full_step(staleness=0, queue=(1, 2, 3, 4), trained=0),
        chunks_ahead=2,
    )
    assert [(chunk.device, chunk.group_ids) for chunk in actions_of(state, act.TrainChunk, 10.0)] == [(ahead, groups)]


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


SLOW = make_estimates(full_load_group_s=16.0)
"""A rollouter finishes 1/16 groups a second, a trainer trains 1/2."""


@pytest.mark.parametrize(
    ("started", "blocks"),
    [
        pytest.param(4, [2, 3], id="4 groups fill two of them"),
        pytest.param(6, [2], id="2 groups fill one"),
        pytest.param(8, [], id="none may be started"),
    ],
)
def test_ours_lends_no_more_training_blocks_than_there_are_groups_for(started: int, blocks: list[int]) -> None:
    state = lending_state("bidirectional", bound=bound(1), started=started, rollout=FULL, estimates=SLOW)
    assert lends(state) == [(block, ROLLOUT_ON_TRAIN) for block in blocks]


def test_ours_lends_no_training_block_while_there_is_something_to_train() -> None:
    aux = rollouter(2, in_flight=2, free_groups=0)
    away: dict[str, Any] = {
        "bound": bound(1),
        "started": 4,
        "estimates": SLOW,
        "rollout": (*FULL, aux),
        "train": (trainer(3),),
        "blocks": (ROLL_0, ROLL_1, make_block(2, "train", lease=7), TRAIN_3),
    }
    # three rollouters bring the last trainer at most 3/16 groups a second, of the 1/2 that it could train
    assert lends(lending_state("bidirectional", **away)) == [(3, ROLLOUT_ON_TRAIN)]
    assert lends(lending_state("bidirectional", **away, unconsumed=finished(1))) == []


def test_ours_prepares_during_the_optimizer_step_only_where_it_may() -> None:
    closing: dict[str, Any] = {
        "bound": bound(1),
        "started": 4,
        "rollout": FULL,
        "train": (trainer(2, busy="optimizer"), trainer(3, busy="optimizer")),
        "step": full_step(trained=B),
        "closing_since": 0.0,
    }
    assert lends(lending_state("bidirectional", **closing)) == [(2, ROLLOUT_ON_TRAIN)]
    assert lends(lending_state("bidirectional", **closing, improvements=ALL.without("prepare_early"))) == []


CHEAP = make_estimates(train_on_rollout=SwitchCosts(in_s=0.1, out_s=0.1, grad_s=0.1))


def test_ours_lends_no_more_rollout_blocks_than_there_are_groups_beyond_one_for_each_trainer() -> None:
    step = full_step(staleness=0, queue=(2, 3, 4), trained=1)
    # 3 groups and 2 trainers: a third one gets a group, a fourth would get none
    assert lends(batch_state("bidirectional", step=step, estimates=CHEAP)) == [(0, TRAIN_ON_ROLLOUT)]


def test_ours_lends_no_second_rollout_block_while_a_group_may_be_started() -> None:
    busy = {"busy": "chunk", "chunks": 1}
    away: dict[str, Any] = {
        "rollout": (rollouter(0),),
        "train": (trainer(1, **busy), trainer(2), trainer(3)),
        "blocks": (ROLL_0, make_block(1, "rollout", lease=7), TRAIN_2, TRAIN_3),
        "estimates": CHEAP,
    }
    assert lends(batch_state("bidirectional", **away)) == [(0, TRAIN_ON_ROLLOUT)]
    assert lends(batch_state("bidirectional", **away, started=B - 1)) == []


def test_ours_moves_unfinished_groups_only_into_room_that_does_not_leave() -> None:
    blocks = (ROLL_0, ROLL_1, TRAIN_2, TRAIN_3, make_block(4, "rollout"))
    rollout = (
        rollouter(0, in_flight=1, free_groups=1),
        rollouter(1, in_flight=1, free_groups=1),
        make_rollout(4, block=4, in_flight=2, free_groups=0),
    )
    state = batch_state("bidirectional", blocks=blocks, rollout=rollout, started=8, estimates=CHEAP)
    # the group of block 0 fits beside that of block 1; then nobody has room for that of block 1
    assert lends(state) == [(0, TRAIN_ON_ROLLOUT)]


def test_ours_moves_unfinished_groups_only_while_the_trainers_have_enough_without_the_block() -> None:
    rollout = tuple(rollouter(device, in_flight=1, free_groups=1) for device in (0, 1))
    # a block that comes home delivers after more than C_out = 1 s and at most 1 + 8 s of latency; three trainers less
    # what one rollouter brings take 3/2 - 1/4 groups a second: 4 groups last 3.2 s, 16 last 12.8 s
    for stock, expected in ((0, []), (12, [(0, TRAIN_ON_ROLLOUT)])):
        ready = finished(*range(10, 10 + stock))
        state = batch_state("bidirectional", bound=bound(4), started=5 * B, rollout=rollout, unconsumed=ready)
        assert lends(state) == expected


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


@pytest.mark.parametrize("lease_state", ["preparing", "working", "draining", "releasing"])
def test_nor_where_ours_asks_the_published_gates_block_by_block(lease_state: str) -> None:
    changes = ALL.without("outlook_gate")
    free: dict[str, Any] = {"bound": bound(1), "started": 4, "rollout": FULL[:1], "improvements": changes}
    # 4 groups by one rollouter in 16 s, by two trainers more in 16 / 3 s: worth the 2 s of switching
    home = (make_block(1, "rollout", lease_state="dead"), TRAIN_2, TRAIN_3)
    assert lends(lending_state("bidirectional", **free, blocks=(ROLL_0, TRAIN_2, TRAIN_3))) == [
        (2, ROLLOUT_ON_TRAIN),
        (3, ROLLOUT_ON_TRAIN),
    ]
    assert lends(lending_state("bidirectional", **free, blocks=(ROLL_0, *home))) == []
    lent = make_block(1, "rollout", lease=7, lease_state=lease_state)
    assert lends(lending_state("bidirectional", **free, blocks=(ROLL_0, lent, TRAIN_2, TRAIN_3))) == []
    lent = make_block(3, "train", lease=7, lease_state=lease_state)
    batch: dict[str, Any] = {"improvements": changes, "train": (trainer(2),)}
    # 4 groups take a trainer 8 s; one is drained in 2 s at most, and two rollouters more leave 1 + 8 / 3 + 0.5 s
    assert lends(batch_state("bidirectional", **batch, blocks=(ROLL_0, ROLL_1, TRAIN_2))) == [
        (0, TRAIN_ON_ROLLOUT),
        (1, TRAIN_ON_ROLLOUT),
    ]
    assert lends(batch_state("bidirectional", **batch, blocks=(ROLL_0, ROLL_1, TRAIN_2, lent))) == []


@pytest.mark.parametrize("arm", LENDING_ARMS[:2])
def test_a_whole_pool_is_lent_at_once_and_not_again_while_a_block_of_it_is_away(arm: str) -> None:
    cheap = make_estimates(train_on_rollout=SwitchCosts(in_s=0.1, out_s=0.1, grad_s=0.0))
    busy = {"busy": "chunk", "chunks": 1}
    blocks: tuple[Any, ...] = (ROLL_0, ROLL_1, TRAIN_2, TRAIN_3)
    home = (trainer(2, **busy), trainer(3, **busy))
    # 4 groups by two trainers in 4 s, by four in 2 s: worth the 0.2 s; by a third one beside three in 2 s of 2.67
    assert lends(batch_state(arm, estimates=cheap, train=home)) == [(0, TRAIN_ON_ROLLOUT), (1, TRAIN_ON_ROLLOUT)]
    away = (ROLL_0, make_block(1, "rollout", lease=7), *blocks[2:])
    state = batch_state(arm, estimates=cheap, rollout=(rollouter(0),), train=(trainer(1, **busy), *home), blocks=away)
    assert lends(state) == []


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
def test_trainers_come_home_when_as_many_groups_are_finished_as_the_step_lacks(arm: str) -> None:
    # s = 1, step 1: the last slot is kept for the group of version 0 that is in flight, a newer one is finished
    old = Unconsumed(group_id=8, version=0, bound=bound(1), finished=False)
    state = lent_train(
        arm,
        bound=bound(1),
        started=12,
        published=1,
        rollout=(rollouter(0, version=1), rollouter(1, version=1), rollouter(2, in_flight=1, free_groups=1, version=1)),
        step=make_step(version=1, taken=((1, bound(1)),) * 3, queue=(5, 6, 7)),
        unconsumed=(old, *finished(9, version=1)),
    )
    found = actions_of(state, act.EndLease)
    assert [(end.block, end.reason) for end in found] == [(2, "the trainer lacks no groups")]


def test_a_lease_of_rollouters_is_called_home_when_its_trainers_would_be_busy_and_it_has_had_time_to_deliver() -> None:
    fields: dict[str, Any] = {
        "bound": bound(3),
        "started": 14,  # of 4 + 12
        "rollout": (*FULL, rollouter(2, in_flight=2, free_groups=0)),
        "blocks": (ROLL_0, ROLL_1, make_block(2, "train", lease=7, since=10.0), TRAIN_3),
        "step": full_step(staleness=3, queue=(3, 4), trained=2),
    }
    # 12 switches there and back are more than a round of groups, 8 + 1 + 1 s: over 24 s the home rollouters bring 0.5
    # groups a second and 13 are there: 1.04, of which block 3 trains 0.5
    state = lent_train("bidirectional", **fields, unconsumed=finished(*range(5, 16), staleness=3))
    # C_in and the larger of a switch there and back and a quarter of the latency: 1 + max(2, 2) s
    assert ends(state, now=12.9) == []
    assert ends(state, now=13.0) == [(2, False)]
    # where switches are short, over a round of groups: 6 in 8 + 0.1 + 0.1 s are 0.5 + 0.73
    quick = make_estimates(rollout_on_train=SwitchCosts(in_s=0.1, out_s=0.1))
    few = lent_train("bidirectional", **fields, unconsumed=finished(5, 6, 7, 8, staleness=3), estimates=quick)
    assert ends(few, now=13.0) == [(2, False)]
    # with 3 groups there it is 0.8: the block would be busy for 0.3 of 0.5
    assert ends(lent_train("bidirectional", **fields, unconsumed=finished(5, staleness=3)), now=13.0) == []


@pytest.mark.parametrize(
    ("taken", "left_groups", "expected"),
    [
        # 0.2 rollouter-seconds are left and 3 groups to train: home after 1 s, 0.5 are trained and 2.5 take 2.5 s; the
        # step cannot end before 3.5 s
        pytest.param(3, (0.0, 0.0, 0.05), [(2, False)], id="the rollout is nearly over"),
        # 12 are left: without it 6 s, and 2 s for the last group; with it 4 s, home at 5 s, 4 groups in 6.5 s
        pytest.param(1, (1.0, 1.0, 1.0), [], id="the rollout would take longer"),
    ],
)
def test_below_s_1_a_lease_is_called_home_when_the_step_ends_no_later_without_its_rollouters(
    taken: int, left_groups: tuple[float, ...], expected: list[tuple[int, bool]]
) -> None:
    state = lent_train(
        "bidirectional",
        directions=frozenset({ROLLOUT_ON_TRAIN}),
        rollout=tuple(
            rollouter(device, in_flight=int(left > 0), free_groups=2 - int(left > 0), left_groups=left)
            for device, left in enumerate(left_groups)
        ),
        step=make_step(taken=((0, bound(0)),) * taken, queue=(1, 2)[: min(taken, 2)], trained=max(0, taken - 2)),
    )
    assert ends(state) == expected


def test_ours_opens_no_lease_in_the_round_that_ends_another() -> None:
    fields: dict[str, Any] = {
        "bound": bound(1),
        "started": 4,
        "rollout": (*FULL, rollouter(2, in_flight=2, free_groups=0)),
        "train": (trainer(3, busy="optimizer"),),
        "blocks": (ROLL_0, ROLL_1, make_block(2, "train", lease=7, since=1.0), TRAIN_3),
        "step": full_step(trained=B),
        "estimates": SLOW,
        "closing_since": 5.0,
    }
    state = lent_train("bidirectional", **fields)
    assert (ends(state, now=6.0), lends(state, now=6.0)) == ([], [(3, ROLLOUT_ON_TRAIN)])
    state = lent_train("bidirectional", **fields, improvements=ALL.without("keep_lease"))
    assert (ends(state, now=6.0), lends(state, now=6.0)) == ([(2, False)], [])


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


def test_a_lease_of_trainers_ends_when_they_are_idle_and_groups_may_be_started() -> None:
    filling = {"step": make_step(taken=((0, bound(0)),) * 2, trained=2), "started": B - 1}
    assert ends(lent_rollout("bidirectional", **filling)) == [(1, False)]
    # one that is about to end its chunk goes home then, instead of being handed another one
    working = {"busy": "chunk", "chunks": 1, "ahead_at": 3.0}
    state = lent_rollout(
        "bidirectional", **filling, chunks_ahead=2, train=(trainer(1, **working), trainer(2), trainer(3))
    )
    assert (ends(state, now=2.9), ends(state, now=3.0)) == ([], [(1, False)])
    busy = (trainer(1, busy="chunk", chunks=1), trainer(2), trainer(3))
    assert ends(lent_rollout("bidirectional", **filling, train=busy)) == []
    assert ends(lent_rollout("bidirectional", **filling | {"started": B})) == []


# a block that is sent home delivers after 1 + 0.75 x 8 = 7 s; the two trainers that are left, less what one rollouter
# brings, take 2/2 - 1/4 groups a second until then: 4 groups last 5.3 s, 6 last 8 s
@pytest.mark.parametrize(("stock", "expected"), [(4, [(1, False)]), (7, []), (12, [])])
def test_a_lease_of_trainers_goes_on_into_the_next_step_while_they_would_not_run_dry(
    stock: int, expected: list[tuple[int, bool]]
) -> None:
    ready: dict[str, Any] = {"bound": bound(4), "unconsumed": finished(*range(4, 4 + stock), staleness=4)}
    closing = {"step": full_step(staleness=4, trained=B), "started": 5 * B, "closing_since": 0.0}
    assert ends(lent_rollout("bidirectional", **ready, **closing)) == expected
    # within a step it ends where groups may be started, none of its trainers works, and the stock is too small
    ready["unconsumed"] = finished(*range(4, 3 + stock), staleness=4)
    within = {"step": full_step(staleness=4, trained=B - 1, queue=(3,)), "started": 5 * B - 1}
    assert ends(lent_rollout("bidirectional", **ready, **within)) == expected


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
