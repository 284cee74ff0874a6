"""The trainer of a simulated worker: which groups its gradient holds, and which weights and optimizer state it has.

Training at another version than the step's, a group twice in a step, a step without all of its groups exactly once, or
one that a primary makes from other weights or another optimizer state than the rest, is an AssertionError here.
"""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING

from engine.learning.stats import ChunkStats, LagStats
from engine.learning.trainer import StepStats
from engine.worker import messages as msg

if TYPE_CHECKING:
    from tests.engine.simulated_device import Device


class Trainer:
    """Active or passive; a primary's has an optimizer."""

    def __init__(self, device: Device, *, primary: bool) -> None:
        self._device = device
        self.primary = primary
        self.version: int | None = None
        self.name: str | None = None
        """Which weights these are."""
        self.moments = device.workers.names[device.workers.start_version] if primary else None
        """Which step left its optimizer's state: for the first one, the start."""
        self.accumulated: list[int] = []
        self.lease: int | None = None
        self.trained: list[int] = []
        """Groups of the last step that it made."""
        self._boundaries: list[float] = []
        """When each group of the running chunk ends."""
        self._began_at = 0.0

    # -- weights ------------------------------------------------------------------------------------------------------

    def take(self, version: int, name: str) -> None:
        """Become this version of the weights; what was accumulated is forgotten."""
        self.version, self.name, self.accumulated = version, name, []

    def restore(self, snapshot: msg.SnapshotHandle) -> None:
        assert self.primary, f"device {self._device.spec.device} is no primary trainer and was asked to restore"
        _, version, name = snapshot.weights
        assert (version, snapshot.moments) == (snapshot.version, ("moments", version, name))
        self.take(version, name)
        self.moments = name

    def check_step(self, number: int) -> None:
        device = self._device
        assert device.role == "train", f"device {device.spec.device} is a rollouter now and was asked to train"
        assert self.version is not None, f"trainer {device.spec.device} has no weights"
        assert number == self.version + 1, f"step {number} was asked at version {self.version}"
        assert self.name == device.workers.names[self.version], "these weights are not those that the engine knows"

    def _check_primary(self, what: str) -> None:
        device = self._device
        assert self.primary, f"device {device.spec.device} is an auxiliary and was asked to {what}"
        assert self.lease is None
        assert self.moments == self.name, f"its optimizer's state is of {self.moments}, its weights are {self.name}"

    # -- chunks -------------------------------------------------------------------------------------------------------

    def begin(self, command: msg.TrainChunk) -> float:
        """Seconds that the chunk takes; it is given back when its lease ends already."""
        self.check_step(command.step)
        assert command.groups, "an empty chunk"
        workers = self._device.workers
        self._began_at = workers.clock.now
        self._boundaries = []
        if self.lease in self._device.ending:
            return 0.0
        at = self._began_at
        for _ in command.groups:
            at += workers.trained_s()
            self._boundaries.append(at)
        return at - self._began_at

    def revoke(self) -> float:
        """The running chunk ends at a boundary between groups that is still to come: when?"""
        workers = self._device.workers
        ahead = [place for place, at in enumerate(self._boundaries) if at >= workers.clock.now]
        del self._boundaries[workers.rng.choice(ahead) + 1 :]
        return self._boundaries[-1]

    def end(self, command: msg.TrainChunk) -> None:
        assert self.version is not None
        ids = tuple(group.group_id for group in command.groups)
        done = len(self._boundaries)
        trained = ids[:done]
        twice = self._trained_elsewhere(command.step) & set(trained)
        assert not twice, f"groups {sorted(twice)} are trained twice in step {command.step}"
        self.accumulated += trained
        groups = command.groups[:done]
        lags = [self.version - group.version for group in groups]
        assert min(lags, default=0) >= 0, "a group of the future"
        tokens = dict.fromkeys(lags, 0)
        for group, lag in zip(groups, lags, strict=True):
            tokens[lag] += sum(response["tokens"] for response in group.responses)
        by_lag = {lag: LagStats(groups=lags.count(lag), tokens=tokens[lag]) for lag in tokens}
        responses = sum(len(group.responses) for group in groups)
        stats = ChunkStats(
            groups=done,
            responses=responses,
            prompt_tokens=sum(group.prompt_tokens * len(group.responses) for group in groups),
            response_tokens=sum(tokens.values()),
            tokens=sum(tokens.values()),
            by_lag=by_lag,
        )
        now = self._device.workers.clock.now
        seconds = now - self._began_at
        if self.lease is not None and done:
            self._device.span("train", seconds)
        self._device.emit(
            msg.ChunkDone(
                chunk_id=command.chunk_id,
                step=command.step,
                trained=trained,
                given_back=ids[done:],
                stats=stats,
                seconds=seconds,
                at=now,
            )
        )

    def _trained_elsewhere(self, step: int) -> set[int]:
        workers = self._device.workers
        living = (device.train for device in workers.devices.values() if not device.lost)
        held = {group for trainer in living for group in trainer.accumulated}
        return held | workers.shipped.get(step, set())

    # -- the step's end -----------------------------------------------------------------------------------------------

    def ship(self, step: int) -> None:
        self.check_step(step)
        handle = ("gradient", self._device.spec.device, step, tuple(self.accumulated))
        gradient = msg.ShippedGradient(handle=handle, tokens=4, keys=())
        self.accumulated = []
        self._device.emit(msg.GradientShipped(step=step, gradient=gradient))

    def finish_step(self, command: msg.FinishStep) -> None:
        self.check_step(command.step)
        self._check_primary("make a step")
        assert self.version is not None
        parts = [gradient.handle for gradient in command.gradients]
        assert [step for _, _, step, _ in parts] == [command.step] * len(parts), "a gradient of another step"
        assert [device for _, device, _, _ in parts] == sorted(device for _, device, _, _ in parts)
        trained = [group for _, _, _, groups in parts for group in groups]
        if command.own:
            assert self.accumulated, "its own part is empty"
            trained += self.accumulated
        else:
            assert not self.accumulated, "what it accumulated is left out of the step"
        B = self._device.spec.job.algorithm.prompts_per_step
        assert len(set(trained)) == len(trained) == B, f"step {command.step} is made of groups {sorted(trained)}"
        made = zlib.crc32(repr((self.name, parts, command.own and trained)).encode())
        self.version, self.accumulated, self.trained = self.version + 1, [], trained
        self.name = self.moments = f"v{self.version}.{made:08x}"
        weights = ("weights", self.version, self.name)
        snapshot = msg.SnapshotHandle(
            version=self.version,
            weights=weights,
            moments=("moments", self.version, self.name),
            optimizer_steps=self.version,
            folder=None,
        )
        self._device.emit(
            msg.StepDone(
                step=command.step,
                stats=StepStats(version=self.version, learning_rate=1e-3, grad_norm=1.0, tokens=4, divisor=4),
                handle=weights if command.publish else None,
                snapshot=snapshot if command.publish else None,
                publish_s=0.01,
                snapshot_s=0.01,
                merge_s=0.01 * len(parts),
                optimizer_s=0.02,
                published_at=self._device.workers.clock.now,
            )
        )

    def discard(self) -> None:
        self.accumulated = []

    def evaluate(self, command: msg.Evaluate) -> None:
        self.check_step(command.step + 1)
        self._check_primary("evaluate")
        self._device.workers.evaluated.append((command.step, command.name, self._device.spec.device))
        self._device.emit(msg.EvalDone(step=command.step, name=command.name, correct=1.0, items=2, failed=0))

    def save(self, command: msg.SaveCheckpoint) -> None:
        self.check_step(command.step + 1)
        self._check_primary("write a checkpoint")
        command.folder.mkdir(parents=True, exist_ok=True)
        saved = msg.CheckpointSaved(step=command.step, folder=command.folder, params_sha256=f"sha-{command.step}")
        self._device.emit(saved)
