"""What the arms decide, one rule a table; every action is compared without its sentence, which must be there."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import pytest

from planner.policy import actions as act
from planner.policy.colocated import share_of
from planner.policy.decide import decide
from planner.policy.state import State
from tests.policy.builders import (
    B,
    bound,
    finished,
    full_step,
    make_colocated,
    make_rollout,
    make_state,
    make_step,
    make_train,
)


def decided(state: State) -> list[tuple[Any, ...]]:
    """The actions as (name, values without the reason); two decisions on one state are equal, whatever the time."""
    actions = decide(state, 0.0)
    assert actions == decide(state, 1e9)
    assert all(action.reason for action in actions)
    return [
        (type(action).__name__, *(getattr(action, f.name) for f in fields(action) if f.name not in ("reason", "picks")))
        for action in actions
    ]


def test_an_arm_that_does_not_exist_is_refused() -> None:
    with pytest.raises(ValueError, match=r"arm must be one of no_borrow, colocated, opportunistic, .*, got 'none'"):
        decide(make_state(arm="none"), 0.0)


# -- rollouters -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        pytest.param(make_state(), [("StartGroups", 0, 8)], id="s=1 allows two steps of groups ahead"),
        pytest.param(make_state(bound=bound(0)), [("StartGroups", 0, 4)], id="s=0 allows one step"),
        pytest.param(make_state(bound=bound(0.5)), [("StartGroups", 0, 6)], id="s=0.5 allows one and a half"),
        pytest.param(make_state(started=6), [("StartGroups", 0, 2)], id="what is started counts"),
        pytest.param(make_state(started=9, excluded=3), [("StartGroups", 0, 2)], id="what is excluded does not"),
        pytest.param(make_state(started=8), [], id="the cap"),
        pytest.param(make_state(prompts_left=3), [("StartGroups", 0, 3)], id="no more than the run needs"),
        pytest.param(
            make_state(rollout=(make_rollout(free_groups=1),)), [("StartGroups", 0, 1)], id="no more than fit"
        ),
        pytest.param(make_state(published=None, rollout=(make_rollout(version=None),)), [], id="no weights yet"),
        pytest.param(
            make_state(rollout=(make_rollout(version=None),)),
            [("LoadWeights", 0, 0), ("StartGroups", 0, 8)],
            id="the first weights, and groups right behind them",
        ),
        pytest.param(
            make_state(
                started=8, rollout=(make_rollout(0, free_groups=3), make_rollout(2, free_groups=5)), bound=bound(2)
            ),
            [("StartGroups", 0, 1), ("StartGroups", 2, 3)],
            id="the replica with most room first, until they are even",
        ),
        pytest.param(make_state(paused=True), [], id="paused: nothing starts"),
        pytest.param(make_state(stopping=True), [], id="stopping: nothing starts"),
        pytest.param(
            make_state(paused=True, published=1), [("LoadWeights", 0, 1)], id="paused: weights are taken all the same"
        ),
    ],
)
def test_rollouters_start_what_the_rule_and_their_room_allow(state: State, expected: list[tuple[Any, ...]]) -> None:
    assert decided(state) == expected


@pytest.mark.parametrize(
    ("replica", "expected"),
    [
        pytest.param(make_rollout(), [("LoadWeights", 0, 1), ("StartGroups", 0, 4)], id="empty: it loads and goes on"),
        pytest.param(
            make_rollout(in_flight=4, free_groups=4),
            [("LoadWeights", 0, 1), ("StartGroups", 0, 4)],
            id="its groups may continue under the new weights",
        ),
        pytest.param(
            make_rollout(in_flight=4, free_groups=4, may_update_in_flight=False),
            [],
            id="they may not: it drains and starts nothing",
        ),
    ],
)
def test_newer_weights_are_taken_between_two_tokens_or_after_the_groups(
    replica: Any, expected: list[tuple[Any, ...]]
) -> None:
    state = make_state(published=1, started=8, rollout=(replica,), step=make_step(version=1))
    assert decided(state) == expected


# -- taking and training ----------------------------------------------------------------------------------------------


def trainer_state(**overrides: Any) -> State:
    """No rollouter, so that only the trainer's side is decided."""
    return make_state(**({"rollout": ()} | overrides))


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        pytest.param(
            trainer_state(unconsumed=finished(1, 2, 3)), [("TakeGroups", (1, 2, 3))], id="a partial batch is kept"
        ),
        pytest.param(
            trainer_state(unconsumed=finished(1, 2, 3), streaming=True),
            [("TakeGroups", (1, 2, 3)), ("TrainChunk", 1, (1, 2))],
            id="a streaming trainer starts on it",
        ),
        pytest.param(
            trainer_state(unconsumed=finished(1, 2, 3, 4, 5)),
            [("TakeGroups", (1, 2, 3, 4)), ("TrainChunk", 1, (1, 2))],
            id="a whole batch, and no more",
        ),
        pytest.param(
            trainer_state(step=full_step(queue=(3, 4), trained=2)), [("TrainChunk", 1, (3, 4))], id="its rest"
        ),
        pytest.param(
            trainer_state(step=full_step(queue=(3, 4)), train=(make_train(busy="chunk", chunks=1),)),
            [("TrainChunk", 1, (3, 4))],
            id="one chunk ahead",
        ),
        pytest.param(
            trainer_state(step=full_step(queue=(3, 4)), train=(make_train(busy="chunk", chunks=2),)), [], id="not two"
        ),
        pytest.param(
            trainer_state(
                step=make_step(taken=((0, bound(1)),), queue=(3,)),
                streaming=True,
                train=(make_train(busy="chunk", chunks=1),),
            ),
            [],
            id="ahead only full chunks, while more groups may come",
        ),
        pytest.param(
            trainer_state(step=full_step(queue=(1, 2, 3, 4)), max_chunk_groups=4, train=(make_train(1), make_train(2))),
            [("TrainChunk", 1, (1,)), ("TrainChunk", 2, (2,))],
            id="the tail is shared out evenly, in halves of a share",
        ),
        pytest.param(
            trainer_state(
                step=full_step(queue=(1, 2, 3, 4)),
                max_chunk_groups=4,
                train=(make_train(1, busy="chunk", chunks=2), make_train(2)),
            ),
            [("TrainChunk", 2, (1,))],
            id="half of an even share with the one that works: 4 / 2 / 2",
        ),
        pytest.param(
            trainer_state(step=full_step(queue=(3,)), train=(make_train(1, busy="chunk", chunks=1), make_train(2))),
            [("TrainChunk", 2, (3,))],
            id="an idle trainer before one that works",
        ),
        pytest.param(
            trainer_state(
                step=make_step(taken=((0, bound(1)),) * 3, queue=(2, 3)),
                streaming=True,
                train=(make_train(busy="chunk", chunks=1),),
            ),
            [("TrainChunk", 1, (2, 3))],
            id="ahead a full chunk, while more groups may come",
        ),
        pytest.param(trainer_state(step=full_step(queue=(1, 2)), train=(make_train(ready=False),)), [], id="not ready"),
        pytest.param(trainer_state(step=full_step(queue=(1, 2)), paused=True), [], id="paused"),
        pytest.param(trainer_state(unconsumed=finished(1), paused=True), [], id="paused: nothing is taken"),
        pytest.param(trainer_state(unconsumed=finished(1), steps_left=0), [], id="no step is left"),
    ],
)
def test_trainers_take_and_train(state: State, expected: list[tuple[Any, ...]]) -> None:
    assert decided(state) == expected


