"""An emulated replica in the trainer role: one command at a time, each with its modelled time.

Training at another version than the step's, a step that is not made of its groups exactly once, or one made by an
auxiliary, is an AssertionError here.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

from engine.emulated.bench import Bench
from engine.emulated.rollouter import EmulatedRollouter
from engine.learning.stats import ChunkStats, LagStats
from engine.learning.trainer import StepStats
from engine.worker import messages as msg


class EmulatedTrainer:
    """Primary, or auxiliary under a lease."""

    def __init__(
        self,
        bench: Bench,
        *,
        first: int,
        lease: int | None = None,
        version: int = 0,
        work_begins: Callable[[], None] = lambda: None,
        rests: Callable[[EmulatedTrainer], bool] = lambda trainer: False,
    ) -> None:
        """`first`: the replica's first device. `work_begins` is told of every chunk that begins, `rests` of it having
        nothing to do any more; true: somebody else says what its devices do now."""
        self.first = first
        self.devices = bench.physics.layout.replica("train", first)
        self.version = version
        self.busy: msg.Command | None = None
        self.ends = 0.0
        """When what it does will have ended, modelled seconds."""
        self.stamp = 0
        self._bench = bench
        self._lease = lease
        self._work_begins = work_begins
        self._rests = rests
        self._inbox: deque[msg.Command] = deque()
        self._doing: Iterator[float] = iter(())
        self._boundaries: list[float] = []
        """When each group of the running chunk is done."""
        self._accumulated: list[int] = []
        self._tokens = 0
        """Response tokens of those groups."""
        self._leaving = False

    # -- commands -----------------------------------------------------------------------------------------------------

    def take(self, command: msg.Command) -> None:
        """Do the command when what came before it is done."""
        self._inbox.append(command)
        self.work()

    def work(self) -> None:
        """Begin what waits; without any it rests."""
        while self.busy is None and self._inbox:
            self.busy = self._inbox.popleft()
            self._doing = self._do(self.busy)
            self._go_on()
        if self.busy is None and self.first not in self._bench.rollouters and not self._rests(self):
            self._bench.show(self.devices, "idle")

    def due(self) -> None:
        """A part of what it does has ended."""
        self._go_on()
        if self.busy is None:
            self.work()

    def _go_on(self) -> None:
        until = next(self._doing, None)
        if until is None:
            self.busy = None
        else:
            self._bench.timeline.at(self, until)

    def stop(self) -> None:
        """Its process ends, whatever it holds."""
        self._inbox.clear()
        self._bench.timeline.cancel(self)

    # -- leaving the role ---------------------------------------------------------------------------------------------

    def leave_home(self, step: int) -> float:
        """Its block is lent, what it accumulated is shipped. When it can be gone: a step being made is ended first."""
        if self.busy is None:
            self.ship_if_any(step, lent=True)
            return self._bench.timeline.now
        assert isinstance(self.busy, msg.FinishStep), f"trainer {self.first} is lent while on {self.busy!r}"
        return self.ends

    def leave_lease(self, *, revoke: bool) -> None:
        """Its lease ends: it begins no chunk any more, and with `revoke` the running one ends at the next boundary."""
        self._leaving = True
        if revoke and self._boundaries:
            now = self._bench.timeline.now
            kept = next(place for place, end in enumerate(self._boundaries) if end >= now) + 1
            del self._boundaries[kept:]
            self.ends = self._boundaries[-1]
            self._bench.timeline.at(self, self.ends)

    def ship_if_any(self, step: int, *, lent: bool) -> None:
        """Put what was accumulated where the primaries can fetch it. `lent`: to or by the other pool."""
        if self._accumulated:
            self._ship(step, lent=lent)

    # -- what it does: each yields the times until which it waits -----------------------------------------------------

    def _do(self, command: msg.Command) -> Iterator[float]:
        match command:
            case msg.TrainChunk():
                return self._train(command)
            case msg.FinishStep():
                return self._finish_step(command)
            case msg.SwitchRole():
                return self._switch(command)
            case msg.ShipGradient(step=step):
                self._ship(step, lent=self._lease is not None)
            case msg.DiscardStep():
                self._forget()
            case msg.Restore(snapshot=snapshot):
                assert self._lease is None, f"trainer {self.first} is an auxiliary and was asked to restore"
                self._become(snapshot.version)
                at = self._bench.timeline.unix()
                self._bench.emit(self.first, msg.Restored(version=self.version, seconds=0.0, at=at))
            case msg.LoadWeights(version=version):
                self._become(version)
                at = self._bench.timeline.unix()
                self._bench.emit(self.first, msg.WeightsLoaded(version=self.version, seconds=0.0, at=at))
            case msg.Generate(requests=requests):  # it came while the role was being changed
                self._bench.rollouters[self.first].add(requests)
            case msg.AbortGroups():
                self._bench.rollouters[self.first].abort()
            case _:
                raise AssertionError(f"an emulated trainer does not handle {command!r}")
        return iter(())

    def _train(self, command: msg.TrainChunk) -> Iterator[float]:
        bench, groups = self._bench, command.groups
        assert groups, f"trainer {self.first} was handed chunk {command.chunk_id} without groups"
        began, done = bench.timeline.now, 0
        if not self._leaving:
            self._check_step(command.step)
            self._work_begins()
            tokens = [tokens_of(group) for group in groups]
            self._boundaries = bench.physics.speeds.boundaries(began, groups[0].group_id, tokens)
            self.ends = self._boundaries[-1]
            bench.show(
                self.devices,
                "train",
                role="primary" if self._lease is None else "auxiliary",
                version=self.version,
                step=command.step,
                ref=f"chunk {command.chunk_id}",
            )
            yield self.ends
            done, self._boundaries = len(self._boundaries), []
            self._accumulated += [group.group_id for group in groups[:done]]
            self._tokens += sum(tokens[:done])
        ids = tuple(group.group_id for group in groups)
        bench.emit(
            self.first,
            msg.ChunkDone(
                chunk_id=command.chunk_id,
                step=command.step,
                trained=ids[:done],
                given_back=ids[done:],
                stats=self._stats(groups[:done]),
                seconds=bench.timeline.real(bench.timeline.now - began),
                at=bench.timeline.unix(),
            ),
        )

    def _finish_step(self, command: msg.FinishStep) -> Iterator[float]:
        bench, version, step = self._bench, self.version, command.step
        timeline, pools = bench.timeline, bench.physics.layout.pools
        self._check_step(step)
        assert self._lease is None, f"trainer {self.first} is an auxiliary and was asked to make a step"
        tokens = self._check_groups(command)
        lent = any(part.handle[4] for part in command.gradients)
        grad_s, optimizer_s, sync_s = bench.physics.closing_s(lent=lent, shipped=bool(command.gradients))
        merged = timeline.now + grad_s
        stepped = merged + optimizer_s
        self.ends = stepped + sync_s
        if grad_s:
            bench.show(self.devices, "grad_merge", version=version, step=step)
            yield merged
        bench.show(self.devices, "optimizer", version=version, step=step)
        yield stepped
        if sync_s:
            bench.show(self.devices, "weight_sync", version=version + 1, step=step)
            yield self.ends
        self._become(version + 1)
        weights = weights_of(self.version)
        bench.emit(
            self.first,
            msg.StepDone(
                step=step,
                stats=StepStats(version=self.version, learning_rate=0.0, grad_norm=None, tokens=tokens),
                handle=weights if command.publish else None,
                snapshot=snapshot_of(self.version) if command.publish and pools else None,
                publish_s=timeline.real(sync_s) if command.publish else 0.0,
                snapshot_s=0.0,
                merge_s=timeline.real(grad_s),
                optimizer_s=timeline.real(optimizer_s),
                published_at=timeline.unix(stepped),
            ),
        )

    def _switch(self, command: msg.SwitchRole) -> Iterator[float]:
        """Without pools: its devices change their role, with the weights that they have."""
        bench = self._bench
        assert not bench.physics.layout.pools, f"device {self.first} has a home and was asked to switch"
        self.ends = bench.timeline.now + bench.physics.change_s(command.role)
        kind = "switch_out" if command.role == "rollout" else "switch_in"
        bench.show(self.devices, kind, version=self.version)
        yield self.ends
        if command.role == "rollout":
            bench.show(self.devices, "idle")
            bench.rollouters[self.first] = EmulatedRollouter(bench, first=self.first, version=self.version)
            at = bench.timeline.unix()
            bench.emit(self.first, msg.WeightsLoaded(version=self.version, seconds=0.0, at=at))

    # -- inside -------------------------------------------------------------------------------------------------------

    def _check_step(self, step: int) -> None:
        assert step == self.version + 1, f"trainer {self.first} was asked for step {step} at version {self.version}"

    def _check_groups(self, command: msg.FinishStep) -> int:
        """Response tokens of the step."""
        parts = [part.handle for part in command.gradients]
        assert all(part[2] == command.step for part in parts), f"a gradient of another step than {command.step}"
        groups = [group for part in parts for group in part[3]]
        if command.own:
            groups += self._accumulated
        else:
            assert not self._accumulated, f"what trainer {self.first} accumulated is left out of step {command.step}"
        wanted = self._bench.physics.prompts_per_step
        assert len(set(groups)) == len(groups) == wanted, f"step {command.step} is made of groups {sorted(groups)}"
        return sum(part.tokens for part in command.gradients) + self._tokens

    def _ship(self, step: int, *, lent: bool) -> None:
        self._check_step(step)
        handle = ("gradient", self.first, step, tuple(self._accumulated), lent)
        gradient = msg.ShippedGradient(handle=handle, tokens=self._tokens, keys=())
        self._forget()
        self._bench.emit(self.first, msg.GradientShipped(step=step, gradient=gradient))

    def _become(self, version: int) -> None:
        self.version = version
        self._forget()

    def _forget(self) -> None:
        self._accumulated, self._tokens = [], 0

    def _stats(self, groups: tuple[msg.SealedGroup, ...]) -> ChunkStats:
        of_lag: dict[int, list[int]] = {}
        for group in groups:
            lag = self.version - group.version
            assert lag >= 0, f"group {group.group_id} has version {group.version}, the trainer {self.version}"
            of_lag.setdefault(lag, []).append(tokens_of(group))
        responses = sum(len(group.responses) for group in groups)
        tokens = sum(map(sum, of_lag.values()))
        return ChunkStats(
            groups=len(groups),
            responses=responses,
            prompt_tokens=round(self._bench.physics.profile.prompt_tokens * responses),
            response_tokens=tokens,
            tokens=tokens,
            by_lag={lag: LagStats(groups=len(counts), tokens=sum(counts)) for lag, counts in of_lag.items()},
        )


def tokens_of(group: msg.SealedGroup) -> int:
    """Response tokens of a group."""
    return sum(response["tokens"] for response in group.responses)


def weights_of(version: int) -> Any:
    """What stands for the weights of a version."""
    return ("weights", version)


def snapshot_of(version: int) -> msg.SnapshotHandle:
    """What stands for what a trainer puts aside after the step that made this version."""
    return msg.SnapshotHandle(
        version=version,
        weights=weights_of(version),
        moments=("moments", version),
        optimizer_steps=version,
        folder=None,
    )
