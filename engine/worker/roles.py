"""The rollouter and the trainer of one device, each an object of its own, and the commands that reach them."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from engine.config import WarmStartConfig
from engine.learning.model_source import LoadedModel, load_model
from engine.learning.tasks import ReasoningGymTask, RewardFailed
from engine.learning.torch_trainer import TorchTrainer
from engine.learning.trainer import Gradient
from engine.learning.transformers_rollouter import TransformersRollouter
from engine.learning.weights import load_flat, sha256
from engine.worker import messages as msg

if TYPE_CHECKING:
    from transformers import PreTrainedModel

    from engine.learning.sequences import FinishedGroup
    from engine.worker.device_worker import DeviceWorker
    from engine.worker.transport import Transport


class TorchRoles:
    """Roles on torch models: `prepare` builds what the spec asks for, `handle` sends each command to its role."""

    def __init__(self, worker: DeviceWorker, transport: Transport) -> None:
        self._worker = worker
        self._transport = transport
        self._spec = worker.spec
        self._task: ReasoningGymTask
        self._rollouter: TransformersRollouter | None = None
        self._model: PreTrainedModel | None = None
        self._trainer: TorchTrainer | None = None
        self._evaluator: TransformersRollouter | None = None
        self._in_rollout = self._spec.rolls and not self._spec.trains

    # -- life ---------------------------------------------------------------------------------------------------------

    def prepare(self) -> None:
        spec, job = self._spec, self._spec.job
        self._task = ReasoningGymTask(job.task, seed=job.seed, held_out_items=job.eval.items)
        version: int | None = None
        handle: msg.Handle | None = None
        notes: tuple[str, ...] = ()
        if spec.trains:
            loaded = self._load_model(warm=spec.source and spec.resume_from is None)
            notes = loaded.notes
            trainer = TorchTrainer(loaded.model, loaded.tokenizer, job.algorithm, temperature=job.sampling.temperature)
            if spec.resume_from is not None:
                trainer.load(spec.resume_from)
            self._model, self._trainer = loaded.model, trainer
            # it answers with the trainer's own parameters, which is what is evaluated
            self._evaluator = self._make_rollouter(loaded)
            if spec.source:
                version, handle = trainer.version, self._transport.put(trainer.vector())
        if spec.rolls:
            self._rollouter = self._make_rollouter(self._load_model(warm=False))
        self._worker.emit(
            msg.Ready(
                training_items=self._task.size,
                held_out_items=self._task.held_out,
                version=version,
                handle=handle,
                notes=notes,
            )
        )

    def _load_model(self, *, warm: bool) -> LoadedModel:
        """The job's model; without `warm` the built-in one keeps its random weights, which are about to be replaced."""
        spec, config = self._spec, self._spec.job.model
        if not config.source.startswith("builtin:"):
            config = config.model_copy(update={"source": str(spec.base_dir / config.source)})
        elif not warm:
            config = config.model_copy(update={"warm_start": WarmStartConfig(steps=0, worked_only_steps=0)})
        return load_model(
            config,
            task=self._task,
            task_config=spec.job.task,
            seed=spec.job.seed,
            cache_dir=spec.cache_dir,
            progress=self._worker.report_progress,
        )

    def _make_rollouter(self, loaded: LoadedModel) -> TransformersRollouter:
        job = self._spec.job
        return TransformersRollouter(
            loaded.model,
            loaded.tokenizer,
            prompt_of=self._task.prompt,
            seed=job.seed,
            group_size=job.algorithm.group_size,
            sampling_config=job.sampling,
            slots=job.devices.rollout_slots,
            clock=self._worker.now,
        )

    def handle(self, command: msg.Command) -> None:
        match command:
            case msg.LoadWeights():
                self._load_weights(command)
            case msg.Generate():
                self._enter_rollout()
                for request in command.requests:
                    self.rollouter.add(request)
            case msg.AbortGroups():
                groups = tuple(self.rollouter.abort())
                self._worker.emit(msg.GroupsAborted(groups=groups))
            case msg.TrainChunk():
                self._train(command)
            case msg.Evaluate():
                self._evaluate(command)
            case msg.ShipGradient():
                self._ship(command)
            case msg.FinishStep():
                self._finish_step(command)
            case msg.DiscardStep():
                self.trainer.discard()
            case msg.SaveCheckpoint():
                self._checkpoint(command)
            case msg.SwitchRole():
                self._switch(command)
            case _:
                raise AssertionError(f"no role handles {command!r}")

    # -- rollouter ----------------------------------------------------------------------------------------------------

    @property
    def rollouter(self) -> TransformersRollouter:
        assert self._rollouter is not None, f"device {self._spec.device} has no rollouter role"
        return self._rollouter

    @property
    def generating(self) -> bool:
        return self._rollouter is not None and self._rollouter.active_groups > 0

    def generate_step(self) -> None:
        self._enter_rollout()
        finished = self.rollouter.step()
        for group in finished:
            self._worker.ledger.enter("scoring", ref=f"group {group.group_id}")
            self._score(group)

    def _enter_rollout(self) -> None:
        self._worker.ledger.enter("rollout", role="primary", version=self.rollouter.version)

    def _score(self, group: FinishedGroup) -> None:
        try:
            rewards = [self._task.score(group.item, response.text) for response in group.responses]
        except RewardFailed as error:
            sealed = msg.SealedGroup.seal(group, excluded=True)
            self._worker.emit(msg.GroupExcluded(group=sealed, reason="reward_failed", detail=str(error)))
            return
        self._worker.emit(msg.GroupScored(group=msg.SealedGroup.seal(group.with_rewards(rewards))))

    def _load_weights(self, command: msg.LoadWeights) -> None:
        self._worker.ledger.enter("weight_sync", version=command.version)
        begin = time.perf_counter()
        vector = self._transport.get(command.handle)
        if self._rollouter is not None and (self._trainer is None or self._in_rollout):
            self._rollouter.load(vector, command.version)
        elif self._trainer is not None:
            assert self._model is not None
            load_flat(self._model, vector)
        seconds = time.perf_counter() - begin
        self._worker.emit(msg.WeightsLoaded(version=command.version, seconds=seconds, at=self._worker.now()))

    # -- trainer ------------------------------------------------------------------------------------------------------

    @property
    def trainer(self) -> TorchTrainer:
        assert self._trainer is not None, f"device {self._spec.device} has no trainer role"
        return self._trainer

    def _train(self, command: msg.TrainChunk) -> None:
        self._worker.ledger.enter(
            "train", role="primary", version=self.trainer.version, step=command.step, ref=f"chunk {command.chunk_id}"
        )
        begin = time.perf_counter()
        stats = self.trainer.accumulate([group.open() for group in command.groups])
        seconds = time.perf_counter() - begin
        self._worker.emit(msg.ChunkDone(chunk_id=command.chunk_id, step=command.step, stats=stats, seconds=seconds))

    def _ship(self, command: msg.ShipGradient) -> None:
        self._worker.ledger.enter("grad_merge", version=self.trainer.version, step=command.step)
        gradient = self.trainer.gradient()
        handle = (self._transport.put(gradient.vector), gradient.tokens)
        self._worker.emit(msg.GradientShipped(step=command.step, handle=handle))

    def _finish_step(self, command: msg.FinishStep) -> None:
        version = self.trainer.version
        parts = None
        if command.gradients:
            self._worker.ledger.enter("grad_merge", version=version, step=command.step)
            parts = [Gradient(vector=self._transport.get(h), tokens=tokens) for h, tokens in command.gradients]
        self._worker.ledger.enter("optimizer", version=version, step=command.step)
        stats = self.trainer.finish_step(parts)
        handle, seconds, at = None, 0.0, self._worker.now()
        if self._spec.train_rank == 0:
            self._worker.ledger.enter("weight_sync", version=stats.version, step=command.step)
            begin = time.perf_counter()
            handle = self._transport.put(self.trainer.vector())
            seconds = time.perf_counter() - begin
        self._worker.emit(
            msg.StepDone(step=command.step, stats=stats, handle=handle, publish_s=seconds, published_at=at)
        )

    def _evaluate(self, command: msg.Evaluate) -> None:
        assert self._evaluator is not None
        self._worker.ledger.enter("evaluate", version=self.trainer.version, step=command.step)
        items = range(-1 - self._spec.train_rank, -1 - self._task.held_out, -self._spec.train_world)
        correct, failed = 0.0, 0
        answer = self._evaluator.greedy if self._spec.job.eval.greedy else self._evaluator.sampled
        texts = answer([self._task.prompt(item) for item in items], command.prefix)
        for item, text in zip(items, texts, strict=True):
            try:
                correct += self._task.score(item, text)
            except RewardFailed:
                failed += 1
        done = len(items) - failed
        self._worker.emit(
            msg.EvalDone(step=command.step, name=command.name, correct=correct, items=done, failed=failed)
        )

    def _checkpoint(self, command: msg.SaveCheckpoint) -> None:
        self._worker.ledger.enter("checkpoint", version=self.trainer.version, step=command.step)
        self.trainer.save(command.folder)
        digest = sha256(self.trainer.vector())
        self._worker.emit(msg.CheckpointSaved(step=command.step, folder=command.folder, params_sha256=digest))

    # -- colocated ----------------------------------------------------------------------------------------------------

    def _switch(self, command: msg.SwitchRole) -> None:
        kind = "switch_out" if command.role == "rollout" else "switch_in"
        self._worker.ledger.enter(kind, version=self.trainer.version)
        self._in_rollout = command.role == "rollout"
        if self._in_rollout:
            begin = time.perf_counter()
            self.rollouter.load(self.trainer.vector(), self.trainer.version)
            seconds = time.perf_counter() - begin
            loaded = msg.WeightsLoaded(version=self.trainer.version, seconds=seconds, at=self._worker.now())
            self._worker.emit(loaded)
