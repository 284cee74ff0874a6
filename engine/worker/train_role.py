"""The trainer of one device: chunks, the step's end, evaluation, checkpoints, snapshots.

A primary owns the optimizer. An auxiliary holds exactly the version that the step trains at, accumulates, and ships its
gradient; it never changes a weight.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Sequence
from typing import TYPE_CHECKING

from engine.learning import snapshot
from engine.learning.optimizer_state import MOMENTS
from engine.learning.rewards.reward import Question
from engine.learning.rewards.scoring import Answers, Scoring, score_all
from engine.learning.stats import ChunkStats
from engine.learning.tasks import Task
from engine.learning.trainer import Gradient
from engine.learning.weights import sha256
from engine.worker import messages as msg

if TYPE_CHECKING:
    from engine.learning.sequences import FinishedGroup
    from engine.learning.torch_trainer import TorchTrainer
    from engine.learning.transformers_rollouter import TransformersRollouter
    from engine.learning.weights import Vector
    from engine.worker.device_worker import DeviceWorker
    from engine.worker.transport import Transport


SNAPSHOTS_KEPT = 3
"""Folders of a run: the newest, and those that a trainer that was slow to be told may still be reading."""

MOST_NAMED = 5
"""Held-out items that cannot be asked and that the log names; the rest is counted."""

MOST_TIMEOUTS = 3
"""Held-out answers whose scoring may take too long before the evaluation gives the others up: each costs a deadline."""


class TrainRole:
    """Primary on a train device, auxiliary under a lease."""

    def __init__(
        self,
        worker: DeviceWorker,
        transport: Transport,
        trainer: TorchTrainer,
        task: Task,
        scoring: Scoring,
        evaluator: TransformersRollouter,
    ) -> None:
        """`evaluator` answers with the trainer's own parameters, which is what is evaluated."""
        self._worker = worker
        self._transport = transport
        self._trainer = trainer
        self._task = task
        self._scoring = scoring
        self._evaluator = evaluator
        self._accumulated = False
        self._told: set[int] = set()
        """Held-out items of which the log says that they cannot be asked."""
        self._lease: int | None = None

    @property
    def version(self) -> int:
        return self._trainer.version

    @property
    def nbytes(self) -> int:
        return self._trainer.nbytes

    def under(self, lease: int | None) -> None:
        """From now on it works under this lease, or for its own pool."""
        self._lease = lease

    def vector(self) -> Vector:
        return self._trainer.vector()

    def train(self, command: msg.TrainChunk) -> None:
        """Train a chunk; one whose lease is ending is given back, or ends at the next boundary between groups."""
        worker, lease = self._worker, self._lease
        ids = tuple(group.group_id for group in command.groups)
        begin = time.perf_counter()
        stats, done = ChunkStats(), 0
        if lease is None or not worker.lease_ends(lease):
            role = "primary" if lease is None else "auxiliary"
            worker.ledger.enter(
                "train", role=role, version=self.version, step=command.step, ref=f"chunk {command.chunk_id}"
            )
            groups = [group.open() for group in command.groups]
            if lease is None:
                stats, done = self._trainer.accumulate(groups), len(groups)
            else:
                stats, done = self._trainer.accumulate_until(groups, lambda: worker.lease_revoked(lease))
            self._accumulated = True
        worker.emit(
            msg.ChunkDone(
                chunk_id=command.chunk_id,
                step=command.step,
                trained=ids[:done],
                given_back=ids[done:],
                stats=stats,
                seconds=time.perf_counter() - begin,
                at=worker.now(),
            )
        )

    def ship(self, step: int) -> None:
        """Put what was accumulated where the primaries can fetch it, and begin anew."""
        self._worker.ledger.enter("grad_merge", version=self.version, step=step)
        gradient = self._trainer.gradient()
        self._trainer.discard()
        self._accumulated = False
        shipped = msg.ShippedGradient(
            handle=self._transport.put(gradient.vector), tokens=gradient.tokens, keys=gradient.keys
        )
        self._worker.emit(msg.GradientShipped(step=step, gradient=shipped))

    def ship_if_any(self, step: int) -> None:
        """The same where there is something to ship."""
        if self._accumulated:
            self.ship(step)

    def rehearse(self, groups: Sequence[FinishedGroup]) -> None:
        """Go once through what waking needs, so that the first time is like the others."""
        self._trainer.accumulate(groups)

    def copy_gradient(self) -> None:
        """What shipping costs at this end."""
        self._trainer.gradient()

    def discard(self) -> None:
        self._trainer.discard()
        self._accumulated = False

    def finish_step(self, command: msg.FinishStep) -> None:
        worker, version = self._worker, self.version
        parts = None
        begin = time.perf_counter()
        if command.gradients:
            worker.ledger.enter("grad_merge", version=version, step=command.step)
            parts = [
                Gradient(vector=self._transport.get(part.handle), tokens=part.tokens, keys=part.keys)
                for part in command.gradients
            ]
            if command.own:
                parts.append(self._trainer.gradient())
        merged = time.perf_counter()
        worker.ledger.enter("optimizer", version=version, step=command.step)
        stats = self._trainer.finish_step(parts)
        self._accumulated = False
        stepped = time.perf_counter()
        handle, put_aside, at = None, None, worker.now()
        published = stepped
        if command.publish:
            worker.ledger.enter("weight_sync", version=stats.version, step=command.step)
            vector = self.vector()
            handle = self._transport.put(vector)
            published = time.perf_counter()
            if worker.spec.home is not None:  # without pools nobody is restored, so nothing is put aside
                put_aside = self.put_aside(handle, vector)
        worker.emit(
            msg.StepDone(
                step=command.step,
                stats=stats,
                handle=handle,
                snapshot=put_aside,
                merge_s=merged - begin,
                optimizer_s=stepped - merged,
                publish_s=published - stepped,
                snapshot_s=time.perf_counter() - published,
                published_at=at,
            )
        )

    def put_aside(self, weights: msg.Handle, vector: Vector) -> msg.SnapshotHandle:
        """Parameters and optimizer state of its version: in shared memory, or in a folder where they are large.

        The parameters are `vector`, which lies behind the handle."""
        root = self._worker.spec.snapshot_dir
        most = self._worker.spec.job.checkpoint.snapshot_max_bytes
        if root is not None and (1 + len(MOMENTS)) * vector.nbytes > most:
            folder = snapshot.folder_of(root, self.version)
            taken = snapshot.write(folder, lambda files: self._trainer.snapshot(vector, files))
            snapshot.prune(root, keep=SNAPSHOTS_KEPT)
            weights = moments = None
        else:
            folder, taken = None, self._trainer.snapshot(vector)
            moments = self._transport.put(taken.moments)
        return msg.SnapshotHandle(
            version=taken.version,
            weights=weights,
            moments=moments,
            optimizer_steps=taken.optimizer_steps,
            folder=folder,
        )

    def restore(self, put_aside: msg.SnapshotHandle) -> None:
        """Become a primary of the snapshot's version."""
        self._trainer.restore(self._fetched(put_aside))
        self._accumulated = False

    def become_primary(self, put_aside: msg.SnapshotHandle) -> None:
        """Own the optimizer from the snapshot on. Raises RuntimeError where what it then holds is not the snapshot."""
        self._trainer.own_optimizer(True)
        taken = self._fetched(put_aside)
        self._trainer.restore(taken)
        self._accumulated = False
        snapshot.check_same(self._trainer.snapshot(), taken)

    def resign(self) -> None:
        """The optimizer is no longer its own; the weights stay, passive."""
        self._trainer.own_optimizer(False)

    def _fetched(self, put_aside: msg.SnapshotHandle) -> snapshot.Snapshot:
        if put_aside.folder is not None:
            return snapshot.read(put_aside.folder)
        return snapshot.Snapshot(
            version=put_aside.version,
            parameters=self._transport.get(put_aside.weights),
            moments=self._transport.get(put_aside.moments),
            optimizer_steps=put_aside.optimizer_steps,
        )

    def take(self, vector: Vector, version: int) -> None:
        """Become this version of the weights; what was accumulated is forgotten."""
        self._trainer.take(vector, version)
        self._accumulated = False

    def set_reference(self, vector: Vector) -> None:
        self._trainer.set_reference(vector)

    def evaluate(self, command: msg.Evaluate) -> None:
        evaluator, spec = self._evaluator, self._worker.spec
        self._worker.ledger.enter("evaluate", version=self.version, step=command.step)
        part = range(-1 - command.part, -1 - self._task.held_out, -command.parts)
        answer = evaluator.greedy if spec.job.eval.greedy else evaluator.sampled
        refused = self._refused(part, command.prefix)
        items = [item for item in part if item not in refused]
        prompts = [self._task.prompt(item) for item in items]
        texts = answer(prompts, command.prefix)
        judge = spec.job.task.scored_by[0].name
        answers = [
            Answers(
                key=item,
                question=Question(item=item, prompt=prompt, entry=self._task.entry(item)),
                texts=(text,),
                only=judge,
            )
            for item, prompt, text in zip(items, prompts, texts, strict=True)
        ]
        verdicts = score_all(self._scoring, answers, most_timeouts=MOST_TIMEOUTS)
        correct = float(sum(verdict.values[0][judge] >= 1.0 for verdict in verdicts if verdict.failure is None))
        failed = sum(verdict.failure is not None for verdict in verdicts)
        done = len(items) - failed
        failed += len(refused)
        self._worker.emit(
            msg.EvalDone(step=command.step, name=command.name, correct=correct, items=done, failed=failed)
        )

    def _refused(self, items: Iterable[int], prefix: str) -> Collection[int]:
        """Those that the model cannot be asked: failed ones of the evaluation, told once by name."""
        found = {item: self._evaluator.refusal(self._task.prompt(item), prefix) for item in items}
        refused = {item: why for item, why in found.items() if why is not None}
        new = [item for item in refused if item not in self._told]
        self._told.update(new)
        for item in new[:MOST_NAMED]:
            text = f"A held-out item cannot be asked: {self._task.place(item)}: {refused[item]}."
            self._worker.log(text, level="warning")
        if len(new) > MOST_NAMED:
            self._worker.log(f"{len(new) - MOST_NAMED:,} more held-out items cannot be asked.", level="warning")
        return refused.keys()

    def checkpoint(self, command: msg.SaveCheckpoint) -> None:
        self._worker.ledger.enter("checkpoint", version=self.version, step=command.step)
        self._trainer.save(command.folder)
        digest = sha256(self.vector())
        self._worker.emit(msg.CheckpointSaved(step=command.step, folder=command.folder, params_sha256=digest))
