"""The Ray edge with a Ray that is no Ray: which actors are made, what goes to them, and who is lost with them."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from ray.exceptions import RayActorError, RayTaskError

from engine.actors import channels, cluster
from engine.worker import messages as msg
from engine.worker.ledger import OpenSpan
from tests.emulated.builders import BEGIN, load, make_job, make_specs

OPEN = OpenSpan(kind="idle", role=None, version=None, step=None, since=BEGIN)


def delivery() -> msg.Delivery:
    return msg.Delivery(events=(), spans=(), open=OPEN, at=BEGIN)


@dataclass(eq=False)
class FakeCall:
    """An exchange; ready once it has an answer."""

    answer: Any = None


@dataclass(eq=False)
class FakeActor:
    """Remembers what it was told."""

    given: Any
    batches: list[tuple[int, list[Any]]] = field(default_factory=list)
    calls: list[FakeCall] = field(default_factory=list)
    killed: bool = False

    @property
    def submit(self) -> Any:
        return Remote(lambda number, commands: self.batches.append((number, commands)))

    @property
    def exchange(self) -> Any:
        def exchange(number: int, commands: list[Any], timeout_s: float) -> Any:
            if commands:
                self.batches.append((number, commands))
            self.calls.append(FakeCall())
            return self.calls[-1] if isinstance(self.given, list) else (self.calls[-1], "arrays")

        return Remote(exchange)


@dataclass
class Remote:
    call: Any

    def remote(self, *arguments: Any) -> Any:
        return self.call(*arguments)


class FakeRay:
    """The calls that the edge makes."""

    def __init__(self) -> None:
        self.nodes: list[FakeActor] = []
        self.workers: list[FakeActor] = []
        self.up = False

    def init(self, **options: Any) -> None:
        self.up = True

    def shutdown(self) -> None:
        self.up = False

    def wait(self, calls: list[FakeCall], *, num_returns: int, timeout: float) -> tuple[list[FakeCall], list[FakeCall]]:
        ready = [call for call in calls if call.answer is not None][:num_returns]
        return ready, [call for call in calls if call not in ready]

    def get(self, call: FakeCall, timeout: float) -> Any:
        if isinstance(call.answer, Exception):
            raise call.answer
        return call.answer

    def kill(self, actor: FakeActor) -> None:
        actor.killed = True

    def actor(self, kind: list[FakeActor], given: Any) -> FakeActor:
        kind.append(FakeActor(given))
        return kind[-1]


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> FakeRay:
    fake = FakeRay()
    monkeypatch.setattr(cluster, "ray", fake)
    monkeypatch.setattr(channels, "ray", fake)
    monkeypatch.setattr(channels, "NodeActor", Remote(lambda specs: fake.actor(fake.nodes, list(specs))))
    made = Remote(lambda spec: fake.actor(fake.workers, spec))
    monkeypatch.setattr(channels, "WorkerActor", type("Kind", (), {"options": staticmethod(lambda **_: made)}))
    return fake


@pytest.fixture
def workers(fake: FakeRay) -> cluster.RayWorkers:
    return cluster.RayWorkers(cores=2)


SPECS = make_specs(make_job(devices={"partition": "32:32"}))
"""Two nodes of 32 devices."""


def test_a_node_is_one_actor_with_all_of_its_devices(fake: FakeRay, workers: cluster.RayWorkers) -> None:
    workers.start(SPECS)
    workers.submit("run", 33, load(0))  # before its process began
    assert fake.nodes == []
    workers.flush()
    assert [[spec.device for spec in node.given] for node in fake.nodes] == [list(range(32)), list(range(32, 64))]
    assert [node.batches for node in fake.nodes] == [[], [(0, [(33, load(0))])]]
    assert fake.workers == []


def test_what_is_sent_while_the_exchange_is_open_goes_ahead_in_numbered_batches(
    fake: FakeRay, workers: cluster.RayWorkers
) -> None:
    workers.start(SPECS)
    workers.flush()
    workers.submit("run", 1, load(0))
    workers.submit("run", 2, load(0))
    workers.flush()
    workers.submit("run", 1, load(1))
    workers.flush()
    assert fake.nodes[0].batches == [(0, [(1, load(0)), (2, load(0))]), (1, [(1, load(1))])]
    assert len(fake.nodes[0].calls) == 1


def test_one_answer_of_a_node_is_a_report_for_each_device_that_spoke(
    fake: FakeRay, workers: cluster.RayWorkers
) -> None:
    workers.start(SPECS)
    workers.flush()
    said = [(5, delivery()), (2, delivery())]
    fake.nodes[0].calls[0].answer = said
    reports = workers.wait(0.1)
    assert [(report.run_id, report.device, report.delivery) for report in reports] == [
        ("run", device, told) for device, told in said
    ]
    workers.flush()
    assert [len(node.calls) for node in fake.nodes] == [2, 1]


def test_a_node_that_dies_is_one_loss_for_each_device_and_comes_back_as_one_actor(
    fake: FakeRay, workers: cluster.RayWorkers
) -> None:
    workers.start(SPECS)
    workers.flush()
    fake.nodes[1].calls[0].answer = RayActorError()
    reports = workers.wait(0.1)
    assert [report.device for report in reports] == list(range(32, 64))
    assert all(report.delivery is None and "its process died" in (report.lost or "") for report in reports)
    for device in range(32, 64):
        workers.submit("run", device, load(0))  # nobody hears it
        workers.start([replace(SPECS[device], source=False)])
    workers.flush()
    assert len(fake.nodes) == 3
    assert [spec.device for spec in fake.nodes[2].given] == list(range(32, 64))
    assert fake.nodes[2].batches == []


def test_a_node_that_cannot_be_asked_is_killed_and_lost(fake: FakeRay, workers: cluster.RayWorkers) -> None:
    workers.start(SPECS)
    workers.flush()
    fake.nodes[0].calls[0].answer = RayTaskError("exchange", "traceback", ValueError("broken"))
    reports = workers.wait(0.1)
    assert [report.device for report in reports] == list(range(32))
    assert fake.nodes[0].killed
    assert not fake.nodes[1].killed


def test_a_silent_node_is_lost_with_all_of_its_devices(
    fake: FakeRay, workers: cluster.RayWorkers, monkeypatch: pytest.MonkeyPatch
) -> None:
    workers.start(SPECS)
    workers.flush()
    for node in fake.nodes:
        node.calls[0].answer = [(node.given[0].device, delivery())]
    workers.wait(0.1)
    workers.flush()
    fake.nodes[0].calls[1].answer = [(0, delivery())]
    monkeypatch.setattr(cluster, "SILENT_S", -1.0)
    reports = workers.wait(0.1)
    lost = [report.device for report in reports if report.lost is not None]
    assert lost == list(range(32, 64))
    assert [node.killed for node in fake.nodes] == [False, True]


def test_the_end_of_a_run_removes_its_nodes_and_no_others(fake: FakeRay, workers: cluster.RayWorkers) -> None:
    workers.start(SPECS)
    workers.start([replace(spec, run_id="other") for spec in SPECS[:4]])
    workers.flush()
    workers.start([replace(SPECS[0], run_id="run")])  # asked for, and its process has not begun
    workers.end("run")
    assert [node.killed for node in fake.nodes] == [True, True, False]
    workers.submit("run", 0, load(0))
    workers.submit("other", 0, load(0))
    workers.flush()
    assert [node.batches for node in fake.nodes] == [[], [], [(0, [(0, load(0))])]]
    workers.shutdown()
    assert fake.nodes[2].killed
    assert not fake.up


def test_a_device_on_a_core_has_an_actor_of_its_own(fake: FakeRay, workers: cluster.RayWorkers) -> None:
    job = make_job(devices={"kind": "cpu", "partition": "1:1", "train_replica_size": 1}, profile={})
    specs = [replace(SPECS[device], core=device, job=job) for device in (0, 1)]
    workers.start(specs)
    workers.submit("run", 1, load(0))
    workers.flush()
    assert [worker.given.device for worker in fake.workers] == [0, 1]
    assert [worker.batches for worker in fake.workers] == [[], [(0, [load(0)])]]
    handle = msg.Parcel(7)
    told = replace(delivery(), events=(ready(handle),), parcels=(7,))
    fake.workers[1].calls[0].answer = told
    (report,) = workers.wait(0.1)
    assert report.delivery is not None
    (event,) = report.delivery.events
    assert isinstance(event, msg.Ready)
    assert event.handle == ["arrays", 0]
    assert fake.nodes == []


def ready(handle: Any) -> msg.Ready:
    return msg.Ready(training_items=64, held_out_items=0, version=0, handle=handle, notes=(), memory={})
