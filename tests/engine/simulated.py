"""Workers on a virtual clock: they take the engine's real commands and report real events, after random delays.

    engine --submit--> (delay) --> inbox --> one command at a time --> events --> (delay) --> `wait`

Each direction keeps the order of one device and nothing else; groups end in any order, and a worker may die with all
that it holds, what it was told and what it had to say included. No Ray, no torch, no thread, no time passes.
"""

from __future__ import annotations

import heapq
import itertools
import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from engine.devices import Report
from engine.worker import messages as msg
from engine.worker.ledger import OpenSpan
from tests.engine.simulated_device import BEGIN, Device


@dataclass(frozen=True, kw_only=True)
class Physics:
    """Random durations in seconds, and how often a reward fails."""

    delay_s: float = 0.02
    """Mean way of a message, each direction."""
    group_s: float = 1.0
    """Median of a group; the tail is log-normal."""
    tail: float = 0.6
    """Sigma of that tail."""
    chunk_s: float = 0.3
    """Mean of every trainer command, and of each group of a chunk."""
    switch_s: float = 0.05
    """Mean of taking the other role, and of coming back."""
    excluded: float = 0.05
    """Share of groups whose reward fails."""
    reason: str = "reward_failed"
    """Why they are excluded."""
    back_s: float = 2.0
    """Mean of the time from a worker's death until the one in its place is ready."""


class Clock:
    """Events in the order of their times; `now` moves only from one to the next."""

    def __init__(self) -> None:
        self.now = BEGIN
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._ticket = itertools.count()

    def at(self, time: float, action: Callable[[], None]) -> None:
        heapq.heappush(self._events, (time, next(self._ticket), action))

    def after(self, seconds: float, action: Callable[[], None]) -> None:
        self.at(self.now + seconds, action)

    @property
    def empty(self) -> bool:
        """Nothing is left to happen."""
        return not self._events

    def step(self, limit: float) -> bool:
        """Let the next thing happen; False when nothing is left to happen before the limit, which is now then."""
        if not self._events or self._events[0][0] > limit:
            self.now = limit if math.isfinite(limit) else self.now
            return False
        self.now, _, action = heapq.heappop(self._events)
        action()
        return True


@dataclass
class SimulatedWorkers:
    """Implements `engine.devices.Workers` for one run."""

    rng: random.Random
    physics: Physics
    start_version: int = 0
    clock: Clock = field(default_factory=Clock)
    devices: dict[int, Device] = field(default_factory=dict)
    trained: dict[int, list[int]] = field(default_factory=dict)
    """Step -> groups whose gradient went into it."""
    evaluated: list[tuple[int, str, int]] = field(default_factory=list)
    names: dict[int, str] = field(default_factory=dict)
    """Version -> the one set of weights that the engine was told of under this number."""
    shipped: dict[int, set[int]] = field(default_factory=dict)
    """Step -> groups of the gradients that the engine holds."""
    cpu_s: float = 0.0

    def __post_init__(self) -> None:
        self._reports: list[Report] = []
        self.woken = False
        self.names[self.start_version] = f"v{self.start_version}"
        self.seed = self.rng.randrange(2**32)
        """Of what a group's own numbers follow from, whoever generates it."""

    def start(self, specs: Sequence[msg.WorkerSpec]) -> None:
        for spec in specs:
            again = spec.device in self.devices
            assert not again or self.devices[spec.device].lost, f"device {spec.device} has a worker"
            worker = self.devices[spec.device] = Device(spec, self)
            self.clock.after(self.delay(), worker.begin_life)
            self.clock.after(0.1 + self.rng.expovariate(1 / self.physics.back_s) if again else 0.1, worker.prepare)

    def submit(self, run_id: str, device: int, command: msg.Command) -> None:
        worker = self.devices[device]
        worker.arrival = max(worker.arrival, self.clock.now + self.delay())
        self.clock.at(worker.arrival, lambda: worker.take(command))

    def deliver(self, worker: Device, event: msg.Event) -> None:
        """An event of a worker on its way to the engine, with the timings and spans until now."""
        worker.delivery = max(worker.delivery, self.clock.now + self.delay())
        now, decoded, spans = self.clock.now, worker.rollout.take_units(), worker.take_spans()
        opened = OpenSpan(kind="idle", role=None, version=None, step=None, since=now)
        delivery = msg.Delivery(events=(event,), spans=spans, open=opened, at=now, decoded=decoded)
        self.clock.at(worker.delivery, lambda: self.report(worker, delivery))

    def report(self, worker: Device, delivery: msg.Delivery) -> None:
        if worker.lost:
            return
        for event in delivery.events:
            match event:
                case msg.GradientShipped(step=step, gradient=gradient):
                    self.shipped.setdefault(step, set()).update(gradient.handle[3])
                case msg.StepDone(handle=handle) if handle is not None:
                    _, version, name = handle
                    assert version not in self.names, f"version {version} was published twice"
                    self.names[version] = name
                    self.trained[event.step] = list(worker.train.trained)
        self._reports.append(Report(run_id=worker.spec.run_id, device=worker.spec.device, delivery=delivery))

    def lose(self, device: int, why: str) -> None:
        """The worker's process dies: what it was told, what it held and what it had to say are gone."""
        worker = self.devices[device]
        if worker.lost:
            return
        worker.die()
        report = Report(run_id="run", device=device, delivery=None, lost=why)
        self.clock.after(self.delay(), lambda: self._reports.append(report))

    def wake(self) -> None:
        """End the present wait without a report, as the service does for its mailbox."""
        self.woken = True

    def flush(self) -> None:
        pass

    def wait(self, timeout_s: float) -> list[Report]:
        """The next reports; empty when there are none within the timeout, or when nothing is left to happen at all."""
        self.woken = False
        limit = self.clock.now + timeout_s
        while not self._reports and not self.woken and self.clock.step(limit):
            pass
        reports, self._reports = self._reports, []
        return reports

    def end(self, run_id: str) -> None:
        self.devices.clear()

    def shutdown(self) -> None:
        self.devices.clear()

    # -- random times -------------------------------------------------------------------------------------------------

    def delay(self) -> float:
        return self.rng.expovariate(1 / self.physics.delay_s)

    def command_s(self) -> float:
        return self.rng.expovariate(1 / self.physics.chunk_s)

    def switch_s(self) -> float:
        return self.rng.expovariate(1 / self.physics.switch_s)

    def trained_s(self) -> float:
        """One group of a chunk."""
        return self.physics.chunk_s * self.rng.lognormvariate(0, 0.2)

    def group_s(self, epoch: int, position: int) -> tuple[float, bool]:
        """Seconds of a group from the first token to the last, and whether its reward fails: whoever generates it."""
        own = random.Random(f"{self.seed} {epoch} {position}")
        return self.physics.group_s * own.lognormvariate(0, self.physics.tail), own.random() < self.physics.excluded
