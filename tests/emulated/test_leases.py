"""Blocks of emulated devices that are lent: what it costs, who comes back with what, and what overlaps with what."""

from __future__ import annotations

from typing import Any

import pytest

from engine.worker import messages as msg
from tests.emulated.builders import (
    DrivenNode,
    begin_lease,
    chunk,
    end_lease,
    end_lease_home_to_train,
    finish,
    generate,
    load,
    make_job,
    sealed,
    whole_step,
)


def at(driven: DrivenNode, events: list[Any]) -> list[float]:
    """Modelled seconds of events."""
    return [round(driven.model(event.at), 4) for event in events]


def with_weights() -> DrivenNode:
    """Block 0: rollouters 0 to 3. Block 4: one trainer on 4 to 7."""
    driven = DrivenNode()
    driven.send(0.0, *((device, load(0)) for device in range(4)))
    return driven


# -- a train block generates ------------------------------------------------------------------------------------------


def test_a_lease_to_rollout_costs_its_way_in_and_out_and_prefixes_come_back() -> None:
    driven = with_weights()
    driven.send(1.0, (4, begin_lease(9)))
    driven.send(4.5, (6, generate(3)))
    driven.send(5.0, (4, end_lease_home_to_train(9)))
    driven.until(20.0)
    (ready,), (working,) = driven.of(4, msg.LeaseReady), driven.of(4, msg.LeaseWorking)
    (released,) = driven.of(4, msg.LeaseReleased)
    assert at(driven, [ready, working, released]) == [4.0, 4.5, 7.0]
    assert [driven.model(event.began_at) for event in (ready, released)] == pytest.approx([1.0, 5.0], abs=1e-5)
    assert (ready.lease, ready.version, released.version) == (9, 0, 0)
    assert ready.phases == {"load": pytest.approx(0.3)}
    assert released.phases == {"load": pytest.approx(0.2)}
    # each of the four rollouters that it was speaks for itself: 12.5 tokens at 100 / 4 a second
    tokens = [
        [group.tokens for event in driven.of(n, msg.GroupsAborted) for group in event.groups] for n in range(4, 8)
    ]
    assert tokens == [[], [], [24], []]
    assert [len(driven.of(device, msg.GroupsAborted)) for device in range(4, 8)] == [1] * 4
    assert driven.units[6][0].lease == 9
    way = [("idle", 0.0, 1.0), ("switch_in", 1.0, 4.0)]
    assert driven.kinds(4) == [*way, ("idle", 4.0, 5.0), ("switch_out", 5.0, 7.0)]
    assert driven.kinds(6) == [*way, ("idle", 4.0, 4.5), ("rollout", 4.5, 5.0), ("switch_out", 5.0, 7.0)]
    assert [span.role for span in driven.spans[6] if span.kind == "rollout"] == ["auxiliary"]


@pytest.mark.parametrize(
    ("lent_at", "ready_at", "life"),
    [
        # the step lasts from 3 to 6, a preparation 3 s: hidden under it as far as it reaches
        pytest.param(3.0, 6.0, [("weight_sync", 5.0, 6.0)], id="all of it"),
        pytest.param(4.5, 7.5, [("weight_sync", 5.0, 6.0), ("switch_in", 6.0, 7.5)], id="half of it"),
    ],
)
def test_a_preparation_under_the_step_is_hidden(lent_at: float, ready_at: float, life: list[Any]) -> None:
    driven = with_weights()
    driven.send(0.0, (4, whole_step()))
    driven.send(3.0, (4, finish(own=True)))
    driven.send(lent_at, (4, begin_lease(step=2)))
    driven.send(20.0, (4, end_lease_home_to_train(version=1)))
    driven.until(30.0)
    (ready,), (released,) = driven.of(4, msg.LeaseReady), driven.of(4, msg.LeaseReleased)
    assert at(driven, [ready]) == [ready_at]
    assert ready.at - ready.began_at == pytest.approx(0.3)
    assert [event.stats.version for event in driven.of(4, msg.StepDone)] == [1]
    assert driven.kinds(7)[3 : 3 + len(life)] == life
    assert released.version == 1


def test_a_trainer_that_is_lent_ships_first_and_the_step_then_has_something_to_merge() -> None:
    driven = with_weights()
    driven.send(0.0, (4, whole_step()))
    driven.send(3.0, (4, begin_lease()))
    (shipped,) = driven.of(4, msg.GradientShipped)
    assert (shipped.step, shipped.gradient.tokens) == (1, 120)
    driven.send(6.0, (4, end_lease_home_to_train()))
    driven.send(8.0, (4, finish(shipped.gradient)))
    driven.until(20.0)
    (done,) = driven.of(4, msg.StepDone)
    assert done.merge_s == pytest.approx(0.05)
    step = [("grad_merge", 8.0, 8.5), ("optimizer", 8.5, 10.5), ("weight_sync", 10.5, 11.5)]
    assert driven.kinds(5)[-3:] == step


def test_a_lease_that_ends_before_it_is_ready_goes_home_at_once() -> None:
    driven = with_weights()
    driven.send(1.0, (4, begin_lease()))
    driven.send(2.0, (4, end_lease_home_to_train()))
    driven.until(20.0)
    assert driven.of(4, msg.LeaseReady) == []
    assert at(driven, driven.of(4, msg.LeaseReleased)) == [4.0]
    assert driven.kinds(4) == [("idle", 0.0, 1.0), ("switch_in", 1.0, 2.0), ("switch_out", 2.0, 4.0)]
    driven.send(20.0, (4, whole_step()))
    driven.until(30.0)
    assert [event.trained for event in driven.of(4, msg.ChunkDone)] == [(0, 1, 2, 3)]


