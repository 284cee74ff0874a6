"""One emulated node: up to some tens of devices in one process, driven from outside with explicit times.

    submit(device, commands, now) -> block or replica -> timeline -> events, spans, units -> take(now)

Single-threaded; it reads no clock and waits for nothing. A replica's first device speaks for it, a block's for a lease.
Healthy end: Shutdown to each device. An exception: every device reports `Failed`, then `Closed`; never silence.
"""

from __future__ import annotations

import os
import traceback
from collections.abc import Callable, Sequence

from engine.emulated.bench import Bench, Device
from engine.emulated.block import Block
from engine.emulated.physics import Physics
from engine.emulated.rollouter import EmulatedRollouter
from engine.emulated.timeline import Timeline
from engine.emulated.trainer import EmulatedTrainer, snapshot_of, weights_of
from engine.worker import messages as msg

STARTUP_S = 0.05
"""Real seconds until a device is ready: so that its ledger begins as every other one does, and no more."""


class Node:
    """The devices of these specs, which are all of one run and one node."""

    def __init__(self, specs: Sequence[msg.WorkerSpec], now: float) -> None:
        """Their lives begin; `now` in unix seconds, as all times here."""
        job = specs[0].job
        self.stamp = 0
        self._timeline = Timeline(now, job.devices.time_scale)
        self._failed = False
        physics = Physics(job)
        self._bench = Bench(physics, self._timeline, specs)
        self._layout = physics.layout
        self._training_items, self._held_out = job.task.size, job.eval.items
        mine = [block for block in self._layout.blocks if block.block in self._bench.devices]
        self._blocks = {block.block: Block(self._bench, block) for block in mine}
        for device in self._bench.devices.values():
            device.ledger.begin()
            self._bench.emit(device.spec.device, msg.Started(pid=os.getpid(), at=now))
        self._add_home_roles()
        self._timeline.at(self, STARTUP_S / job.devices.time_scale)

    def _add_home_roles(self) -> None:
        bench, layout = self._bench, self._layout
        rollouters = layout.rollouters if layout.pools else ()
        for first in [first for first in rollouters if first in bench.devices]:
            block = self._block_with(first)
            if block is None:
                bench.rollouters[first] = EmulatedRollouter(bench, first=first)
            else:
                block.add_rollouter(first, version=-1)
        for first in [first for first in layout.trainers if first in bench.devices]:
            block = self._block_with(first)
            if block is None:
                bench.trainers[first] = EmulatedTrainer(bench, first=first)
            else:
                block.add_trainer(first, version=0)

    def _block_with(self, device: int) -> Block | None:
        layout = self._layout.block_of(device)
        return None if layout is None else self._blocks.get(layout.block)

    # -- driven from outside ------------------------------------------------------------------------------------------

    def submit(self, device: int, commands: Sequence[msg.Command], now: float) -> None:
        """Commands to a device arrive, in this order; what is due until now comes first."""
        self.advance(now)
        for command in commands:
            if not self._bench.devices[device].closed:
                self._guarded(lambda command=command: self._handle(device, command))  # type: ignore[misc]

    def advance(self, now: float) -> None:
        """Let everything happen that is due until now, each at its own time."""
        self._guarded(lambda: self._timeline.advance(now))

    def next_event(self) -> float | None:
        """When something is due next; None: nothing is."""
        return self._timeline.next_due()

    @property
    def news(self) -> bool:
        """Some device has something to say."""
        return bool(self._bench.news)

    @property
    def urgent(self) -> bool:
        """And it is not to wait for more."""
        return self._bench.urgent

    @property
    def closed(self) -> bool:
        """All ledgers are closed."""
        return all(device.closed for device in self._bench.devices.values())

    def take(self, now: float, *, everything: bool = False) -> list[tuple[int, msg.Delivery]]:
        """What devices have to say; with `everything` all of them speak, so that open spans are known.

        First devices come last: whoever hears that a lease or a chunk has ended has then heard what was done.
        """
        bench = self._bench
        numbers = sorted(bench.devices if everything else bench.news, reverse=True)
        deliveries = [(number, self._delivery(bench.devices[number], now)) for number in numbers]
        bench.news.clear()
        bench.urgent = False
        return deliveries

    def _delivery(self, device: Device, now: float) -> msg.Delivery:
        events, device.events = tuple(device.events), []
        units, device.units = tuple(device.units), []
        rollouter = self._bench.rollouters.get(device.spec.device)
        active = 0 if rollouter is None else rollouter.active
        leads = rollouter is not None or device.added > 0
        return msg.Delivery(
            events=events,
            spans=tuple(device.ledger.take()),
            open=device.ledger.open,
            at=now,
            decoded=units,
            load=msg.RolloutLoad(added=device.added, active=active) if leads else None,
        )

    # -- commands -----------------------------------------------------------------------------------------------------

    def _handle(self, device: int, command: msg.Command) -> None:
        bench = self._bench
        trainer = bench.trainers.get(device)
        if trainer is not None and isinstance(trainer.busy, msg.SwitchRole) and not isinstance(command, msg.Shutdown):
            trainer.take(command)
            return
        match command:
            case msg.Shutdown():
                self._shut_down(device)
            case msg.BeginLease():
                self._blocks[device].begin(command)
            case msg.EndLease():
                self._blocks[device].end(command)
            case msg.Move():
                self._blocks[device].move(command)
            case msg.Prepare():
                bench.emit(device, msg.Prepared(memory={}, rehearsal=self._rehearsal(device)))
            case msg.Generate(requests=requests):
                self._rollouter(device, command).add(requests)
            case msg.AbortGroups():
                self._rollouter(device, command).abort()
            case msg.LoadWeights(version=version) if device in bench.rollouters:
                bench.rollouters[device].load(version)
            case msg.Evaluate() | msg.SaveCheckpoint() | msg.SetReference():
                raise AssertionError(f"emulated devices learn nothing and cannot do {command!r}")
            case msg.SwitchRole(role="train"):
                replica = self._rollouter(device, command)
                assert not replica.active, f"device {device} was switched with {replica.active} sequences in hand"
                del bench.rollouters[device]
                self._trainer(device, command).take(command)
            case _:
                self._trainer(device, command).take(command)

    def _rollouter(self, device: int, command: msg.Command) -> EmulatedRollouter:
        replica = self._bench.rollouters.get(device)
        assert replica is not None, f"device {device} is no rollouter's first one and was sent {command!r}"
        return replica

    def _trainer(self, device: int, command: msg.Command) -> EmulatedTrainer:
        trainer = self._bench.trainers.get(device)
        assert trainer is not None, f"device {device} is no trainer's first one and was sent {command!r}"
        return trainer

    # -- life ---------------------------------------------------------------------------------------------------------

    def due(self) -> None:
        """All devices are ready."""
        bench = self._bench
        for number, device in bench.devices.items():
            if device.closed:
                continue
            if device.ledger.open.kind == "startup":
                bench.show([number], "idle")
            source = device.spec.source
            bench.emit(
                number,
                msg.Ready(
                    training_items=self._training_items,
                    held_out_items=self._held_out,
                    version=0 if source else None,
                    handle=weights_of(0) if source else None,
                    notes=(),
                    memory={},
                    rehearsal=self._rehearsal(number),
                    snapshot=snapshot_of(0) if source and self._layout.pools else None,
                ),
            )

    def _rehearsal(self, device: int) -> msg.Rehearsal | None:
        """What a lease costs is known beforehand here; a block's first device says it for all."""
        layout = self._layout.block_of(device)
        if layout is None or layout.block != device:
            return None
        costs, real = self._bench.physics.switch(layout.pool), self._timeline.real
        return msg.Rehearsal(in_s=real(costs.in_s), out_s=real(costs.out_s), grad_s=real(costs.grad_s))

    def _shut_down(self, number: int) -> None:
        """A device ends, and with it the replicas that it is part of, whatever they hold."""
        bench = self._bench
        for replicas in (bench.rollouters, bench.trainers):
            for replica in [replica for replica in replicas.values() if number in replica.devices]:
                replica.stop()
        block = self._block_with(number)
        if block is not None:
            block.stop()
        self._close(number)

    def _close(self, number: int) -> None:
        device = self._bench.devices[number]
        ended = device.ledger.close()
        closed = msg.Closed(started_at=device.ledger.started_at, ended_at=ended, other_cpu_s=0.0)
        self._bench.emit(number, closed)
        device.closed = True

    def _guarded(self, action: Callable[[], None]) -> None:
        if self._failed:
            return
        try:
            action()
        except Exception as error:
            self._failed = True
            failed = msg.Failed(error=f"{type(error).__name__}: {error}", traceback=traceback.format_exc())
            self._timeline.clear()
            for number in [number for number, device in self._bench.devices.items() if not device.closed]:
                self._bench.emit(number, failed)
                self._close(number)
