"""Workers on a virtual clock: they take the engine's real commands and report real events, after random delays.

    engine --submit--> (delay) --> inbox --> one command at a time --> events --> (delay) --> `wait`

Each direction keeps the order of one device and nothing else; groups end in any order. No Ray, no torch, no thread, no
time passes.
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
    """Mean of every trainer command."""
    excluded: float = 0.05
    """Share of groups whose reward fails."""


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
    cpu_s: float = 0.0

    def __post_init__(self) -> None:
        self._reports: list[Report] = []
        self.woken = False

    def start(self, specs: Sequence[msg.WorkerSpec]) -> None:
        for spec in specs:
            self.devices[spec.device] = Device(spec, self)
            self.clock.after(self.delay(), self.devices[spec.device].prepare)

    def submit(self, run_id: str, device: int, command: msg.Command) -> None:
        worker = self.devices[device]
        worker.arrival = max(worker.arrival, self.clock.now + self.delay())

        def arrive() -> None:
            if not (worker.lost or worker.closed):
                worker.inbox.append(command)
                worker.work()

        self.clock.at(worker.arrival, arrive)

    def deliver(self, worker: Device, event: msg.Event) -> None:
        """An event of a worker on its way to the engine."""
        worker.delivery = max(worker.delivery, self.clock.now + self.delay())
        self.clock.at(worker.delivery, lambda: self.report(worker, event))

    def report(self, worker: Device, event: msg.Event) -> None:
        if worker.lost:
            return
        now = self.clock.now
        opened = OpenSpan(kind="idle", role=None, version=None, step=None, since=now)
        delivery = msg.Delivery(events=(event,), spans=(), open=opened, at=now)
        self._reports.append(Report(run_id=worker.spec.run_id, device=worker.spec.device, delivery=delivery))

    def lose(self, device: int, why: str) -> None:
        """The worker's process dies: what it was told and what it had to say are gone."""
        worker = self.devices[device]
        worker.lost = True
        worker.active.clear()
        worker.inbox.clear()
        self._reports.append(Report(run_id="run", device=device, delivery=None, lost=why))

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

    def group_s(self) -> tuple[float, float]:
        """Until the first token, and from there to the last."""
        whole = self.physics.group_s * self.rng.lognormvariate(0, self.physics.tail)
        return min(whole, self.rng.expovariate(20)), whole
