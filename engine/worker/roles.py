"""The hot-switch worker of one device: one object per role, and which of them is at work.

    with pools (home rollout; home train is the mirror image):

      rollout --BeginLease--> switching in: groups go back, the trainer takes the step's version --> training
         ^                                                                                             |
         +-- switching out: its gradient is shipped, newest weights are loaded <-- EndLease -----------+
                            (chunks that wait are given back, with `revoke` the running one ends early)

    without pools: rollout <--SwitchRole--> train

The passive role stays in memory with weights of its own, an immutable version copied from shared memory: waking it
copies one vector. It never reads the optimizer's live tensors. Waking and going back is rehearsed before the run
begins, so that the first lease costs what the others do.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from engine.config import WarmStartConfig
from engine.config.model import BUILTIN
from engine.learning.deterministic_rollouter import DeterministicRollouter
from engine.learning.model_source import LoadedModel, load_model
from engine.learning.rewards.make import make_scoring
from engine.learning.rewards.scoring import Scoring
from engine.learning.slot_rollouter import RolloutSettings, SlotRollouter
from engine.learning.tasks import Task, make_task
from engine.learning.torch_trainer import TorchTrainer
from engine.learning.transformers_rollouter import TransformersRollouter
from engine.learning.vllm.check import rollouter_for
from engine.worker import messages as msg
from engine.worker.rehearsal import rehearse
from engine.worker.rollout_role import RolloutRole
from engine.worker.train_role import TrainRole

if TYPE_CHECKING:
    from engine.worker.device_worker import DeviceWorker
    from engine.worker.transport import Transport


class TorchRoles:
    """Roles on torch models: `prepare` builds what the spec asks for, `handle` sends each command to its role."""

    def __init__(self, worker: DeviceWorker, transport: Transport) -> None:
        self._worker = worker
        self._transport = transport
        self._spec = worker.spec
        self._task: Task
        self._scoring: Scoring
        self._rollout: RolloutRole | None = None
        self._train: TrainRole | None = None
        self._home = self._spec.home
        self._active = self._home or "train"
        self._lease: int | None = None
        self._begun = False

    # -- life ---------------------------------------------------------------------------------------------------------

    def prepare(self) -> None:
        spec, job = self._spec, self._spec.job
        roots = spec.roots or (spec.base_dir,)
        self._task = make_task(job, roots=roots)
        self._start_scoring(roots)
        version: int | None = None
        handle: msg.Handle | None = None
        reference: msg.Handle | None = None
        put_aside: msg.SnapshotHandle | None = None
        notes: tuple[str, ...] = ()
        memory: dict[str, int] = {}
        if spec.rolls:  # first: it reports its progress, and nothing may be reported between an array and its event
            self._rollout = self._make_rollout_role()
            memory["rollout"] = self._rollout.nbytes
        if spec.trains:
            primary = spec.home != "rollout"
            trainer, notes = self._make_trainer(primary=primary, warm=spec.source and spec.resume_from is None)
            if spec.resume_from is not None and primary:
                resumed = trainer.load(spec.resume_from)
                notes = (*notes, *(resumed if spec.source else ()))
            memory["train"] = trainer.nbytes
            if spec.source:
                version, vector = trainer.version, trainer.vector()
                handle = self._transport.put(vector)
                if spec.home is not None:
                    put_aside = self.train.put_aside(handle, vector)
                kept = trainer.reference_vector()
                reference = None if kept is None else self._transport.put(kept)
        self._worker.emit(
            msg.Ready(
                training_items=self._task.size,
                held_out_items=self._task.held_out,
                version=version,
                handle=handle,
                notes=(*notes, *(self._task.notes if spec.source else ())),
                memory=memory,
                rehearsal=self._rehearse(),
                reference=reference,
                snapshot=put_aside,
            )
        )

    def _start_scoring(self, roots: Sequence[Path]) -> None:
        """Fails where the rewards do not load. They load on this device's core, so nothing is won by doing something
        else meanwhile, and that would look slower than it is."""
        self._scoring = make_scoring(self._spec.job.task, roots=roots)
        self._worker.at_end(self._scoring.close)
        self._worker.ledger.enter("idle", ref=msg.REWARDS)
        self._scoring.wait_ready(lambda: self._worker.report_progress("the rewards load", 0.0))
        self._worker.ledger.enter("startup")

    def _rehearse(self) -> msg.Rehearsal | None:
        if self._home is None or self._rollout is None or self._train is None:
            return None
        return rehearse(self._home, self._rollout, self._train, self._spec.job)

    def _make_trainer(self, *, primary: bool, warm: bool = False) -> tuple[TorchTrainer, tuple[str, ...]]:
        """The trainer role, with its trainer and what there is to say of its model."""
        job, loaded = self._spec.job, self._load_model(warm=warm, trained=True)
        trainer = TorchTrainer(
            loaded.model,
            loaded.tokenizer,
            job.algorithm,
            temperature=job.sampling.temperature,
            max_response_tokens=job.sampling.max_response_tokens,
            optimizer=primary,
            deterministic=job.schedule.deterministic,
            compute=loaded.compute,
            recompute=job.model.gradient_checkpointing,
            merged=job.model.lora is not None and job.model.lora.merge_checkpoints,
        )
        # it answers with the trainer's own parameters, so a passive role's costs nothing
        evaluator = self._make_rollouter(loaded, evaluator=True)
        self._train = TrainRole(self._worker, self._transport, trainer, self._task, self._scoring, evaluator)
        return trainer, loaded.notes

    def _make_rollout_role(self) -> RolloutRole:
        loaded = self._load_model(warm=False, trained=False)
        by_vllm = rollouter_for(self._spec.job) == "vllm"
        rollouter = self._make_vllm_rollouter(loaded) if by_vllm else self._make_rollouter(loaded)
        return RolloutRole(self._worker, rollouter, self._task, self._scoring)

    def _make_vllm_rollouter(self, loaded: LoadedModel) -> SlotRollouter:
        from engine.learning.vllm.making import make_vllm_rollouter

        job = self._spec.job
        begin = time.perf_counter()
        self._worker.report_progress("vLLM is imported and started", 0.0)
        rollouter = make_vllm_rollouter(
            loaded.model,
            loaded.tokenizer,
            self._rollout_settings(),
            cache_dir=self._spec.cache_dir,
            dtype=job.model.dtype_on(job.devices.kind),
        )
        self._worker.log(
            f"Device {self._spec.device} generates with vLLM, ready after {time.perf_counter() - begin:.0f} s."
        )
        return rollouter

    def _load_model(self, *, warm: bool, trained: bool) -> LoadedModel:
        """The job's model; without `warm` the built-in one keeps its random weights, which are about to be replaced."""
        spec, config = self._spec, self._spec.job.model
        if not warm and config.source == BUILTIN:
            config = config.model_copy(update={"warm_start": WarmStartConfig(steps=0, worked_only_steps=0)})
        return load_model(
            config,
            task=self._task,
            task_config=spec.job.task,
            seed=spec.job.seed,
            cache_dir=spec.cache_dir,
            roots=spec.roots or (spec.base_dir,),
            trained=trained,
            kind=spec.job.devices.kind,
            progress=self._worker.report_progress,
        )

    def _make_rollouter(self, loaded: LoadedModel, *, evaluator: bool = False) -> TransformersRollouter:
        apart = self._spec.job.schedule.deterministic and not evaluator
        kind = DeterministicRollouter if apart else TransformersRollouter
        return kind(loaded.model, loaded.tokenizer, self._rollout_settings())

    def _rollout_settings(self) -> RolloutSettings:
        job = self._spec.job
        return RolloutSettings(
            prompt_of=self._task.prompt,
            seed=job.seed,
            group_size=job.algorithm.group_size,
            sampling=job.sampling,
            slots=job.devices.rollout_slots,
            clock=self._worker.now,
        )

    # -- commands -----------------------------------------------------------------------------------------------------

    def handle(self, command: msg.Command) -> None:
        match command:
            case msg.LoadWeights():
                self._load_weights(command)
            case msg.Generate():
                self._note_work()
                self.rollout.add(command.requests)
            case msg.AbortGroups():
                self.rollout.abort()
            case msg.TrainChunk():
                self._note_work()
                self.train.train(command)
            case msg.Evaluate():
                self.train.evaluate(command)
            case msg.ShipGradient():
                self.train.ship(command.step)
            case msg.FinishStep():
                self.train.finish_step(command)
            case msg.DiscardStep():
                self.train.discard()
            case msg.Restore():
                self._restore(command)
            case msg.SetReference():
                self.train.set_reference(self._transport.get(command.handle))
            case msg.SaveCheckpoint():
                self.train.checkpoint(command)
            case msg.SwitchRole():
                self._switch(command)
            case msg.BeginLease():
                self._begin_lease(command)
            case msg.EndLease():
                self._end_lease(command)
            case msg.Move():
                self._move(command)
            case msg.Prepare():
                self._prepare_other(command)
            case _:
                raise AssertionError(f"no role handles {command!r}")

    @property
    def rollout(self) -> RolloutRole:
        assert self._rollout is not None, f"device {self._spec.device} has no rollouter role"
        return self._rollout

    @property
    def train(self) -> TrainRole:
        assert self._train is not None, f"device {self._spec.device} has no trainer role"
        return self._train

    @property
    def generating(self) -> bool:
        return self._rollout is not None and self._rollout.generating

    def generate_step(self) -> None:
        self.rollout.step()

    def _load_weights(self, command: msg.LoadWeights) -> None:
        self._worker.ledger.enter("weight_sync", version=command.version)
        begin = time.perf_counter()
        vector = self._transport.get(command.handle)
        if self._active == "rollout":
            self.rollout.load(vector, command.version)
        else:
            self.train.take(vector, command.version)
        seconds = time.perf_counter() - begin
        self._worker.emit(msg.WeightsLoaded(version=command.version, seconds=seconds, at=self._worker.now()))

    def _restore(self, command: msg.Restore) -> None:
        self._worker.ledger.enter("weight_sync", version=command.snapshot.version)
        begin = time.perf_counter()
        self.train.restore(command.snapshot)
        seconds = time.perf_counter() - begin
        self._worker.emit(msg.Restored(version=self.train.version, seconds=seconds, at=self._worker.now()))

    # -- switching ----------------------------------------------------------------------------------------------------

    def _begin_lease(self, command: msg.BeginLease) -> None:
        worker, began_at = self._worker, self._worker.now()
        assert self._lease is None, f"device {self._spec.device} is under lease {self._lease} already"
        phases = _Phases()
        worker.ledger.enter("switch_in", version=command.weights.version, ref=f"lease {command.lease}")
        if self._home == "rollout":
            self.rollout.abort()
            phases.end("drain")
        else:
            self.train.ship_if_any(command.step)
            phases.end("ship")
            worker.ledger.enter("switch_in", version=command.weights.version, ref=f"lease {command.lease}")
        vector = self._transport.get(command.weights.handle)
        phases.end("fetch")
        if self._home == "rollout":
            self.rollout.rest()
            self._active = "train"
            self.train.take(vector, command.weights.version)
        else:
            self._active = "rollout"
            self.rollout.load(vector, command.weights.version)
        phases.end("load")
        self._lease, self._begun = command.lease, False
        self.rollout.under(command.lease if self._active == "rollout" else None)
        self.train.under(command.lease if self._active == "train" else None)
        worker.emit(
            msg.LeaseReady(
                lease=command.lease,
                version=command.weights.version,
                began_at=began_at,
                at=worker.now(),
                phases=phases.seconds,
            )
        )

    def _end_lease(self, command: msg.EndLease) -> None:
        worker, began_at = self._worker, self._worker.now()
        if self._lease != command.lease:
            return  # it was called home twice
        phases = _Phases()
        ref = f"lease {command.lease}"
        if self._active == "rollout":
            worker.ledger.enter("switch_out", version=self.train.version, ref=ref)
            self.rollout.abort()
            self.rollout.rest()
            phases.end("drain")
            if command.snapshot is not None and command.snapshot.version > self.train.version:
                self.train.restore(command.snapshot)
                phases.end("restore")
            version = self.train.version
        else:
            self.train.ship_if_any(command.step)
            phases.end("ship")
            worker.ledger.enter("switch_out", version=self.rollout.version, ref=ref)
            if command.weights is not None and command.weights.version > self.rollout.version:
                self.rollout.load(self._transport.get(command.weights.handle), command.weights.version)
                phases.end("load")
            self.rollout.rise()
            version = self.rollout.version
        assert self._home is not None
        self._active, self._lease = self._home, None
        self.rollout.under(None)
        self.train.under(None)
        worker.emit(
            msg.LeaseReleased(
                lease=command.lease, version=version, began_at=began_at, at=worker.now(), phases=phases.seconds
            )
        )

    def _move(self, command: msg.Move) -> None:
        """Another home: what the new role lacks is built, and a trainer is checked before it counts."""
        worker, version = self._worker, command.weights.version
        assert self._lease is None, f"device {self._spec.device} changes its home under lease {self._lease}"
        assert command.home != self._home, f"device {self._spec.device} is at home in the {command.home} pool already"
        phases = _Phases()
        if command.home == "train":
            assert command.snapshot is not None, f"device {self._spec.device} was sent no snapshot to train from"
            worker.ledger.enter("switch_in", version=command.snapshot.version, ref=MOVE)
            self.rollout.abort()
            self.rollout.rest()
            phases.end("drain")
            self._need_trainer(command.reference)
            phases.end("build")
            self.train.become_primary(command.snapshot)
            phases.end("restore")
            version = self.train.version
        else:
            self.train.ship_if_any(command.step)
            phases.end("ship")
            worker.ledger.enter("switch_out", version=version, ref=MOVE)
            self._need_rollouter()
            phases.end("build")
            self.rollout.load(self._transport.get(command.weights.handle), version)
            self.train.resign()
            phases.end("load")
        self._home = self._active = command.home
        worker.emit(msg.Moved(home=command.home, version=version, at=worker.now(), phases=phases.seconds))

    def _prepare_other(self, command: msg.Prepare) -> None:
        """The role that it does not have yet, between two chunks or tokens."""
        if self._rollout is None or self._train is None:
            self._worker.ledger.enter("startup", ref="the other role")
        self._need_trainer(command.reference)
        self._need_rollouter()
        memory = {"train": self.train.nbytes, "rollout": self.rollout.nbytes}
        self._worker.emit(msg.Prepared(memory=memory, rehearsal=self._rehearse()))

    def _need_trainer(self, reference: msg.Handle | None) -> None:
        if self._train is None:
            self._make_trainer(primary=False)
            if reference is not None:
                self.train.set_reference(self._transport.get(reference))

    def _need_rollouter(self) -> None:
        if self._rollout is None:
            self._rollout = self._make_rollout_role()

    def _note_work(self) -> None:
        """The first useful work of a lease begins: its preparation ends here."""
        if self._lease is not None and not self._begun and not self._worker.lease_ends(self._lease):
            self._begun = True
            self._worker.emit(msg.LeaseWorking(lease=self._lease, at=self._worker.now()))

    def _switch(self, command: msg.SwitchRole) -> None:
        kind = "switch_out" if command.role == "rollout" else "switch_in"
        self._worker.ledger.enter(kind, version=self.train.version)
        self._active = command.role
        if command.role == "train" and self._rollout is not None:
            self._rollout.rest()
        if command.role == "rollout":
            begin = time.perf_counter()
            self.rollout.load(self.train.vector(), self.train.version)
            seconds = time.perf_counter() - begin
            loaded = msg.WeightsLoaded(version=self.train.version, seconds=seconds, at=self._worker.now())
            self._worker.emit(loaded)


MOVE = "move"
"""What spans of a change of home refer to."""


class _Phases:
    """Seconds of each part of a switch."""

    def __init__(self) -> None:
        self._since = time.perf_counter()
        self.seconds: dict[str, float] = {}

    def end(self, name: str) -> None:
        now = time.perf_counter()
        self.seconds[name] = now - self._since
        self._since = now
