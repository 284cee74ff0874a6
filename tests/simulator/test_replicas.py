"""The physics of simulated replicas by hand: sequences share a replica's speed, chunks take what their tokens take."""

from __future__ import annotations

from typing import Any

import pytest

from planner.policy.bound import Bound
from planner.profile import Lengths, RolloutSpeed, TrainSpeed
from planner.simulator.events import CHUNK
from planner.simulator.replicas import Group, Rollouter, Trainer
from planner.simulator.simulator import Simulator
from tests.simulator.builders import make_profile, make_setup, play

BOUND = Bound(staleness=1, prompts_per_step=4)


def make_rollouter(**overrides: Any) -> Rollouter:
    """100 tokens/s in the limit, half of it with 2 sequences; room for 2 groups of 2 responses."""
    fields: dict[str, Any] = {
        "device": 0,
        "devices": 1,
        "block": 0,
        "lease": None,
        "version": 0,
        "rate": 100.0,
        "half": 2.0,
        "resume_tokens": 10.0,
        "start_tokens": 0.0,
        "slots": 4,
        "group_size": 2,
        "in_flight_updates": True,
        "residual": (1.0, 0.5, 0.25),
        "residual_step": 0.05,
        "now": 0.0,
    }
    return Rollouter(**(fields | overrides))


def make_group(group_id: int, *responses: int) -> Group:
    return Group(group_id, group_id, list(responses), BOUND)


def ends(replica: Rollouter) -> list[tuple[float, tuple[int, ...]]]:
    """When sequences end, and which groups are finished with them, until none is left."""
    found = []
    while replica.active:
        now = replica.next_end()
        replica.advance(now)
        found.append((now, tuple(group.group_id for group in replica.ended())))
    return found


def test_a_sequence_is_faster_when_the_others_have_ended() -> None:
    replica = make_rollouter()
    replica.begin(make_group(7, 10, 30))
    # two at 100 / (2 + 2) = 25 tokens/s: 10 tokens in 0.4 s; then one at 100 / (1 + 2): the other 20 in 0.6 s
    assert ends(replica) == [(pytest.approx(0.4), ()), (pytest.approx(1.0), (7,))]


def test_a_group_that_begins_later_slows_the_one_that_is_there() -> None:
    replica = make_rollouter()
    replica.begin(make_group(7, 10, 30))
    replica.advance(0.4)
    assert replica.ended() == []
    replica.begin(make_group(8, 50, 50))
    # three at 100 / 5 = 20 tokens/s: the first one's 20 in 1 s; then two at 25: the other's 50 - 20 in 1.2 s
    assert ends(replica) == [(pytest.approx(1.4), (7,)), (pytest.approx(2.6), (8,))]


def test_equal_sequences_end_at_once_and_a_replica_without_any_can_begin_again() -> None:
    replica = make_rollouter()
    replica.begin(make_group(7, 20, 20))
    assert ends(replica) == [(pytest.approx(0.8), (7,))]
    replica.begin(make_group(8, 20, 20))
    assert ends(replica) == [(pytest.approx(1.6), (8,))]


def test_a_group_that_comes_back_is_continued_from_its_prefix() -> None:
    replica, other = make_rollouter(), make_rollouter(device=1, version=3)
    first, second = make_group(7, 10, 30), make_group(8, 50, 50)
    replica.begin(first)
    replica.advance(0.4)
    replica.ended()
    replica.begin(second)
    replica.advance(0.9)
    # 0.5 s at 20 tokens/s: 10 more of each; of 30 the group has 20
    assert replica.give_back((7,)) == [first]
    assert first.left == [(pytest.approx(10.0), pytest.approx(20.0))]
    # those that stay go on as two, with 40 tokens to go at 25 tokens/s
    assert ends(replica) == [(pytest.approx(0.9 + 1.6), (8,))]
    other.begin(first)
    # 10 tokens and the 10 that resuming costs, alone at 100/3 tokens/s; the oldest version stays its version
    assert ends(other) == [(pytest.approx(0.6), (7,))]
    assert (first.version, first.resumed, first.left) == (0, 1, [])


