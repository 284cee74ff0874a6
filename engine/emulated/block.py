"""A block of emulated devices that is lent as a whole, as `planner.simulator.lending` has it.

    home -> preparing (C_in) -> working -> [draining: running chunks end] -> releasing (C_out) -> home
               \\---------------------- its lease ends --------------------------/^
    home -> moving (C_in) -> home in the other pool

A preparation under the optimizer step and the weight sync is hidden: the devices show the step until it is over.
"""

from __future__ import annotations

from engine.emulated.bench import Bench
from engine.emulated.rollouter import EmulatedRollouter
from engine.emulated.trainer import EmulatedTrainer
from engine.layout import BlockLayout
from engine.worker import messages as msg


class Block:
    """One of a node."""

    def __init__(self, bench: Bench, layout: BlockLayout) -> None:
        self.stamp = 0
        self._bench = bench
        self._layout = layout
        self._state = "home"
        self._begin: msg.BeginLease | None = None
        self._end: msg.EndLease | None = None
        self._move: msg.Move | None = None
        self._took_up = 0.0
        """When the way under way began, modelled seconds."""
        self._working = False
        """The first useful work of the lease has begun."""
        self._versions: dict[int, int] = {}
        """First device of each home replica that is away -> version that it had."""

    # -- commands -----------------------------------------------------------------------------------------------------

    def begin(self, command: msg.BeginLease) -> None:
        """Its home replicas leave their role and it prepares for the other one."""
        bench, layout, now = self._bench, self._layout, self._bench.timeline.now
        assert self._state == "home", f"block {layout.block} is {self._state} and was lent again"
        self._begin, self._end, self._state, self._working = command, None, "preparing", False
        gone = [now]
        if layout.pool == "rollout":
            self._versions = {first: bench.rollouters[first].version for first in layout.home}
            self._abort(layout.home)
            self._show("switch_in")
        else:
            gone += [bench.trainers[first].leave_home(command.step) for first in layout.home]
            for first in layout.home:
                if bench.trainers[first].busy is None:
                    self.trainer_rests(bench.trainers[first])
        in_s = bench.physics.switch(layout.pool).in_s
        ready = max(now + in_s, *gone)
        self._took_up = ready - in_s
        bench.timeline.at(self, ready)

    def end(self, command: msg.EndLease) -> None:
        """Its other role ends, and it goes home."""
        if self._begin is None or self._begin.lease != command.lease:
            return  # it was called home twice
        again, self._end = self._end is not None, command
        if self._state == "preparing":
            self._release(max([self._bench.timeline.now, *(trainer.ends for trainer in self._at_the_step)]))
        elif self._state == "working" and self._layout.pool == "train":
            self._abort(self._layout.away)
            self._release(self._bench.timeline.now)
        elif self._state in ("working", "draining"):
            if not again or command.revoke:
                for trainer in self._auxiliaries:
                    trainer.leave_lease(revoke=command.revoke)
            self._state = "draining"
            self._release_if_done()

    def move(self, command: msg.Move) -> None:
        """Its home is the other pool from now on: what it had is given back or shipped."""
        bench, before = self._bench, self._layout
        assert self._state == "home", f"block {before.block} is {self._state} and was to change its pool"
        self._move, self._state = command, "moving"
        if before.pool == "rollout":
            self._abort(before.home)
        else:
            for first in before.home:
                bench.trainers.pop(first).ship_if_any(command.step, lent=True)
        self._layout = bench.physics.layout.move(before.block, command.home)
        kind = "switch_in" if command.home == "train" else "switch_out"
        bench.show(before.devices, kind, version=command.weights.version, ref="move")
        bench.timeline.at(self, bench.timeline.now + bench.physics.switch(before.pool).in_s)

    def stop(self) -> None:
        """Its devices end, wherever it is."""
        self._bench.timeline.cancel(self)

    # -- what its roles tell ------------------------------------------------------------------------------------------

    def work_begins(self) -> None:
        """An auxiliary begins to work."""
        if self._state == "working" and not self._working:
            self._working = True
            assert self._begin is not None
            self._emit(msg.LeaseWorking(lease=self._begin.lease, at=self._bench.timeline.unix()))

    def trainer_rests(self, trainer: EmulatedTrainer) -> bool:
        """A trainer on it has nothing to do any more; true where the lease says what its devices do now."""
        if self._state in ("preparing", "releasing"):
            kind = "switch_in" if self._state == "preparing" else "switch_out"
            self._show(kind, trainer.devices)
            return True
        return self._state == "draining" and self._release_if_done()

    # -- time ---------------------------------------------------------------------------------------------------------

    def due(self) -> None:
        """The way to the other role, or home, has ended."""
        if self._state == "moving":
            self._arrive()
            return
        if self._at_the_step:
            self._bench.timeline.at(self, self._bench.timeline.now)  # which ends in this very moment, and comes first
            return
        self._bench.show(self._layout.devices, "idle")
        if self._state == "preparing":
            self._take_role()
        else:
            self._come_home()

    def _arrive(self) -> None:
        bench, layout, command = self._bench, self._layout, self._move
        assert command is not None
        bench.show(layout.devices, "idle")
        for first in layout.home:
            if layout.pool == "train":
                assert command.snapshot is not None, f"block {layout.block} was sent no snapshot to train from"
                self.add_trainer(first, version=command.snapshot.version)
            else:
                self.add_rollouter(first, version=command.weights.version)
        self._state, self._move = "home", None
        version = command.weights.version if command.snapshot is None else command.snapshot.version
        self._emit(msg.Moved(home=command.home, version=version, at=bench.timeline.unix(), phases={}))

    def _take_role(self) -> None:
        bench, layout, command = self._bench, self._layout, self._begin
        assert command is not None
        self._state = "working"
        lease, version = command.lease, command.weights.version
        if layout.pool == "train":
            self._versions = {first: bench.trainers.pop(first).version for first in layout.home}
        for first in layout.away:
            if layout.pool == "train":
                self.add_rollouter(first, lease=lease, version=version)
            else:
                self.add_trainer(first, lease=lease, version=version)
        seconds = bench.timeline.real(bench.physics.switch(layout.pool).in_s)
        self._emit(
            msg.LeaseReady(
                lease=lease,
                version=version,
                began_at=bench.timeline.unix(self._took_up),
                at=bench.timeline.unix(),
                phases={"load": seconds},
            )
        )

    def _come_home(self) -> None:
        bench, layout, command = self._bench, self._layout, self._end
        assert command is not None
        for first in layout.home:
            if layout.pool == "rollout":
                version = self._versions[first]
                if command.weights is not None:
                    version = max(version, command.weights.version)
                self.add_rollouter(first, version=version)
                continue
            if first not in bench.trainers:
                self.add_trainer(first, version=self._versions[first])
            trainer = bench.trainers[first]
            if command.snapshot is not None:
                trainer.version = max(trainer.version, command.snapshot.version)
        replicas = bench.rollouters if layout.pool == "rollout" else bench.trainers
        released = msg.LeaseReleased(
            lease=command.lease,
            version=min(replicas[first].version for first in layout.home),
            began_at=bench.timeline.unix(self._took_up),
            at=bench.timeline.unix(),
            phases={"load": bench.timeline.real(bench.physics.switch(layout.pool).out_s)},
        )
        self._state, self._begin, self._end = "home", None, None
        self._emit(released)

    # -- inside -------------------------------------------------------------------------------------------------------

    @property
    def _at_the_step(self) -> list[EmulatedTrainer]:
        """Home trainers that the lease found at the optimizer step, and that are still there."""
        if self._layout.pool == "rollout":
            return []
        trainers = [self._bench.trainers.get(first) for first in self._layout.home]
        return [trainer for trainer in trainers if trainer is not None and trainer.busy is not None]

    @property
    def _auxiliaries(self) -> list[EmulatedTrainer]:
        return [self._bench.trainers[first] for first in self._layout.away]

    def _release_if_done(self) -> bool:
        """Nothing runs on the block any more: it goes home."""
        if any(trainer.busy is not None for trainer in self._auxiliaries):
            return False
        assert self._end is not None
        for trainer in self._auxiliaries:
            trainer.ship_if_any(self._end.step, lent=True)
            del self._bench.trainers[trainer.first]
        self._release(self._bench.timeline.now)
        return True

    def _release(self, took_up: float) -> None:
        self._state, self._took_up = "releasing", took_up
        at_the_step = {device for trainer in self._at_the_step for device in trainer.devices}
        self._show("switch_out", tuple(device for device in self._layout.devices if device not in at_the_step))
        self._bench.timeline.at(self, took_up + self._bench.physics.switch(self._layout.pool).out_s)

    def _abort(self, rollouters: tuple[int, ...]) -> None:
        """Take rollouters out; their unfinished groups come back, with their prefixes."""
        for first in rollouters:
            self._bench.rollouters.pop(first).abort()

    def add_rollouter(self, first: int, *, version: int, lease: int | None = None) -> None:
        """A replica of the block takes the rollouter role."""
        self._bench.rollouters[first] = EmulatedRollouter(
            self._bench, first=first, lease=lease, version=version, work_begins=self.work_begins
        )

    def add_trainer(self, first: int, *, version: int, lease: int | None = None) -> None:
        """A replica of the block takes the trainer role."""
        self._bench.trainers[first] = EmulatedTrainer(
            self._bench,
            first=first,
            lease=lease,
            version=version,
            work_begins=self.work_begins,
            rests=self.trainer_rests,
        )

    def _show(self, kind: str, devices: tuple[int, ...] | None = None) -> None:
        """The version is the one that the devices are to have."""
        assert self._begin is not None
        version: int | None = self._begin.weights.version
        if kind == "switch_out":
            assert self._end is not None
            told = self._end.weights or self._end.snapshot
            version = told.version if told is not None else None
        ref = f"lease {self._begin.lease}"
        self._bench.show(self._layout.devices if devices is None else devices, kind, version=version, ref=ref)

    def _emit(self, event: msg.Event) -> None:
        self._bench.emit(self._layout.block, event)