def test_a_working_trainer_is_handed_its_next_chunk_shortly_before_it_needs_it() -> None:
    state = trainer_state(step=full_step(queue=(3, 4)), train=(make_train(busy="chunk", chunks=1, ahead_at=5.0),))
    assert decide(state, 4.9) == []
    assert [type(action) for action in decide(state, 5.0)] == [act.TrainChunk]


@pytest.mark.parametrize(
    ("overrides", "expected"),
    [
        pytest.param({}, [("FinishStep", (1,))], id="all is trained"),
        pytest.param({"trained": 3}, [], id="a group is missing"),
        pytest.param({"evals_waiting": (("held_out", 1),)}, [("Evaluate", 1, "held_out")], id="an evaluation first"),
        pytest.param({"evals_running": 1}, [], id="an evaluation runs"),
        pytest.param({"checkpoint_due": True}, [("Checkpoint", 1)], id="a checkpoint first"),
        pytest.param({"checkpoint_running": True}, [], id="a checkpoint is written"),
        pytest.param(
            {"evals_waiting": (("held_out", 1),), "checkpoint_due": True},
            [("Evaluate", 1, "held_out")],
            id="both in turn",
        ),
    ],
)
def test_a_step_is_made_when_all_that_belongs_to_its_version_is_done(
    overrides: dict[str, Any], expected: list[tuple[Any, ...]]
) -> None:
    step = full_step(**({"trained": B} | overrides))
    assert decided(trainer_state(step=step)) == expected
    paused = [] if not overrides.get("checkpoint_due") else [("Checkpoint", 1)]
    assert decided(trainer_state(step=step, paused=True)) == paused
    assert decided(trainer_state(step=step, steps_left=0)) == [a for a in expected if a[0] != "FinishStep"]


@pytest.mark.parametrize(
    ("trainers", "expected"),
    [
        pytest.param((make_train(1), make_train(2)), [("ShipGradient", 1), ("ShipGradient", 2)], id="both gradients"),
        pytest.param((make_train(1, shipped=True), make_train(2)), [("ShipGradient", 2)], id="the one that is missing"),
        pytest.param((make_train(1, shipped=True), make_train(2, busy="gradient")), [], id="on its way"),
        pytest.param(
            (make_train(1, shipped=True), make_train(2, shipped=True)), [("FinishStep", (1, 2))], id="both there"
        ),
        pytest.param((make_train(1), make_train(2, busy="chunk", chunks=1)), [], id="one still trains"),
    ],
)
def test_several_trainers_merge_their_gradients_before_the_step(
    trainers: tuple[Any, ...], expected: list[tuple[Any, ...]]
) -> None:
    assert decided(trainer_state(step=full_step(trained=B), train=trainers)) == expected