def test_a_group_whose_prefix_is_lost_begins_again_under_the_weights_of_its_new_replica() -> None:
    replica, other = make_rollouter(), make_rollouter(device=1, version=3)
    group = make_group(7, 10, 30)
    replica.begin(group)
    replica.advance(0.9)
    assert replica.give_back((7,), lost=True) == [group]
    assert group.left == []
    other.begin(group)
    assert ends(other) == [(pytest.approx(0.4), ()), (pytest.approx(1.0), (7,))]
    assert group.version == 3


def test_a_prompt_is_computed_before_the_first_token_and_again_by_whoever_continues_its_group() -> None:
    replica, other = make_rollouter(start_tokens=10.0), make_rollouter(device=1, start_tokens=10.0)
    early, late = make_group(7, 10, 30), make_group(8, 10, 30)
    replica.begin(early)
    # two at 25 tokens/s: the prompts' 10 and 10 of each in 0.8 s; then one at 100/3: the other 20 in 0.6 s
    assert ends(replica) == [(pytest.approx(0.8), ()), (pytest.approx(1.4), (7,))]
    replica.begin(late)
    replica.advance(1.4 + 0.2)
    # half of the prompts is computed: no token is there yet, and nothing but the tokens is left for another one
    replica.give_back((8,))
    assert late.left == [(10.0, 0.0), (30.0, 0.0)]
    other.begin(late)
    # resuming costs its 10 tokens and nothing for starting
    assert ends(other) == [(pytest.approx(0.8), ()), (pytest.approx(1.4), (8,))]


def test_replicas_side_by_side_are_one_with_as_many_times_the_speed_slots_and_half_batch() -> None:
    one, two = make_rollouter(), make_rollouter(rate=200.0, half=4.0, slots=8)
    one.begin(make_group(7, 10, 30))
    two.begin(make_group(7, 10, 30))
    two.begin(make_group(8, 10, 30))
    assert [at for at, _ in ends(one)] == pytest.approx([at for at, _ in ends(two)])


def test_room_counts_free_slots_in_whole_groups() -> None:
    replica = make_rollouter(slots=5)
    assert replica.picture().free_groups == 2
    replica.begin(make_group(7, 10, 30))
    assert (replica.picture().free_groups, replica.picture().in_flight) == (1, 1)
    replica.advance(0.4)
    replica.ended()
    # one of five slots is taken: two groups fit, although a third is half there
    assert (replica.picture().free_groups, replica.picture().in_flight) == (2, 1)


def test_the_work_to_go_is_guessed_from_the_tokens_that_are_there() -> None:
    replica = make_rollouter()
    replica.begin(make_group(7, 100, 100))
    assert replica.picture().left_groups == pytest.approx(2 * 1.0)
    replica.advance(1.0)
    replica.view = None
    # 25 tokens each are in the second cell of 20 tokens: half a group's worth is expected of each
    assert replica.picture().left_groups == pytest.approx(2 * 0.5)


# -- a whole run, by hand ---------------------------------------------------------------------------------------------

EQUAL = make_profile(
    rollout=RolloutSpeed(slots=8, tokens_per_s=160.0, half_batch=8.0, resume_tokens=0.0),
    train=TrainSpeed(tokens_per_s=240.0, chunk_s=1.0, max_chunk_groups=2),
    optimizer_s=2.0,
    weight_sync_s=1.0,
    response_tokens=Lengths(median=100.0, max=100, sigma_group=0.0, sigma_response=0.0, drift=0.0),
    prompt_tokens=20.0,
    noise=0.0,
)
"""Responses of 100 tokens, 8 at once at 160 / (8 + 8) = 10 tokens/s each: four groups of two are generated in 10 s. A
chunk of two groups has 2 * 2 * 120 = 480 tokens: 1 + 480 / 240 = 3 s."""

SMALL = {
    "arm": "no_borrow",
    "rollout_devices": 1,
    "train_devices": 1,
    "train_replica_size": 1,
    "prompts_per_step": 4,
    "group_size": 2,
}


