"""The engine's end of one actor: what is on its way to it, and the one long call that is open on it.

A worker hosts one device, an emulated node some tens. The long `exchange` takes commands along and comes back when
there is something to say; commands that arise while it is open go in a call of their own, and batches are numbered, so
that their order survives two ways.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from typing import Any

import ray

from engine.actors.node_actor import NodeActor
from engine.actors.worker_actor import WorkerActor
from engine.config.job import OVERSUBSCRIBED_WORKERS_PER_CORE
from engine.worker.messages import Command, Delivery, WorkerSpec
from engine.worker.transport import with_handles

POLL_S = 1.0
"""A worker with nothing to say answers this often: a sign of life, and its open span for the page."""


class Channel(ABC):
    """To one actor."""

    def __init__(self, run_id: str) -> None:
        self.run_id = run_id
        self.exchange: Any = None
        """The open call; None until the next flush."""
        self.called_at = 0.0
        """When it was opened, monotonic seconds."""
        self.answered = False
        """The actor has answered at least once."""
        self._actor: Any = None
        self._batches = 0
        self._outbox: list[Any] = []

    @property
    @abstractmethod
    def devices(self) -> list[int]:
        """Devices that the actor hosts."""

    @abstractmethod
    def add(self, device: int, command: Command) -> None:
        """Send a command with the next flush."""

    @abstractmethod
    def _open(self, number: int, commands: list[Any]) -> None:
        """Open the exchange."""

    @abstractmethod
    def _deliveries(self) -> list[tuple[int, Delivery]]:
        """What the exchange came back with."""

    def flush(self) -> None:
        """Send what is to be sent, and keep an exchange open."""
        if self.exchange is not None and not self._outbox:
            return
        number, commands = self._batches, self._outbox
        if commands:
            self._batches, self._outbox = number + 1, []
        if self.exchange is None:
            self._open(number, commands)
            self.called_at = time.monotonic()
        else:
            # the answer says nothing that the exchange does not: a dead actor fails there
            self._actor.submit.remote(number, commands)

    def collect(self) -> list[tuple[int, Delivery]]:
        """The answer of an exchange that is ready. Raises what Ray raises for an actor that is gone."""
        deliveries = self._deliveries()
        self.exchange, self.answered = None, True
        return deliveries

    def kill(self) -> None:
        """End the actor, whatever it does."""
        if self._actor is not None:
            ray.kill(self._actor)


class WorkerChannel(Channel):
    """To the worker of one device; arrays travel with what it says."""

    def __init__(self, spec: WorkerSpec) -> None:
        super().__init__(spec.run_id)
        share = 1 / OVERSUBSCRIBED_WORKERS_PER_CORE if spec.job.devices.oversubscribe else 1
        self._device = spec.device
        self._actor = WorkerActor.options(num_cpus=share).remote(spec)
        self._arrays: Any = None
        """What will hold the arrays of the answer."""

    @property
    def devices(self) -> list[int]:
        return [self._device]

    def add(self, device: int, command: Command) -> None:
        self._outbox.append(command)

    def _open(self, number: int, commands: list[Any]) -> None:
        self.exchange, self._arrays = self._actor.exchange.remote(number, commands, POLL_S)

    def _deliveries(self) -> list[tuple[int, Delivery]]:
        delivery = ray.get(self.exchange, timeout=POLL_S)
        places = {number: place for place, number in enumerate(delivery.parcels)}
        arrays, self._arrays = self._arrays, None
        return [(self._device, with_handles(delivery, lambda parcel: [arrays, places[parcel.number]]))]


class NodeChannel(Channel):
    """To an emulated node. Its process begins with the first flush, with all devices that were added until then."""

    def __init__(self, spec: WorkerSpec) -> None:
        super().__init__(spec.run_id)
        self.node = spec.node
        self._specs = [spec]

    @property
    def devices(self) -> list[int]:
        return [spec.device for spec in self._specs]

    @property
    def begun(self) -> bool:
        """It takes no more devices."""
        return self._actor is not None

    def host(self, spec: WorkerSpec) -> None:
        """Host one more device."""
        assert not self.begun, f"node {self.node} lives already and cannot take device {spec.device}"
        self._specs.append(spec)

    def add(self, device: int, command: Command) -> None:
        self._outbox.append((device, command))

    def _open(self, number: int, commands: list[Any]) -> None:
        if self._actor is None:
            self._actor = NodeActor.remote(self._specs)
        self.exchange = self._actor.exchange.remote(number, commands, POLL_S)

    def _deliveries(self) -> list[tuple[int, Delivery]]:
        deliveries: list[tuple[int, Delivery]] = ray.get(self.exchange, timeout=POLL_S)
        return deliveries
