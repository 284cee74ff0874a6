"""The thread behind a device: commands in order, nothing lost on the way out, and never a silent end."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator

import numpy as np
import pytest

from engine.worker import device_worker
from engine.worker import messages as msg
from engine.worker.transport import with_handles
from tests.engine.driven_worker import (
    PATIENCE_S,
    SPEC,
    BrokenRoles,
    Driven,
    FakeRoles,
    PreparingRoles,
    assert_gapless,
    chunk,
    generate,
)


@pytest.fixture
def drive() -> Iterator[Callable[[type[FakeRoles]], Driven]]:
    made: list[Driven] = []

    def make(roles: type[FakeRoles] = FakeRoles) -> Driven:
        made.append(Driven(roles))
        return made[-1]

    yield make
    for driven in made:
        if hasattr(driven, "roles"):
            driven.roles.release.set()
        driven.worker.submit(driven.batches, [msg.Shutdown()])
        assert driven.worker.join(PATIENCE_S)


Drive = Callable[..., Driven]


def test_a_worker_says_that_it_started_works_through_its_inbox_and_closes_its_ledger(drive: Drive) -> None:
    driven = drive()
    driven.send(chunk(0), generate(7, 8), chunk(1))
    driven.until(msg.GroupScored, 2)
    closed = driven.end()
    assert isinstance(driven.events[0], msg.Started)
    assert driven.events[0].at == closed.started_at
    assert [event.chunk_id for event in driven.events if isinstance(event, msg.ChunkDone)] == [0, 1]
    assert [event.group.group_id for event in driven.events if isinstance(event, msg.GroupScored)] == [7, 8]
    assert driven.events[-1] is closed
    assert not any(isinstance(event, msg.Failed) for event in driven.events)
    assert_gapless(driven, closed)
    assert {span.kind for span in driven.spans} >= {"startup", "rollout", "scoring"}
    assert driven.deliveries[-1].at >= closed.ended_at > SPEC.clock_offset_s


def test_batches_that_overtook_each_other_are_done_in_their_order(drive: Drive) -> None:
    driven = drive()
    order = list(range(12))
    random.Random(3).shuffle(order)
    for number in order:
        driven.worker.submit(number, [chunk(2 * number), chunk(2 * number + 1)])
    driven.batches = len(order)
    driven.until(msg.ChunkDone, 24)
    assert [command.chunk_id for command in driven.roles.handled] == list(range(24))
    driven.end()


def test_a_command_is_done_between_two_tokens(drive: Drive) -> None:
    driven = drive()
    driven.until(msg.Started)
    driven.roles.release.clear()
    driven.send(generate(1, 2, 3))
    assert driven.roles.started.wait(PATIENCE_S)
    driven.send(chunk(0))
    driven.roles.release.set()
    driven.until(msg.GroupScored, 3)
    kinds = [type(event) for event in driven.events]
    assert kinds.index(msg.ChunkDone) < len(kinds) - 1, "the chunk waited for all groups"


def test_finished_groups_are_reported_together_while_the_worker_goes_on_generating(
    drive: Drive, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(device_worker, "COALESCE_S", PATIENCE_S)
    driven = drive()
    driven.until(msg.Started)
    driven.send(generate(1, 2, 3, 4))
    # nothing but the end of the burst ends the wait
    assert [event.group.group_id for event in driven.poll().events] == [1, 2, 3, 4]


def test_anything_but_a_finished_group_is_reported_at_once(drive: Drive, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device_worker, "COALESCE_S", PATIENCE_S)
    driven = drive()
    driven.until(msg.Started)
    driven.roles.release.clear()
    driven.send(generate(1, 2))
    assert driven.roles.started.wait(PATIENCE_S)
    driven.worker.log("a word")
    delivery = driven.poll()
    assert [type(event) for event in delivery.events] == [msg.Log]
    assert driven.roles.generating
    assert delivery.open.kind == "rollout"


def test_a_poll_without_news_gives_the_open_span(drive: Drive) -> None:
    driven = drive()
    driven.send(chunk(0))
    driven.until(msg.ChunkDone)
    delivery, _ = driven.worker.poll(0.0)
    while delivery.open.kind != "idle":
        driven.spans += delivery.spans
        delivery, _ = driven.worker.poll(0.0)
    assert delivery.events == ()
    assert delivery.at >= delivery.open.since


def test_a_failure_is_told_with_its_traceback_and_the_ledger_is_closed(drive: Drive) -> None:
    driven = drive()
    driven.send(chunk(0), msg.DiscardStep(), chunk(1))
    closed = driven.until(msg.Closed)[0]
    failed = driven.events[-2]
    assert isinstance(failed, msg.Failed)
    assert failed.error == "ValueError: nothing to discard"
    assert "raise ValueError" in failed.traceback
    assert [event.chunk_id for event in driven.events if isinstance(event, msg.ChunkDone)] == [0]
    assert_gapless(driven, closed)


def test_a_failure_while_preparing_is_told_too(drive: Drive) -> None:
    driven = drive(BrokenRoles)
    closed = driven.until(msg.Closed)[0]
    assert [type(event) for event in driven.events] == [msg.Started, msg.Failed, msg.Closed]
    assert driven.events[1].error == "SystemExit: the model is gone"  # type: ignore[union-attr]
    assert_gapless(driven, closed)


def test_a_shutdown_ends_a_long_preparation_without_a_failure(drive: Drive) -> None:
    driven = drive(PreparingRoles)
    driven.until(msg.Progress)
    closed = driven.end()
    assert not any(isinstance(event, msg.Failed) for event in driven.events)
    assert [span.kind for span in driven.spans] == ["startup"]
    assert_gapless(driven, closed)


def test_running_groups_are_dropped_by_a_shutdown(drive: Drive) -> None:
    driven = drive()
    driven.until(msg.Started)
    driven.roles.release.clear()
    driven.send(generate(1, 2, 3))
    assert driven.roles.started.wait(PATIENCE_S)
    driven.send(msg.Shutdown())
    driven.roles.release.set()
    driven.until(msg.Closed)
    assert len([event for event in driven.events if isinstance(event, msg.GroupScored)]) == 1


def test_what_is_sent_after_the_end_is_ignored_and_a_poll_returns_at_once(drive: Drive) -> None:
    driven = drive()
    driven.end()
    driven.send(chunk(0))
    assert driven.worker.poll(PATIENCE_S)[0].events == ()


def test_nothing_is_lost_when_several_threads_send_and_ask(drive: Drive) -> None:
    driven, chunks = drive(), 300
    deliveries: list[msg.Delivery] = []

    def send(numbers: list[int]) -> None:
        for number in numbers:
            driven.worker.submit(number, [chunk(number), generate(number)])

    def ask() -> None:
        while True:
            delivery, _ = driven.worker.poll(PATIENCE_S)
            deliveries.append(delivery)  # list.append is atomic
            if not delivery.events or isinstance(delivery.events[-1], msg.Closed):
                return

    numbers = list(range(chunks))
    random.Random(1).shuffle(numbers)
    threads = [threading.Thread(target=send, args=(numbers[place::3],)) for place in range(3)]
    threads += [threading.Thread(target=ask) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads[:3]:
        thread.join(PATIENCE_S)
    driven.worker.submit(chunks, [generate(), msg.Shutdown()])
    for thread in threads[3:]:
        thread.join(PATIENCE_S)
    events = [event for delivery in deliveries for event in delivery.events]
    assert sorted(event.chunk_id for event in events if isinstance(event, msg.ChunkDone)) == list(range(chunks))
    closed = next(event for event in events if isinstance(event, msg.Closed))
    driven.spans = sorted(span for delivery in deliveries for span in delivery.spans)
    assert_gapless(driven, closed)
    assert sum(span.kind == "train" for span in driven.spans) == chunks


def test_the_span_of_what_an_event_tells_of_is_in_the_same_delivery_or_still_open(drive: Drive) -> None:
    driven = drive()
    driven.send(*(chunk(number) for number in range(200)))
    driven.until(msg.ChunkDone, 200)
    known: set[str | None] = set()
    for delivery in driven.deliveries:
        known |= {span.ref for span in delivery.spans}
        told = [event.chunk_id for event in delivery.events if isinstance(event, msg.ChunkDone)]
        missing = [number for number in told if f"chunk {number}" not in known]
        assert missing in ([], told[-1:])
        assert not missing or delivery.open.kind == "train"


def test_arrays_travel_with_the_event_that_tells_of_them_and_timings_with_whatever_is_reported_next(
    drive: Drive,
) -> None:
    driven = drive()
    driven.until(msg.Started)
    unit = msg.DecodeUnit(steps=8, sequences=16, starts=2, resumes=0, seconds=0.5, lease=None)
    first, second = (np.full(3, value, dtype=np.float32) for value in (1, 2))
    parcels = driven.worker.attach(first), driven.worker.attach(second)
    driven.worker.timed(unit)
    driven.worker.emit(
        msg.Ready(
            training_items=1,
            held_out_items=0,
            version=0,
            handle=parcels[0],
            notes=(),
            memory={},
            snapshot=msg.SnapshotHandle(
                version=0, weights=parcels[0], moments=parcels[1], optimizer_steps=0, folder=None
            ),
        )
    )
    delivery, arrays = driven.worker.poll(PATIENCE_S)
    assert delivery.decoded == (unit,)
    by_number = dict(zip(delivery.parcels, arrays, strict=True))
    ready = with_handles(delivery, lambda parcel: by_number[parcel.number]).events[0]
    assert isinstance(ready, msg.Ready)
    assert ready.snapshot is not None
    assert (ready.handle is first, ready.snapshot.weights is first, ready.snapshot.moments is second) == (True,) * 3
    driven.worker.log("a word")
    delivery, arrays = driven.worker.poll(PATIENCE_S)
    assert (delivery.decoded, delivery.parcels, arrays) == ((), (), [])


@pytest.mark.parametrize("revoke", [False, True])
def test_the_end_of_a_lease_is_seen_while_it_waits_in_the_inbox(revoke: bool, drive: Drive) -> None:
    driven = drive()
    driven.until(msg.Started)
    driven.roles.release.clear()
    driven.send(generate(1))
    assert driven.roles.started.wait(PATIENCE_S)
    assert not driven.worker.lease_ends(4)
    driven.send(msg.EndLease(lease=4, step=1, revoke=revoke, weights=None, snapshot=None))
    assert (driven.worker.lease_ends(4), driven.worker.lease_revoked(4)) == (True, revoke)
    assert not driven.worker.lease_ends(5)
    driven.send(msg.EndLease(lease=4, step=1, revoke=True, weights=None, snapshot=None))
    driven.send(msg.EndLease(lease=4, step=1, revoke=False, weights=None, snapshot=None))
    assert driven.worker.lease_revoked(4), "what was revoked once stays so"
    driven.roles.release.set()