def test_a_run_without_chance_takes_what_its_parts_take() -> None:
    trace = play(make_setup(EQUAL, **SMALL, staleness=0, steps=3))
    # 10 s of rollout, two chunks of 3 s, 2 s and 1 s of optimizer and weight sync
    assert [step.ended_at for step in trace.steps] == [pytest.approx(19.0 * (i + 1)) for i in range(3)]
    assert [step.tokens for step in trace.steps] == [4 * 2 * 120] * 3
    busy = {kind: seconds for (kind, _), seconds in trace.account.busy.items()}
    assert busy == pytest.approx(
        {"rollout": 30.0, "train": 18.0, "grad_merge": 0.0, "optimizer": 6.0, "weight_sync": 3.0}
    )
    # the rollouter waits 9 s a step for the next version, the last time for nothing; the trainer 10 s for its groups
    assert trace.account.idle == pytest.approx({"staleness_cap": 18.0, "no_work": 9.0, "waiting_for_groups": 30.0})
    assert trace.throughput == pytest.approx(960 / 19.0)


def test_with_a_step_of_lag_only_the_slower_role_counts() -> None:
    trace = play(make_setup(EQUAL, **SMALL, staleness=1, steps=6))
    # the replica's slots hold the groups of one step: 10 s of rollout a step, and the trainer's 9 s beside them
    lengths = [step.ended_at - step.began_at for step in trace.steps[1:-1]]
    assert lengths == [pytest.approx(10.0)] * 4
    assert [max(step.lags) for step in trace.steps] == [0, 1, 1, 1, 1, 1]


# -- chunks -----------------------------------------------------------------------------------------------------------


def training(groups: tuple[int, ...]) -> tuple[Simulator, Trainer]:
    """A simulator whose trainer is on a chunk of groups that are done at 2, 3 and 5 s."""
    simulator = Simulator(make_setup(EQUAL, **SMALL))
    trainer = simulator.world.trainers[1]
    trainer.chunks.append(groups)
    trainer.boundaries = [2.0, 3.0, 5.0]
    trainer.changed(busy="chunk", busy_since=0.0, idle_since=None)
    return simulator, trainer


@pytest.mark.parametrize(
    ("now", "kept", "end"),
    [
        pytest.param(0.5, (4,), 2.0, id="with its first group"),
        pytest.param(2.0, (4,), 2.0, id="a group that ends now is the last one"),
        pytest.param(2.5, (4, 5), 3.0, id="with its second"),
        pytest.param(4.0, (4, 5, 6), 5.0, id="with its last: nothing goes back"),
    ],
)
def test_a_chunk_that_is_stopped_ends_with_the_group_it_works_on(now: float, kept: tuple[int, ...], end: float) -> None:
    simulator, trainer = training((4, 5, 6))
    simulator.world.step.queue.append(9)
    simulator.now = now
    simulator.stop_at_boundary(trainer)
    assert trainer.chunks[0] == kept
    assert list(simulator.world.step.queue) == [group for group in (4, 5, 6) if group not in kept] + [9]
    announced = [(at, stamp) for at, _, kind, subject, stamp in simulator.events if kind == CHUNK]
    assert announced == [(end, trainer.stamp)]


def test_a_trainer_that_dies_gives_all_its_groups_of_the_step_back() -> None:
    simulator, trainer = training((4, 5, 6))
    simulator.world.step.queue.append(9)
    simulator.world.step.trained, trainer.trained = 3, [1, 2]
    simulator.lose_gradient(trainer)
    assert list(simulator.world.step.queue) == [1, 2, 4, 5, 6, 9]
    assert simulator.world.step.trained == 1


def test_a_gradient_that_was_merged_survives_its_trainer() -> None:
    simulator, trainer = training(())
    simulator.world.step.trained, trainer.trained = 4, [1, 2, 3, 4]
    simulator.world.step.closing_since = 0.0
    simulator.lose_gradient(trainer)
    assert (list(simulator.world.step.queue), simulator.world.step.trained) == ([], 4)
