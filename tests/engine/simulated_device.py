"""One simulated worker: what it does with each command, and what it could not do in life.

    begin_life -> prepare -> one command at a time: the part that is done at once, its time, the rest -> close, or die

Generating while it is a trainer or without weights, a second lease, or a role that it does not have, is an
AssertionError here; see also its rollouter and its trainer.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from engine.worker import messages as msg
from engine.worker.ledger import WorkerSpan
from tests.engine.simulated_rollouter import Rollouter
from tests.engine.simulated_trainer import Trainer

if TYPE_CHECKING:
    from tests.engine.simulated import SimulatedWorkers

BEGIN = 1_700_000_000.0
"""Unix seconds; floats are as coarse here as they are in life."""

AT_ONCE = (msg.Generate, msg.AbortGroups, msg.DiscardStep, msg.SetReference)


class Device:
    """One worker."""

    def __init__(self, spec: msg.WorkerSpec, workers: SimulatedWorkers) -> None:
        self.spec = spec
        self.workers = workers
        self.inbox: deque[msg.Command] = deque()
        self.working: msg.Command | None = None
        self.rollout = Rollouter(self)
        self.train = Trainer(self, primary=spec.home != "rollout")
        self.home = spec.home
        self.role = spec.home or "train"
        self.rolls, self.trains = spec.rolls, spec.trains
        self.lease: int | None = None
        self.ending: set[int | None] = set()
        """Leases whose end waits in the inbox."""
        self.prepared = False
        self.closed = False
        self.lost = False
        self.arrival = self.delivery = 0.0
        self._began_at = 0.0
        self._begun = False
        self._ticket = 0
        self._spans: list[WorkerSpan] = []

    # -- life ---------------------------------------------------------------------------------------------------------

    @property
    def active(self) -> dict[int, Any]:
        """Groups that it generates."""
        return self.rollout.active

    @property
    def idle(self) -> bool:
        return self.prepared and not (self.inbox or self.working or self.active or self.closed)

    def begin_life(self) -> None:
        if not self.lost:
            self.emit(msg.Started(pid=1000 + self.spec.device, at=self.workers.clock.now))

    def prepare(self) -> None:
        if self.lost or self.closed:
            return
        self.prepared = True
        workers, spec = self.workers, self.spec
        version = workers.start_version if spec.source else None
        weights = snapshot = None
        if version is not None:
            name = workers.names[version]
            self.train.take(version, name)
            weights = ("weights", version, name)
            moments = ("moments", version, name)
            snapshot = msg.SnapshotHandle(
                version=version, weights=weights, moments=moments, optimizer_steps=version, folder=None
            )
        switch_s = workers.physics.switch_s
        lendable = spec.home is not None and spec.rolls and spec.trains
        self.emit(
            msg.Ready(
                training_items=spec.job.task.size,
                held_out_items=8,
                version=version,
                handle=weights,
                notes=(),
                memory={"train": 1},
                rehearsal=msg.Rehearsal(in_s=switch_s, out_s=switch_s, grad_s=0.01) if lendable else None,
                snapshot=snapshot,
            )
        )
        self.work()

    def die(self) -> None:
        self.lost = True
        self.active.clear()
        self.inbox.clear()

    def emit(self, event: msg.Event) -> None:
        self.workers.deliver(self, event)

    def span(self, kind: str, seconds: float) -> None:
        """Auxiliary work that has just ended."""
        now = self.workers.clock.now
        span = WorkerSpan(
            t0=now - seconds, t1=now, kind=kind, role="auxiliary", version=0, step=None, cpu_s=seconds / 2, ref=None
        )
        self._spans.append(span)

    def take_spans(self) -> tuple[WorkerSpan, ...]:
        spans, self._spans = tuple(self._spans), []
        return spans

    # -- commands -----------------------------------------------------------------------------------------------------

    def take(self, command: msg.Command) -> None:
        """A command arrives."""
        if self.lost or self.closed:
            return
        self.inbox.append(command)
        if isinstance(command, msg.EndLease):
            self.ending.add(command.lease)
            if command.revoke and isinstance(self.working, msg.TrainChunk) and self.train.lease == command.lease:
                self._end_at(self.train.revoke())
        if isinstance(command, msg.Shutdown) and not self.prepared:
            self.close(command)
        self.work()

    def work(self) -> None:
        if self.prepared and self.working is None and self.inbox:
            command = self.working = self.inbox.popleft()
            self._began_at = self.workers.clock.now
            self._end_at(self._began_at + self._begin(command))

    def _begin(self, command: msg.Command) -> float:
        """The part that is done at once; returns the seconds of the whole."""
        match command:
            case msg.TrainChunk():
                self._note_work()
                return self.train.begin(command)
            case msg.BeginLease():
                self._leave_home(command)
                return self.workers.switch_s()
            case msg.EndLease():
                self._leave_lease(command)
                return self.workers.switch_s()
            case msg.Move():
                self._leave_for_good(command)
                return self.workers.switch_s()
            case _:
                return 0.0 if isinstance(command, AT_ONCE) else self.workers.command_s()

    def delay(self, seconds: float) -> None:
        """What it does takes so much longer from now on."""
        self._end_at(self.workers.clock.now + seconds)

    def _end_at(self, time: float) -> None:
        self._ticket += 1
        ticket = self._ticket
        self.workers.clock.at(time, lambda: self._finish(ticket))

    def _finish(self, ticket: int) -> None:
        if self.lost or ticket != self._ticket:
            return
        command, self.working = self.working, None
        HANDLERS[type(command)](self, command)
        self.work()

    def generate(self, command: msg.Generate) -> None:
        assert self.role == "rollout", f"device {self.spec.device} is a trainer now and was asked to generate"
        self._note_work()
        assert self.rollout.name == self.workers.names[self.rollout.held], "weights that the engine does not know"
        self.rollout.add(command.requests)

    def load_weights(self, command: msg.LoadWeights) -> None:
        kind, version, name = command.handle
        assert (kind, version) == ("weights", command.version)
        if self.role == "rollout":
            held = self.rollout.version
            assert held is None or version > held, f"device {self.spec.device} loads {version} over {held}"
            self.rollout.load(version, name)
        else:
            self.train.take(version, name)
        self.emit(msg.WeightsLoaded(version=version, seconds=0.01, at=self.workers.clock.now))

    def restore(self, command: msg.Restore) -> None:
        assert self.role == "train", f"device {self.spec.device} is a rollouter now and was asked to restore"
        self.train.restore(command.snapshot)
        self.emit(msg.Restored(version=command.snapshot.version, seconds=0.01, at=self.workers.clock.now))

    def set_reference(self, command: msg.SetReference) -> None:
        assert self.spec.trains

    def switch(self, command: msg.SwitchRole) -> None:
        assert self.spec.home is None
        assert not self.active, f"device {self.spec.device} was switched with {len(self.active)} groups in hand"
        assert self.role != command.role, f"device {self.spec.device} is in role {command.role}"
        self.role = command.role
        if self.role == "rollout":
            assert self.train.version is not None
            assert self.train.name is not None
            self.rollout.load(self.train.version, self.train.name)
            self.emit(msg.WeightsLoaded(version=self.train.version, seconds=0.01, at=self.workers.clock.now))

    def close(self, command: msg.Shutdown) -> None:
        self.closed = True
        self.active.clear()
        self.inbox.clear()
        self.emit(msg.Closed(started_at=BEGIN, ended_at=self.workers.clock.now, other_cpu_s=0.0))

    # -- leases -------------------------------------------------------------------------------------------------------

    def _note_work(self) -> None:
        if self.lease is not None and not self._begun and self.lease not in self.ending:
            self._begun = True
            self.emit(msg.LeaseWorking(lease=self.lease, at=self.workers.clock.now))

    def _leave_home(self, command: msg.BeginLease) -> None:
        assert self.lease is None, f"device {self.spec.device} is under lease {self.lease} already"
        assert self.role == self.home, f"device {self.spec.device} is not home"
        assert self.rolls, f"device {self.spec.device} is lent and has no rollouter"
        assert self.trains, f"device {self.spec.device} is lent and has no trainer"
        if self.role == "rollout":
            self.rollout.abort()
        elif self.train.accumulated:
            self.train.ship(command.step)
        self.role = "switching"

    def begin_lease(self, command: msg.BeginLease) -> None:
        kind, version, name = command.weights.handle
        assert (kind, version) == ("weights", command.weights.version)
        self.lease, self._begun = command.lease, False
        if self.home == "rollout":
            self.role, self.train.lease = "train", command.lease
            self.train.take(version, name)
        else:
            self.role, self.rollout.lease = "rollout", command.lease
            self.rollout.load(version, name)
        now = self.workers.clock.now
        ready = msg.LeaseReady(
            lease=command.lease, version=version, began_at=self._began_at, at=now, phases={"load": 0.0}
        )
        self.emit(ready)

    def _leave_lease(self, command: msg.EndLease) -> None:
        if self.lease != command.lease:
            return  # it was called home twice
        if self.role == "rollout":
            self.rollout.abort()
        elif self.train.accumulated:
            self.train.ship(command.step)
        self.role = "switching"

    def end_lease(self, command: msg.EndLease) -> None:
        if self.lease != command.lease:
            return
        self.lease = self.train.lease = self.rollout.lease = None
        assert self.home is not None
        self.role = self.home
        if self.role == "train":
            assert command.weights is None
            snapshot, version = command.snapshot, self.train.version
            assert version is not None
            if snapshot is not None and snapshot.version > version:
                self.train.restore(snapshot)
            held = self.train.version
        else:
            assert command.snapshot is None
            weights = command.weights
            if weights is not None and (self.rollout.version is None or weights.version > self.rollout.version):
                self.rollout.load(weights.version, weights.handle[2])
            held = self.rollout.version
        assert held is not None
        now = self.workers.clock.now
        self.emit(
            msg.LeaseReleased(lease=command.lease, version=held, began_at=self._began_at, at=now, phases={"load": 0.0})
        )

    # -- another home -------------------------------------------------------------------------------------------------

    def _leave_for_good(self, command: msg.Move) -> None:
        assert self.lease is None, f"device {self.spec.device} changes its home under lease {self.lease}"
        assert self.role == self.home != command.home, f"device {self.spec.device} is {self.role} and goes nowhere"
        if self.role == "rollout":
            self.rollout.abort()
        elif self.train.accumulated:
            self.train.ship(command.step)
        self.role = "switching"

    def move(self, command: msg.Move) -> None:
        self.home = self.role = command.home
        if command.home == "train":
            assert command.snapshot is not None
            self.trains = True
            self.train.primary = True
            self.train.restore(command.snapshot)
            held = command.snapshot.version
        else:
            assert command.snapshot is None
            self.rolls = True
            self.train.primary, self.train.moments = False, None
            self.rollout.load(command.weights.version, command.weights.handle[2])
            held = command.weights.version
        self.emit(msg.Moved(home=command.home, version=held, at=self.workers.clock.now, phases={}))

    def take_other(self, command: msg.Prepare) -> None:
        self.rolls = self.trains = True
        switch_s = self.workers.physics.switch_s
        rehearsal = msg.Rehearsal(in_s=switch_s, out_s=switch_s, grad_s=0.01)
        self.emit(msg.Prepared(memory={"train": 1, "rollout": 1}, rehearsal=rehearsal))


HANDLERS: dict[type, Callable[[Device, Any], None]] = {
    msg.LoadWeights: Device.load_weights,
    msg.Generate: Device.generate,
    msg.AbortGroups: lambda device, _: device.rollout.abort(),
    msg.TrainChunk: lambda device, command: device.train.end(command),
    msg.Evaluate: lambda device, command: device.train.evaluate(command),
    msg.ShipGradient: lambda device, command: device.train.ship(command.step),
    msg.FinishStep: lambda device, command: device.train.finish_step(command),
    msg.DiscardStep: lambda device, _: device.train.discard(),
    msg.SaveCheckpoint: lambda device, command: device.train.save(command),
    msg.Restore: Device.restore,
    msg.SetReference: Device.set_reference,
    msg.SwitchRole: Device.switch,
    msg.BeginLease: Device.begin_lease,
    msg.EndLease: Device.end_lease,
    msg.Move: Device.move,
    msg.Prepare: Device.take_other,
    msg.Shutdown: Device.close,
}