def test_each_trainer_evaluates_its_own_part_in_the_gaps_between_chunks() -> None:
    waiting = (("held_out", 1), ("held_out", 2), ("control", 1))
    state = trainer_state(
        step=make_step(evals_waiting=waiting, queue=(1, 2)), streaming=True, train=(make_train(1), make_train(2))
    )
    # two idle trainers share what is ready; the first one evaluates when it has nothing left
    assert decided(state) == [("TrainChunk", 1, (1,)), ("TrainChunk", 2, (2,))]
    state = trainer_state(
        step=make_step(evals_waiting=waiting, queue=(1,)), streaming=True, train=(make_train(1), make_train(2))
    )
    assert decided(state) == [("TrainChunk", 1, (1,)), ("Evaluate", 2, "held_out")]


@pytest.mark.parametrize(
    ("overrides", "expected"),
    [
        pytest.param({"checkpoint_due": True}, [("Checkpoint", 1)], id="what was learnt is kept"),
        pytest.param({"queue": (1, 2), "evals_waiting": (("held_out", 1),)}, [], id="and nothing else is done"),
    ],
)
def test_a_stopping_run_only_writes_its_checkpoint(overrides: dict[str, Any], expected: list[tuple[Any, ...]]) -> None:
    assert decided(make_state(stopping=True, step=full_step(**overrides), unconsumed=finished(7))) == expected


# -- colocated --------------------------------------------------------------------------------------------------------


def colocated_state(*devices: Any, **overrides: Any) -> State:
    """Devices in the trainer role are ready for work unless told otherwise."""
    given: dict[str, Any] = {
        "arm": "colocated",
        "bound": bound(0),
        "colocated": devices,
        "rollout": tuple(make_rollout(device.device) for device in devices),
        "train": tuple(make_train(device.device, ready=device.role == "train") for device in devices),
    }
    return make_state(**(given | overrides))


TRAINING = {"role": "train"}


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        pytest.param(colocated_state(make_colocated()), [("StartGroups", 0, 2)], id="it starts its share"),
        pytest.param(colocated_state(make_colocated(started=1)), [("StartGroups", 0, 1)], id="the rest of it"),
        pytest.param(colocated_state(make_colocated(started=2, finished=(5,))), [], id="one is still generated"),
        pytest.param(
            colocated_state(make_colocated(started=2, finished=(5, 4))),
            [("TakeGroups", (5, 4)), ("SwitchRole", 0, "train")],
            id="its share is finished: it trains, whatever the others do",
        ),
        pytest.param(
            colocated_state(make_colocated(**TRAINING, started=2, queue=(5, 4))),
            [("TrainChunk", 0, (5, 4))],
            id="its own",
        ),
        pytest.param(
            colocated_state(make_colocated(**TRAINING, started=2, trained=2)), [], id="it waits for the others' shares"
        ),
        pytest.param(
            colocated_state(make_colocated(**TRAINING)), [("SwitchRole", 0, "rollout")], id="the next step begins"
        ),
        pytest.param(colocated_state(make_colocated(**TRAINING, share=0)), [], id="a device without a share stays"),
        pytest.param(colocated_state(make_colocated(**TRAINING), steps_left=0), [], id="no step is left"),
        pytest.param(
            colocated_state(make_colocated(**TRAINING), step=make_step(evals_waiting=(("held_out", 0),))),
            [("Evaluate", 0, "held_out")],
            id="its evaluation comes before",
        ),
        pytest.param(
            colocated_state(make_colocated(**TRAINING), step=make_step(checkpoint_due=True)),
            [("Checkpoint", 0)],
            id="so does the checkpoint",
        ),
        pytest.param(
            colocated_state(
                make_colocated(**TRAINING), make_colocated(1, **TRAINING), step=make_step(checkpoint_running=True)
            ),
            [("SwitchRole", 1, "rollout")],
            id="which the second device does not wait for",
        ),
        pytest.param(colocated_state(make_colocated(), paused=True), [], id="paused"),
        pytest.param(
            colocated_state(make_colocated(), stopping=True),
            [("SwitchRole", 0, "train")],
            id="stopping: it can keep things",
        ),
    ],
)
def test_colocated_devices_generate_their_share_and_then_train_it(
    state: State, expected: list[tuple[Any, ...]]
) -> None:
    assert decided(state) == expected


@pytest.mark.parametrize("devices", range(1, 8))
@pytest.mark.parametrize("groups", range(1, 12))
def test_shares_add_up_to_the_step_and_differ_by_at_most_one(devices: int, groups: int) -> None:
    shares = [share_of(index, devices, groups) for index in range(devices)]
    assert sum(shares) == groups
    assert max(shares) - min(shares) <= 1


def test_an_action_can_be_told_from_another_by_its_values() -> None:
    one = act.StartGroups(device=0, count=1, reason="room")
    assert one == replace(one)
    assert one != replace(one, count=2)
