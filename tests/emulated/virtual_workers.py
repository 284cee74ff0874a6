"""Emulated nodes on a virtual clock behind the engine's `Workers` Protocol: whole runs without Ray, threads or waiting.

    engine --submit--> (delay) --> Node --deliveries, together after a moment--> (delay) --> `wait`

Only `wait` moves the time, to the next moment at which the engine is told something. A node may be lost with all that
it holds; devices that are started again afterwards get one node together.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from typing import Any

from engine.devices import Report
from engine.emulated.node import Node
from engine.worker import messages as msg

BEGIN = 1_700_000_000.0
"""Unix seconds; floats are as coarse here as they are in life."""

DELAY_S = 0.005
"""Way of a message, each direction: about what a call through Ray takes on a busy machine."""

COALESCE_S = 0.01
"""Reports that are not urgent wait so long for others, as in `NodeLoop`."""


@dataclass(slots=True)
class Clock:
    """Virtual unix seconds."""

    now: float = BEGIN


@dataclass(slots=True, eq=False)
class _Host:
    """One node, from the moment that it is asked for."""

    specs: list[msg.WorkerSpec]
    node: Node | None = None
    outbox: list[tuple[int, msg.Command]] = field(default_factory=list)
    asked_for: bool = False
    report_at: float = math.inf
    all_at: float = math.inf
    lost: bool = False


class VirtualWorkers:
    """Implements `engine.devices.Workers`; `clock.now` is the engine's time too."""

    def __init__(
        self,
        *,
        delay_s: float = DELAY_S,
        coalesce_s: float = COALESCE_S,
        start_s: float = 0.1,
        all_every_s: float = math.inf,
        clock: Clock | None = None,
    ) -> None:
        """`start_s`: until a node's process lives. `all_every_s`: how often every device speaks, for open spans."""
        self.clock = clock or Clock()
        self.cpu_s = 0.0
        self.sent: list[tuple[float, int, msg.Command]] = []
        """(when, device, command) of everything that arrived."""
        self._delay_s = delay_s
        self._coalesce_s = coalesce_s
        self._start_s = start_s
        self._all_every_s = all_every_s
        self._hosts: list[_Host] = []
        self._by_device: dict[tuple[str, int], _Host] = {}
        self._mail: list[tuple[float, int, Callable[[], None]]] = []
        self._count = 0
        self._reports: list[Report] = []
        self._woken = False

    # -- the Protocol -------------------------------------------------------------------------------------------------

    def start(self, specs: Sequence[msg.WorkerSpec]) -> None:
        for spec in specs:
            place = (spec.run_id, spec.node)
            waiting = [h for h in self._hosts if not h.asked_for and (h.specs[0].run_id, h.specs[0].node) == place]
            host = waiting[0] if waiting else _Host([])
            if not waiting:
                self._hosts.append(host)
            host.specs.append(spec)
            self._by_device[spec.run_id, spec.device] = host

    def submit(self, run_id: str, device: int, command: msg.Command) -> None:
        host = self._by_device.get((run_id, device))
        if host is not None:
            host.outbox.append((device, command))

    def flush(self) -> None:
        for host in self._hosts:
            if not host.asked_for:
                host.asked_for = True
                self._send(self._start_s, lambda host=host: self._begin(host))
            if host.outbox and host.node is not None:
                commands, host.outbox = host.outbox, []
                self._send(self._delay_s, lambda host=host, commands=commands: self._arrive(host, commands))

    def wait(self, timeout_s: float) -> list[Report]:
        self.flush()
        self._woken = False
        limit = self.clock.now + timeout_s
        while not self._reports and not self._woken:
            at = self.next_moment()
            if at > limit or at == math.inf:
                self.clock.now = limit if limit < math.inf else self.clock.now
                break
            self._move(at)
        reports, self._reports = self._reports, []
        return reports

    def end(self, run_id: str) -> None:
        for host in [host for host in self._hosts if host.specs[0].run_id == run_id]:
            self._remove(host)

    def shutdown(self) -> None:
        for host in list(self._hosts):
            self._remove(host)

    # -- for tests ----------------------------------------------------------------------------------------------------

    def wake(self) -> None:
        """End the present wait without a report, as the service does for its mailbox."""
        self._woken = True

    def at(self, seconds: float, action: Callable[[], Any]) -> None:
        """Something happens so many seconds from now."""
        self._send(seconds, action)

    def lose(self, device: int, why: str = "its process died", run_id: str = "run") -> None:
        """The process of the device's node dies: one lost report for each of its devices."""
        host = self._by_device[run_id, device]
        self._remove(host)
        lost = [Report(run_id=run_id, device=spec.device, delivery=None, lost=why) for spec in host.specs]
        self._send(self._delay_s, lambda: self._reports.extend(lost))

    @property
    def empty(self) -> bool:
        """Nothing is left to happen."""
        return self.next_moment() == math.inf and not self._reports

    def next_moment(self) -> float:
        """Unix seconds at which something happens next; infinite when nothing does."""
        times = [self._mail[0][0]] if self._mail else []
        for host in self._hosts:
            if host.node is not None:
                due = host.node.next_event()
                times += [host.report_at, host.all_at] if due is None else [due, host.report_at, host.all_at]
        return max(self.clock.now, min(times, default=math.inf))

    # -- inside -------------------------------------------------------------------------------------------------------

    def _send(self, seconds: float, action: Callable[[], None]) -> None:
        self._count += 1
        heappush(self._mail, (self.clock.now + seconds, self._count, action))

    def _move(self, at: float) -> None:
        self.clock.now = at
        while self._mail and self._mail[0][0] <= at:
            heappop(self._mail)[2]()
        for host in self._hosts:
            if host.node is not None:
                host.node.advance(at)
                self._ask(host)

    def _begin(self, host: _Host) -> None:
        if not host.lost:
            host.node = Node(host.specs, self.clock.now)
            host.all_at = self.clock.now + self._all_every_s
            commands, host.outbox = host.outbox, []
            self._arrive(host, commands)

    def _arrive(self, host: _Host, commands: list[tuple[int, msg.Command]]) -> None:
        if host.lost or host.node is None:
            return
        for device, command in commands:
            self.sent.append((self.clock.now, device, command))
            host.node.submit(device, [command], self.clock.now)

    def _ask(self, host: _Host) -> None:
        """Let the node speak where it is time to."""
        node, now = host.node, self.clock.now
        assert node is not None
        everything = now >= host.all_at
        if everything:
            host.all_at = now + self._all_every_s
        if not (everything or node.urgent or now >= host.report_at):
            if node.news and host.report_at == math.inf:
                host.report_at = now + self._coalesce_s
            return
        host.report_at = math.inf
        run_id = host.specs[0].run_id
        said = [
            Report(run_id=run_id, device=device, delivery=delivery)
            for device, delivery in node.take(now, everything=everything)
        ]
        self._send(self._delay_s, lambda: None if host.lost else self._reports.extend(said))

    def _remove(self, host: _Host) -> None:
        host.lost = True
        self._hosts.remove(host)
        for key in [key for key, other in self._by_device.items() if other is host]:
            del self._by_device[key]
