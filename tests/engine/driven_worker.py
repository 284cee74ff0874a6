"""A device worker with roles that do next to nothing, driven from a test."""

from __future__ import annotations

import threading
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

from engine.config import Job
from engine.learning.sequences import GroupRequest
from engine.learning.stats import ChunkStats
from engine.worker import messages as msg
from engine.worker.device_worker import DeviceWorker
from engine.worker.ledger import WorkerSpan
from tests.engine.simulated_rollouter import Running, sealed_group

PATIENCE_S = 20.0
"""Longest wait for anything; reached only when a test fails."""

SPEC = msg.WorkerSpec(
    run_id="run",
    device=0,
    core=0,
    home="rollout",
    rolls=True,
    trains=True,
    source=True,
    job=Job(),
    base_dir=Path(),
    cache_dir=Path(),
    resume_from=None,
    clock_offset_s=1000.0,
)


def chunk_done(number: int) -> msg.ChunkDone:
    return msg.ChunkDone(
        chunk_id=number, step=1, trained=(), given_back=(), stats=ChunkStats(), seconds=0.0, at=SPEC.clock_offset_s
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
                self.worker.emit(chunk_done(number))
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
        running = Running(request, 0.0, versions=((0, 1),))
        self.worker.emit(msg.GroupScored(group=sealed_group(running, 1.0)))


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
        delivery, _ = self.worker.poll(PATIENCE_S)
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
