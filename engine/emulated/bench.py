"""What the roles of an emulated node share: its clock, its devices, and who is in which role.

A device is what the engine sees of it: a ledger, and what it has to say.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from engine.emulated.physics import Physics
from engine.emulated.timeline import Timeline
from engine.worker import messages as msg
from engine.worker.ledger import Ledger

if TYPE_CHECKING:
    from engine.emulated.rollouter import EmulatedRollouter
    from engine.emulated.trainer import EmulatedTrainer


class Device:
    """One emulated device."""

    __slots__ = ("added", "closed", "events", "ledger", "spec", "units")

    def __init__(self, spec: msg.WorkerSpec, clock: Callable[[], float]) -> None:
        self.spec = spec
        self.ledger = Ledger(clock=clock, thread_cpu=lambda: 0.0, process_cpu=lambda: 0.0)
        self.events: list[msg.Event] = []
        self.units: list[msg.DecodeUnit] = []
        self.added = 0
        """Groups that were handed to rollouters whose first device it is."""
        self.closed = False


class Bench:
    """Of one node."""

    def __init__(self, physics: Physics, timeline: Timeline, specs: Iterable[msg.WorkerSpec]) -> None:
        self.physics = physics
        self.timeline = timeline
        self.devices = {spec.device: Device(spec, timeline.unix) for spec in specs}
        self.rollouters: dict[int, EmulatedRollouter] = {}
        """First device -> the replica in the rollouter role."""
        self.trainers: dict[int, EmulatedTrainer] = {}
        """First device -> the replica in the trainer role."""
        self.news: set[int] = set()
        """Devices with something to say."""
        self.urgent = False
        """Some of it is not to wait for more."""

    def show(
        self,
        devices: Iterable[int],
        kind: str,
        *,
        role: str | None = None,
        version: int | None = None,
        step: int | None = None,
        ref: str | None = None,
    ) -> None:
        """The devices do this from now on."""
        for number in devices:
            device = self.devices.get(number)
            if device is None or device.closed:
                continue
            before = device.ledger.open
            device.ledger.enter(kind, role=role, version=version, step=step, ref=ref)
            if device.ledger.open is not before:
                self.news.add(number)

    def emit(self, device: int, event: msg.Event) -> None:
        """The device reports; one that is closed has said its last."""
        if self.devices[device].closed:
            return
        self.devices[device].events.append(event)
        self.news.add(device)
        # finished groups come in numbers: the engine is not to be asked for each of them
        self.urgent = self.urgent or not isinstance(event, msg.GroupScored)

    def timed(self, device: int, unit: msg.DecodeUnit) -> None:
        """The device timed a stretch of generation."""
        self.devices[device].units.append(unit)
        self.news.add(device)
