"""The thread behind a device: commands in order, nothing lost on the way out, and never a silent end."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from engine.config import Job
from engine.learning.sequences import GroupRequest
from engine.learning.stats import ChunkStats
from engine.worker import device_worker
from engine.worker import messages as msg
from engine.worker.device_worker import DeviceWorker
from engine.worker.ledger import WorkerSpan
from tests.engine.simulated_device import Running, sealed_group

PATIENCE_S = 20.0
"""Longest wait for anything; reached only when a test fails."""

SPEC = msg.WorkerSpec(
    run_id="run",
    device=0,
    core=0,
    rolls=True,
    trains=True,
    source=True,
    train_rank=0,
    train_world=1,
    job=Job(),
    base_dir=Path(),
    cache_dir=Path(),
    resume_from=None,
    clock_offset_s=1000.0,
)


class FakeRoles:
    """Does what commands say: trains a chunk, generates the groups asked for one a step, or fails."""

    def __init__(self, worker: DeviceWorker) -> None:
        self.worker = worker
        self.to_generate: list[GroupRequest] = []
        self.handled: list[msg.Command] = []
        self.started, self.release = threading.Event(), threading.Event()
        self.release.set()

    def prepare(self) -> None:
        pass

    def handle(self, command: msg.Command) -> None:
        self.handled.append(command)
        match command:
            case msg.Generate(requests=requests):
                self.to_generate += requests
            case msg.TrainChunk(chunk_id=number):
                self.worker.ledger.enter("train", role="primary", ref=f"chunk {number}")
                self.worker.emit(msg.ChunkDone(chunk_id=number, step=1, stats=ChunkStats(), seconds=0.0))
            case msg.DiscardStep():
                raise ValueError("nothing to discard")

    @property
    def generating(self) -> bool:
        return bool(self.to_generate)

    def generate_step(self) -> None:
        self.worker.ledger.enter("rollout", role="primary", version=0)
        self.started.set()
        assert self.release.wait(PATIENCE_S)
        request = self.to_generate.pop(0)
        self.worker.ledger.enter("scoring", ref=f"group {request.group_id}")
        self.worker.emit(msg.GroupScored(group=sealed_group(Running(request, 0.0, version=0), 1.0)))


class PreparingRoles(FakeRoles):
    """Prepares for as long as it is let."""

    def prepare(self) -> None:
        self.started.set()
        while True:
            self.worker.report_progress("warm start", 0.5)
            time.sleep(0.001)


class BrokenRoles(FakeRoles):
    """Cannot be made ready."""

    def prepare(self) -> None:
        raise SystemExit("the model is gone")


class Driven:
    """A worker, its roles, and everything it has said so far."""

    def __init__(self, roles: type[FakeRoles]) -> None:
        self.roles: FakeRoles
        self.events: list[msg.Event] = []
        self.spans: list[WorkerSpan] = []
        self.deliveries: list[msg.Delivery] = []
        self.batches = 0

        def make(worker: DeviceWorker) -> FakeRoles:
            self.roles = roles(worker)
            return self.roles

        self.worker = DeviceWorker(SPEC, make)
        self.worker.start()

    def send(self, *commands: msg.Command) -> None:
        self.worker.submit(self.batches, commands)
        self.batches += 1

    def poll(self) -> msg.Delivery:
        delivery = self.worker.poll(PATIENCE_S)
        self.deliveries.append(delivery)
        self.events += delivery.events
        self.spans += delivery.spans
        return delivery

    def until(self, kind: type[Any], count: int = 1) -> list[Any]:
        """Poll until that many events of a kind have come."""
        while len(found := [event for event in self.events if isinstance(event, kind)]) < count:
            assert self.poll().events, f"{count} {kind.__name__} did not come"
        return found

    def end(self) -> msg.Closed:
        self.send(msg.Shutdown())
        closed: msg.Closed = self.until(msg.Closed)[0]
        assert self.worker.join(PATIENCE_S)
        return closed


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


def chunk(number: int) -> msg.TrainChunk:
    return msg.TrainChunk(chunk_id=number, step=1, groups=())


def generate(*group_ids: int) -> msg.Generate:
    return msg.Generate(
        requests=tuple(GroupRequest(group_id=i, epoch=0, position=i, item=i, bound=1.0) for i in group_ids)
    )


def assert_gapless(driven: Driven, closed: msg.Closed) -> None:
    spans = driven.spans
    assert spans[0].t0 == closed.started_at
    assert spans[-1].t1 == closed.ended_at
    assert all(before.t1 == after.t0 for before, after in pairwise(spans))


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
    delivery = driven.worker.poll(0.0)
    while delivery.open.kind != "idle":
        driven.spans += delivery.spans
        delivery = driven.worker.poll(0.0)
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
    assert driven.worker.poll(PATIENCE_S).events == ()


def test_nothing_is_lost_when_several_threads_send_and_ask(drive: Drive) -> None:
    driven, chunks = drive(), 300
    deliveries: list[msg.Delivery] = []

    def send(numbers: list[int]) -> None:
        for number in numbers:
            driven.worker.submit(number, [chunk(number), generate(number)])

    def ask() -> None:
        while True:
            delivery = driven.worker.poll(PATIENCE_S)
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
