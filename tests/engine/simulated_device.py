"""One simulated worker: what it does with each command, and what it could not do in life.

Starting without weights, training a group of the future or continuing a strictly on-policy group under new weights is
an AssertionError here.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from engine.learning.sequences import GroupRequest, PartialGroup
from engine.learning.stats import ChunkStats, LagStats
from engine.learning.trainer import StepStats
from engine.worker import messages as msg

if TYPE_CHECKING:
    from tests.engine.simulated import SimulatedWorkers

BEGIN = 1_700_000_000.0
"""Unix seconds; floats are as coarse here as they are in life."""


@dataclass
class Running:
    """A group that a device generates."""

    request: GroupRequest
    started_at: float
    version: int | None = None
    """Set when its first token is sampled."""


class Device:
    """One worker."""

    def __init__(self, spec: msg.WorkerSpec, workers: SimulatedWorkers) -> None:
        self.spec = spec
        self.workers = workers
        self.inbox: deque[msg.Command] = deque()
        self.working: msg.Command | None = None
        self.active: dict[int, Running] = {}
        self.version: int | None = None
        self.trainer_version: int | None = None
        self.accumulated: list[int] = []
        self.in_rollout = spec.rolls and not spec.trains
        self.closed = False
        self.lost = False
        self.arrival = self.delivery = 0.0

    @property
    def idle(self) -> bool:
        return not (self.inbox or self.working or self.active or self.closed)

    def prepare(self) -> None:
        self.emit(msg.Started(pid=1000 + self.spec.device, at=self.workers.clock.now))
        version = self.workers.start_version if self.spec.source else None
        if self.spec.source:
            self.trainer_version = version
        items = self.spec.job.task.items
        handle = None if version is None else ("weights", version)
        self.emit(msg.Ready(training_items=items, held_out_items=8, version=version, handle=handle, notes=()))

    def emit(self, event: msg.Event) -> None:
        self.workers.deliver(self, event)

    def work(self) -> None:
        if self.working is None and self.inbox:
            self.working = self.inbox.popleft()
            fast = isinstance(self.working, msg.Generate | msg.AbortGroups | msg.DiscardStep)
            self.workers.clock.after(0.0 if fast else self.workers.command_s(), self.finish)

    def finish(self) -> None:
        if self.lost:
            return
        command, self.working = self.working, None
        HANDLERS[type(command)](self, command)
        self.work()

    # -- rollouter ----------------------------------------------------------------------------------------------------

    def generate(self, command: msg.Generate) -> None:
        assert self.in_rollout, f"device {self.spec.device} is a trainer now and was asked to generate"
        assert self.version is not None, f"device {self.spec.device} was asked to generate without weights"
        for request in command.requests:
            assert request.group_id not in self.active
            self.active[request.group_id] = Running(request, self.workers.clock.now)
            first, rest = self.workers.group_s()
            self.workers.clock.after(first, lambda i=request.group_id: self.first_token(i))
            self.workers.clock.after(first + rest, lambda i=request.group_id: self.end_group(i))
        slots = self.spec.job.devices.rollout_slots // self.spec.job.algorithm.group_size
        assert len(self.active) <= slots, f"device {self.spec.device} holds {len(self.active)} groups of {slots}"

    def first_token(self, group_id: int) -> None:
        if group_id in self.active:
            self.active[group_id].version = self.version

    def end_group(self, group_id: int) -> None:
        group = self.active.pop(group_id, None)
        if group is None:
            return  # taken back
        sealed = sealed_group(group, self.workers.clock.now)
        if self.workers.rng.random() < self.workers.physics.excluded:
            self.emit(msg.GroupExcluded(group=sealed, reason="reward_failed", detail="no answer could be read"))
        else:
            self.emit(msg.GroupScored(group=sealed))

    def abort(self, command: msg.AbortGroups) -> None:
        groups = tuple(partial_group(group) for group in self.active.values())
        self.active.clear()
        self.emit(msg.GroupsAborted(groups=groups))

    def load_weights(self, command: msg.LoadWeights) -> None:
        assert command.handle == ("weights", command.version)
        if self.spec.trains and not self.in_rollout:
            assert self.trainer_version is None, "a trainer takes weights once, at the start"
            self.trainer_version = command.version
        else:
            asked = self.spec.job.schedule.in_flight_updates
            for group in self.active.values():
                assert group.request.bound > 0, f"group {group.request.group_id} of bound 0 got new weights in flight"
                assert asked is not False, f"group {group.request.group_id} was to end under the weights it began with"
            assert self.version is None or command.version > self.version, "weights only get newer"
            self.version = command.version
        self.emit(msg.WeightsLoaded(version=command.version, seconds=0.01, at=self.workers.clock.now))

    # -- trainer ------------------------------------------------------------------------------------------------------

    def check_step(self, number: int) -> None:
        assert self.trainer_version is not None, f"trainer {self.spec.device} has no weights"
        assert not self.in_rollout, f"device {self.spec.device} is a rollouter now and was asked to train"
        assert number == self.trainer_version + 1, f"step {number} was asked at version {self.trainer_version}"

    def train(self, command: msg.TrainChunk) -> None:
        self.check_step(command.step)
        assert self.trainer_version is not None
        assert command.groups, "an empty chunk"
        lags = [self.trainer_version - group.version for group in command.groups]
        assert min(lags) >= 0, "a group of the future"
        self.accumulated += [group.group_id for group in command.groups]
        by_lag = {lag: LagStats(groups=lags.count(lag), tokens=4 * lags.count(lag)) for lag in set(lags)}
        stats = ChunkStats(
            groups=len(lags), responses=2 * len(lags), prompt_tokens=6, response_tokens=4, tokens=4, by_lag=by_lag
        )
        self.emit(msg.ChunkDone(chunk_id=command.chunk_id, step=command.step, stats=stats, seconds=0.1))

    def ship(self, command: msg.ShipGradient) -> None:
        self.check_step(command.step)
        self.emit(
            msg.GradientShipped(step=command.step, handle=(self.spec.device, command.step, tuple(self.accumulated)))
        )

    def finish_step(self, command: msg.FinishStep) -> None:
        self.check_step(command.step)
        assert self.trainer_version is not None
        trained = list(self.accumulated)
        if self.spec.train_world > 1:
            assert len(command.gradients) == self.spec.train_world, "one gradient of each trainer"
            assert [step for _, step, _ in command.gradients] == [command.step] * self.spec.train_world
            assert [device for device, _, _ in command.gradients] == sorted(d for d, _, _ in command.gradients)
            trained = [group_id for _, _, ids in command.gradients for group_id in ids]
        assert len(set(trained)) == len(trained) == self.spec.job.algorithm.prompts_per_step
        self.trainer_version, self.accumulated = self.trainer_version + 1, []
        first = self.spec.train_rank == 0
        if first:
            self.workers.trained[command.step] = trained
        stats = StepStats(version=self.trainer_version, learning_rate=1e-3, grad_norm=1.0, tokens=4)
        handle = ("weights", self.trainer_version) if first else None
        at = self.workers.clock.now
        self.emit(msg.StepDone(step=command.step, stats=stats, handle=handle, publish_s=0.01, published_at=at))

    def discard(self, command: msg.DiscardStep) -> None:
        self.accumulated = []

    def evaluate(self, command: msg.Evaluate) -> None:
        self.check_step(command.step + 1)
        self.workers.evaluated.append((command.step, command.name, self.spec.device))
        self.emit(msg.EvalDone(step=command.step, name=command.name, correct=1.0, items=2, failed=0))

    def save(self, command: msg.SaveCheckpoint) -> None:
        self.check_step(command.step + 1)
        assert self.spec.train_rank == 0
        command.folder.mkdir(parents=True, exist_ok=True)
        self.emit(msg.CheckpointSaved(step=command.step, folder=command.folder, params_sha256=f"sha-{command.step}"))

    def switch(self, command: msg.SwitchRole) -> None:
        assert not self.active, f"device {self.spec.device} was switched with {len(self.active)} groups in hand"
        assert self.in_rollout != (command.role == "rollout"), f"device {self.spec.device} is in role {command.role}"
        self.in_rollout = command.role == "rollout"
        if self.in_rollout:
            assert self.trainer_version is not None
            self.version = self.trainer_version
            self.emit(msg.WeightsLoaded(version=self.version, seconds=0.01, at=self.workers.clock.now))

    def close(self, command: msg.Shutdown) -> None:
        self.closed = True
        self.active.clear()
        self.inbox.clear()
        self.emit(msg.Closed(started_at=BEGIN, ended_at=self.workers.clock.now, other_cpu_s=0.0))


HANDLERS: dict[type, Callable[[Device, Any], None]] = {
    msg.LoadWeights: Device.load_weights,
    msg.Generate: Device.generate,
    msg.AbortGroups: Device.abort,
    msg.TrainChunk: Device.train,
    msg.Evaluate: Device.evaluate,
    msg.ShipGradient: Device.ship,
    msg.FinishStep: Device.finish_step,
    msg.DiscardStep: Device.discard,
    msg.SaveCheckpoint: Device.save,
    msg.SwitchRole: Device.switch,
    msg.Shutdown: Device.close,
}


def sealed_group(group: Running, now: float) -> msg.SealedGroup:
    assert group.version is not None
    request = group.request
    return msg.SealedGroup(
        group_id=request.group_id,
        epoch=request.epoch,
        item=request.item,
        version=group.version,
        prompt=f"question {request.item}",
        responses=(),
        reward_mean=0.5,
        started_at=group.started_at,
        finished_at=now,
        data=b"",
    )


def partial_group(group: Running) -> PartialGroup:
    request = group.request
    return PartialGroup(
        group_id=request.group_id,
        epoch=request.epoch,
        position=request.position,
        item=request.item,
        bound=request.bound,
        version=group.version,
        partial=(),
        started_at=None,
    )
