"""An emulated node as a whole: its devices' lives without gaps, its end, its failures, and devices without pools."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest

from engine.emulated.node import STARTUP_S, Node
from engine.emulated.trainer import snapshot_of, weights_of
from engine.worker import messages as msg
from tests.emulated.builders import (
    BEGIN,
    PROFILE,
    DrivenNode,
    begin_lease,
    chunk,
    end_lease,
    finish,
    generate,
    load,
    make_job,
    make_specs,
    sealed,
    whole_step,
)

COLOCATED = {
    "schedule": {"arm": "colocated", "staleness": 0},
    "devices": {"kind": "emulated", "partition": "auto", "count": 8, "train_replica_size": 4},
}


def test_every_device_starts_and_is_ready_and_the_source_has_the_first_weights() -> None:
    driven = DrivenNode()
    assert sorted(driven.started) == list(range(8))
    for device, events in driven.started.items():
        started, ready = events
        assert (started.at, ready.training_items, ready.held_out_items) == (BEGIN, 64, 0)
        assert (ready.version, ready.handle) == ((0, ("weights", 0)) if device == 4 else (None, None))
    rehearsals = {device: events[1].rehearsal for device, events in driven.started.items() if events[1].rehearsal}
    assert rehearsals == {
        0: msg.Rehearsal(in_s=pytest.approx(0.5), out_s=pytest.approx(0.4), grad_s=pytest.approx(0.05)),
        4: msg.Rehearsal(in_s=pytest.approx(0.3), out_s=pytest.approx(0.2), grad_s=0.0),
    }


def test_ledgers_are_gapless_from_the_first_moment_to_the_last() -> None:
    driven = DrivenNode()
    driven.send(0.0, *((device, load(0)) for device in range(4)))
    driven.send(0.3, (0, generate(0, 1)), (1, generate(2, 3)))
    driven.send(1.1, (4, chunk(0, sealed(10, 10, 20))))
    driven.send(1.7, (0, begin_lease()))
    driven.send(9.0, (0, chunk(1, sealed(11, 10, 20), sealed(12, 30, 20))))
    driven.send(9.4, (0, end_lease(revoke=True)))
    driven.send(11.0, *((device, msg.Shutdown()) for device in range(8)))
    assert driven.node.closed
    assert driven.node.next_event() is None or driven.node.take(driven.unix(99.0)) == []
    for device in range(8):
        (closed,) = driven.of(device, msg.Closed)
        spans = driven.spans[device]
        assert (spans[0].t0, spans[-1].t1) == (BEGIN, closed.ended_at) == (closed.started_at, driven.unix(11.0))
        assert all(before.t1 == after.t0 for before, after in pairwise(spans))
        assert sum(span.t1 - span.t0 for span in spans) == pytest.approx(STARTUP_S + 1.1)


def test_what_is_due_happens_at_its_own_time_however_late_the_process_wakes() -> None:
    early, late = DrivenNode(), DrivenNode()
    for driven in (early, late):
        driven.send(0.0, (0, load(0)), (0, generate(0, 1, 2)), (4, whole_step()))
    early.until(50.0)
    late.node.advance(late.unix(50.0))  # all at once
    late.hear(late.unix(50.0))
    for device in (0, 4, 7):
        assert late.spans[device] == early.spans[device]
    assert late.of(0, msg.GroupScored) == early.of(0, msg.GroupScored)
    assert late.of(4, msg.ChunkDone) == early.of(4, msg.ChunkDone)


def test_next_event_is_late_enough_for_what_it_announces() -> None:
    rng = random.Random(0)
    driven = DrivenNode(make_job(devices={"time_scale": 0.007}))
    driven.send(0.0, *((device, load(0)) for device in range(4)))
    for number in range(40):
        driven.send(number * 2 + rng.random(), (number % 4, generate(number)))
    for _ in range(10_000):
        due = driven.node.next_event()
        if due is None:
            break
        driven.node.advance(due)
        after = driven.node.next_event()
        assert after is None or after > due, "an event that its own time did not reach"
    else:
        pytest.fail("it makes no way")


def test_small_reports_are_not_urgent_and_the_last_group_of_a_rollouter_is() -> None:
    driven = DrivenNode()
    driven.send(0.0, (0, load(0)), (0, generate(0, 3)))
    node = driven.node
    assert not node.news
    while not node.news:
        node.advance(node.next_event() or 0.0)
    assert not node.urgent
    said = node.take(driven.unix(5.0))
    assert [type(event) for device, delivery in said for event in delivery.events] in ([], [msg.GroupScored])
    while node.next_event() is not None:
        node.advance(node.next_event() or 0.0)
    assert node.urgent


def test_everything_lets_every_device_speak_first_devices_last() -> None:
    driven = DrivenNode()
    driven.send(0.0, (0, load(0)), (0, generate(3)))
    assert driven.node.take(driven.unix(0.5)) == []
    said = driven.node.take(driven.unix(0.5), everything=True)
    assert [device for device, _ in said] == [7, 6, 5, 4, 3, 2, 1, 0]
    opened = said[-1][1].open
    assert (opened.kind, opened.role, opened.since) == ("rollout", "primary", driven.unix(0.0))
    assert said[0][1].open.kind == "idle"


@pytest.mark.parametrize(
    ("device", "command", "text"),
    [
        pytest.param(0, generate(0), "without weights", id="no weights"),
        pytest.param(5, whole_step(), "no trainer's first one", id="not the first device"),
        pytest.param(4, chunk(0, sealed(0, 10, 20), step=3), "asked for step 3 at version 0", id="another step"),
        pytest.param(
            4, msg.SaveCheckpoint(folder=make_specs(make_job())[0].base_dir, step=1), "learn nothing", id="save"
        ),
        pytest.param(4, msg.Evaluate(step=0, name="eval", prefix="", part=0, parts=1), "learn nothing", id="evaluate"),
        pytest.param(4, msg.SwitchRole(role="rollout"), "has a home", id="switch"),
    ],
)
def test_a_fault_is_reported_by_every_device_and_ends_them(device: int, command: msg.Command, text: str) -> None:
    driven = DrivenNode()
    driven.send(1.0, (device, command))
    driven.send(2.0, (4, whole_step()), (4, msg.Shutdown()))  # nobody does anything any more
    assert driven.node.closed
    assert driven.node.next_event() is None
    for number in range(8):
        failed, closed = driven.events[number]
        assert text in failed.error
        assert "Traceback" in failed.traceback
        assert (type(failed), type(closed)) == (msg.Failed, msg.Closed)


def test_a_shutdown_before_the_devices_are_ready_ends_them_too() -> None:
    node = Node(make_specs(make_job()), BEGIN)
    for device in range(8):
        node.submit(device, [msg.Shutdown()], BEGIN + 0.01)
    node.advance(BEGIN + 10.0)
    told = {device: [type(event) for event in delivery.events] for device, delivery in node.take(BEGIN + 10.0)}
    assert told == {device: [msg.Started, msg.Closed] for device in range(8)}


def test_a_job_without_a_profile_is_refused() -> None:
    with pytest.raises(ValueError, match="goes by its profile"):
        Node(make_specs(make_job().model_copy(update={"profile": None})), BEGIN)


# -- without pools ----------------------------------------------------------------------------------------------------


def test_devices_without_a_home_change_their_role_for_what_a_lease_of_that_kind_costs() -> None:
    driven = DrivenNode(make_job(**COLOCATED))
    driven.send(0.0, (4, load(0)))
    assert [event.version for event in driven.of(4, msg.WeightsLoaded)] == [0]
    driven.send(1.0, (0, msg.SwitchRole(role="rollout")), (0, generate(0, bound=0.0)))  # told in one breath
    driven.until(9.0)
    (loaded,) = driven.of(0, msg.WeightsLoaded)
    assert (loaded.version, round(driven.model(loaded.at), 4)) == (0, 4.0)
    short, long = sorted(driven.physics.lengths(0, 0))
    # four replicas side by side: two sequences at 4 * 100 / (2 + 4 * 2) tokens/s, then one at 400 / 9
    end = 4.0 + short / 40 + (long - short) * 9 / 400
    (scored,) = driven.of(0, msg.GroupScored)
    assert driven.model(scored.group.finished_at) == pytest.approx(end, abs=1e-4)
    driven.send(10.0, (0, msg.SwitchRole(role="train")), (0, chunk(0, sealed(0, 10, 20), sealed(1, 10, 20))))
    driven.send(10.0, (4, chunk(1, sealed(2, 10, 20), sealed(3, 10, 20))))
    driven.until(20.0)
    driven.send(20.0, (0, msg.ShipGradient(step=1)), (4, msg.ShipGradient(step=1)))
    shipped = [driven.of(device, msg.GradientShipped)[0].gradient for device in (0, 4)]
    driven.send(20.0, (0, finish(*shipped)), (4, finish(*shipped, publish=False)))
    driven.until(30.0)
    (done,) = driven.of(0, msg.StepDone)
    assert (done.snapshot, done.publish_s, done.merge_s) == (None, 0.0, pytest.approx(0.05))
    life = [
        ("idle", 0.0, 1.0),
        ("switch_out", 1.0, 4.0),
        ("rollout", 4.0, round(end, 4)),
        ("idle", round(end, 4), 10.0),
        ("switch_in", 10.0, 15.0),
        ("train", 15.0, 16.5),
        ("idle", 16.5, 20.0),
        ("grad_merge", 20.0, 20.5),
        ("optimizer", 20.5, 22.5),
    ]
    assert [driven.kinds(device) for device in range(4)] == [life] * 4


def test_a_step_of_one_unit_without_pools_has_nothing_to_merge() -> None:
    driven = DrivenNode(make_job(**COLOCATED | {"devices": COLOCATED["devices"] | {"count": 4}}))
    driven.send(0.0, (0, whole_step()))
    driven.send(5.0, (0, finish(own=True)))
    driven.until(30.0)
    assert driven.of(0, msg.StepDone)[0].merge_s == 0.0
    assert driven.kinds(0)[-1] == ("optimizer", 5.0, 5.0 + PROFILE["optimizer_s"])


# -- another home -----------------------------------------------------------------------------------------------------


def move(home: str, *, version: int = 0) -> msg.Move:
    return msg.Move(
        home=home,
        step=version + 1,
        weights=msg.Weights(version=version, handle=weights_of(version)),
        snapshot=snapshot_of(version) if home == "train" else None,
        reference=None,
    )


def test_a_block_of_rollouters_becomes_a_trainer_in_the_time_of_a_switch() -> None:
    driven = DrivenNode()
    driven.send(0.0, *((device, load(0)) for device in range(4)), (1, generate(0, 1)))
    driven.send(1.0, (0, move("train")))
    (aborted,) = driven.of(1, msg.GroupsAborted)
    assert [group.group_id for group in aborted.groups] == [0, 1]
    driven.until(20.0)
    (moved,) = driven.of(0, msg.Moved)
    assert (moved.home, moved.version, driven.model(moved.at)) == ("train", 0, pytest.approx(6.0))
    driven.send(20.0, (0, chunk(0, sealed(10, 10, 20))))
    driven.until(40.0)
    assert driven.of(0, msg.ChunkDone)[0].trained == (10,)
    assert [span.kind for span in driven.spans[3]][-4:-1] == ["idle", "switch_in", "idle"]
    assert [(span.kind, span.role) for span in driven.spans[2]][-1] == ("train", "primary")


def test_a_trainer_becomes_rollouters_after_it_has_shipped_its_gradient_and_can_be_lent_from_there() -> None:
    driven = DrivenNode()
    driven.send(0.0, (4, chunk(0, sealed(10, 10, 20))))
    driven.send(3.0, (4, move("rollout")))
    (shipped,) = driven.of(4, msg.GradientShipped)
    assert shipped.gradient.handle[3] == (10,)
    driven.until(20.0)
    assert driven.of(4, msg.Moved)[0].home == "rollout"
    driven.send(20.0, (6, generate(1)), (6, load(1)))
    driven.until(60.0)
    assert [event.group.group_id for event in driven.of(6, msg.GroupScored)] == [1]
    driven.send(60.0, (4, begin_lease(version=1)))
    driven.until(80.0)
    assert driven.of(4, msg.LeaseReady)[0].version == 1


def test_a_block_that_is_away_is_not_moved() -> None:
    driven = DrivenNode()
    driven.send(0.0, (0, load(0)), (0, begin_lease()), (0, move("train")))
    (failed,) = driven.of(0, msg.Failed)
    assert "block 0 is preparing and was to change its pool" in failed.error