# -- a rollout block trains -------------------------------------------------------------------------------------------


def test_rollouters_that_are_lent_give_their_groups_back_at_once() -> None:
    driven = with_weights()
    driven.send(0.0, (1, generate(3)), (2, generate(2)))
    driven.send(0.5, (0, begin_lease()))
    groups = [[group.group_id for group in driven.of(n, msg.GroupsAborted)[0].groups] for n in range(4)]
    assert groups == [[], [3], [2], []]
    driven.until(20.0)
    (ready,) = driven.of(0, msg.LeaseReady)
    assert at(driven, [ready]) == [5.5]
    assert driven.kinds(3) == [("idle", 0.0, 0.5), ("switch_in", 0.5, 5.5)]
    assert driven.kinds(1) == [("rollout", 0.0, 0.5), ("switch_in", 0.5, 5.5)]


def lent_to_training() -> DrivenNode:
    """Two chunks of two groups each: the first one runs from 6.0 to 7.5 with a boundary at 7.0."""
    driven = with_weights()
    driven.send(1.0, (0, begin_lease(5)))
    driven.send(6.0, (0, chunk(0, sealed(0, 10, 20), sealed(1, 10, 20))))
    driven.send(6.1, (0, chunk(1, sealed(2, 10, 20), sealed(3, 10, 20))))
    return driven


@pytest.mark.parametrize(
    ("revoke_at", "ended", "trained"),
    [
        pytest.param(None, 7.5, (0, 1), id="it is called home: the running chunk ends"),
        pytest.param(6.5, 7.0, (0,), id="it is revoked: at the next boundary"),
        pytest.param(6.8, 7.0, (0,), id="it is revoked later"),
        pytest.param(7.2, 7.5, (0, 1), id="it is revoked in the last group"),
    ],
)
def test_a_lease_to_training_ends_at_a_boundary(
    revoke_at: float | None, ended: float, trained: tuple[int, ...]
) -> None:
    driven = lent_to_training()
    driven.send(6.4, (0, end_lease(5, version=2)))
    if revoke_at is not None:
        driven.send(revoke_at, (0, end_lease(5, version=2, revoke=True)))
    driven.until(30.0)
    running, waiting = driven.of(0, msg.ChunkDone)
    assert (running.trained, running.given_back) == (trained, (0, 1)[len(trained) :])
    assert (waiting.trained, waiting.given_back, waiting.seconds, waiting.stats.groups) == ((), (2, 3), 0.0, 0)
    (shipped,), (released,) = driven.of(0, msg.GradientShipped), driven.of(0, msg.LeaseReleased)
    assert shipped.gradient.tokens == 30 * len(trained)
    assert at(driven, [running, waiting, released]) == [ended, ended, ended + 4.0]
    assert (released.version, round(driven.model(released.began_at), 4)) == (2, ended)
    assert driven.kinds(2)[-2:] == [("train", 6.0, ended), ("switch_out", ended, ended + 4.0)]
    told = [type(event).__name__ for _, event in driven.order if not isinstance(event, msg.WeightsLoaded)]
    assert told[-4:] == ["ChunkDone", "ChunkDone", "GradientShipped", "LeaseReleased"]


def test_a_gradient_of_a_lease_is_merged() -> None:
    driven = lent_to_training()
    driven.until(9.0)
    driven.send(9.0, (0, end_lease(5)))
    driven.until(20.0)
    (shipped,) = driven.of(0, msg.GradientShipped)
    driven.send(20.0, (4, finish(shipped.gradient)))
    driven.until(30.0)
    assert driven.of(4, msg.StepDone)[0].merge_s == pytest.approx(0.05)


def test_a_block_that_is_called_home_twice_comes_once() -> None:
    driven = with_weights()
    driven.send(1.0, (4, begin_lease()))
    driven.send(5.0, (4, end_lease_home_to_train()))
    driven.send(6.0, (4, end_lease_home_to_train()))
    driven.send(9.0, (4, end_lease_home_to_train()))
    driven.until(20.0)
    assert at(driven, driven.of(4, msg.LeaseReleased)) == [7.0]
    assert not driven.of(4, msg.Failed)


def test_a_block_of_two_trainers_comes_home_when_the_slower_one_is_done() -> None:
    driven = DrivenNode(
        make_job(devices={"partition": "8:8", "rollout_replica_size": 8, "train_replica_size": 4}),
    )
    driven.send(0.0, (0, load(0)))
    driven.send(1.0, (0, begin_lease()))
    driven.send(6.0, (0, chunk(0, sealed(0, 10, 20))), (4, chunk(1, sealed(1, 10, 20), sealed(2, 40, 40))))
    driven.send(6.5, (0, end_lease()))
    driven.until(30.0)
    # 6.0 + 0.5 + 0.5, and 6.0 + 0.5 + 0.5 + 1.0
    assert at(driven, driven.of(0, msg.ChunkDone) + driven.of(4, msg.ChunkDone)) == [7.0, 8.0]
    assert at(driven, driven.of(0, msg.LeaseReleased)) == [12.0]
    assert [driven.of(device, msg.GradientShipped)[0].gradient.tokens for device in (0, 4)] == [30, 110]
    assert driven.kinds(1)[-3:] == [("train", 6.0, 7.0), ("idle", 7.0, 8.0), ("switch_out", 8.0, 12.0)]
    assert driven.kinds(5)[-2:] == [("train", 6.0, 8.0), ("switch_out", 8.0, 12.0)]
