"""Enters what workers report into the books and the telemetry. Decides nothing.

What changes the life of the run itself (a worker failed, the last ledger closed) is left to `run.py`, which looks at
the fields below after each delivery.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

from engine import checkpoints
from engine.config import Job
from engine.ledger_check import Life
from engine.run.applier import Applier
from engine.run.arrivals import Arrivals
from engine.run.book import Book, StartPoint
from engine.run.exclusions import Exclusions
from engine.run.lending import Lending
from engine.run.profiling import Profiling
from engine.run.publication import Publication
from engine.run.recorder import Recorder, step_row
from engine.worker import messages as msg
from storage.records import StepRow


@dataclass(slots=True)
class _Evaluation:
    correct: float = 0.0
    items: int = 0
    failed: int = 0
    parts: int = 0


@dataclass(frozen=True, slots=True)
class _Written:
    """A checkpoint whose folder is whole, not yet one to resume from."""

    event: msg.CheckpointSaved
    point: StartPoint
    receipt: int
    """Of the telemetry until the checkpoint's version."""


class Observer:
    """Facts of one run."""

    def __init__(
        self,
        *,
        job: Job,
        book: Book,
        lending: Lending,
        arrivals: Arrivals,
        profiling: Profiling,
        recorder: Recorder,
        applier: Applier,
    ) -> None:
        self._job = job
        self._book = book
        self._lending = lending
        self._arrivals = arrivals
        self._profiling = profiling
        self._recorder = recorder
        self._applier = applier
        self._evaluations: dict[tuple[int, str], _Evaluation] = {}
        self._written: list[_Written] = []
        self._last_row: StepRow | None = None
        self._snapshot_s = 0.0
        self._began: dict[int, float] = {}
        self.started: dict[int, int] = {}
        """Device -> process, of the workers that live."""
        self.ready: set[int] = set()
        """Devices whose models are in memory."""
        self.memory: dict[int, dict[str, int]] = {}
        """Device -> role -> bytes that it keeps."""
        self.closed: set[int] = set()
        """Devices whose ledger is closed."""
        self.life: dict[int, Life] = {}
        """Device -> its ledger's bounds as the worker gave them."""
        self.failed: dict[int, str] = {}
        """Device -> why it failed."""
        self.progress: tuple[str, float] | None = None
        self.exclusions = Exclusions(job.algorithm.prompts_per_step)
        self.steps_done: list[tuple[int, tuple[int, ...]]] = []
        """Steps made since they were last looked at, with their groups."""
        self.saved: list[msg.CheckpointSaved] = []
        """Checkpoints completed since they were last looked at."""
        self.last_step_at: float | None = None
        self.params_sha256: str | None = None

    def delivery(self, device: int, delivery: msg.Delivery, now: float) -> None:
        """Enter everything that a worker said: first what it did, so that a lease that ends knows it."""
        for span in delivery.spans:
            if span.role == "auxiliary":
                self._lending.worked(device, span.t1 - span.t0, span.cpu_s)
        for unit in delivery.decoded:
            self._profiling.decoded(unit)
            if unit.lease is not None:
                mean = self._profiling.group_tokens
                self._lending.generated(device, unit.lease, unit.sequences, unit.sequences / mean if mean else 0.0)
        for event in delivery.events:
            self.event(device, event, now)
        if delivery.load is not None:
            self._book.groups.loaded(device, delivery.load)

    def event(self, device: int, event: msg.Event, now: float) -> None:
        """Enter one event."""
        book = self._book
        self._applier.held.hear(device, event)
        match event:
            case msg.Started(pid=pid, at=at):
                self.started[device] = pid
                self._began.setdefault(device, at)
            case msg.Progress(text=text, fraction=fraction):
                self.progress = (text, fraction)
            case msg.Ready():
                self._ready(device, event, now)
            case msg.WeightsLoaded():
                self._weights_loaded(device, event)
            case msg.Restored(version=version):
                self._arrivals.at_version(device, version)
            case msg.GroupScored(group=group):
                book.group_finished(group)
                self._profiling.finished(group)
                self.exclusions.scored()
            case msg.GroupExcluded(group=group, reason=reason, detail=detail):
                self._recorder.excluded(book.group_excluded(group), reason)
                self.exclusions.excluded(reason, detail)
                if reason != msg.NO_SIGNAL:  # where those are replaced they come by the hundred, and are no fault
                    text = f"Group {group.group_id} is excluded ({reason}): {detail}"
                    self._recorder.log(now, text, level="warning", device=device)
            case msg.GroupsAborted(groups=groups):
                book.groups.come_back(device, groups, now)
            case msg.ChunkDone():
                book.chunk_done(device, event.trained, event.given_back, event.stats, event.at)
                self._profiling.trained(device, event)
                tokens = event.stats.prompt_tokens + event.stats.response_tokens
                self._lending.chunk_done(device, len(event.trained), tokens)
            case msg.GradientShipped(gradient=gradient):
                book.gradient_shipped(device, gradient)
            case msg.StepDone():
                self._step_done(device, event, now)
            case msg.LeaseReady() | msg.LeaseWorking() | msg.LeaseReleased() if self._lending.over:
                pass
            case msg.LeaseReady():
                self._arrivals.lease_ready(device, event)
            case msg.LeaseWorking(lease=lease, at=at):
                self._lending.working(device, lease, at)
            case msg.LeaseReleased():
                self._arrivals.lease_released(device, event)
            case msg.Moved():
                self._arrivals.moved(device, event, pids=self.started)
            case msg.Prepared():
                self.memory[device] = event.memory
                self._arrivals.prepared(device, event)
            case msg.EvalDone():
                self._eval_done(device, event, now)
            case msg.CheckpointSaved():
                self._checkpoint_saved(device, event, now)
            case msg.Log(level=level, text=text, at=at):
                self._recorder.log(at, text, level=level, device=device)
            case msg.Failed(error=error, traceback=traceback):
                self.failed[device] = error
                self._recorder.log(now, traceback, level="error", device=device)
            case msg.Closed():
                self.closed.add(device)
                self._closed(device, event)

    def _closed(self, device: int, event: msg.Closed) -> None:
        """A device's life began with its first worker; what the other threads of one that died took nobody knows."""
        began = self._began.get(device, event.started_at)
        self.life[device] = Life(began=began, ended=event.ended_at, other_cpu_s=event.other_cpu_s)

    def _ready(self, device: int, event: msg.Ready, now: float) -> None:
        self.ready.add(device)
        self.memory[device] = event.memory
        self._profiling.ready(event.rehearsal, "train" if device in self._book.trainers else "rollout")
        if event.training_items != self._job.task.size:
            self.failed[device] = f"it has {event.training_items} training items, the job has {self._job.task.size}"
            return
        for note in event.notes:
            self._recorder.log(now, note, device=device)
        if event.version is not None:
            self._applier.reference, self._applier.snapshot = event.reference, event.snapshot
            self._publish(Publication(event.version, event.handle, now, 0.0))
            self._arrivals.at_version(device, event.version)
            for other in self.ready - {device}:
                self._applier.join(other)
        elif self._applier.publication is not None:
            self._applier.join(device)

    def _publish(self, publication: Publication) -> None:
        self._applier.publication = publication
        self._book.published = publication.version

    def _weights_loaded(self, device: int, event: msg.WeightsLoaded) -> None:
        book, publication = self._book, self._applier.publication
        trainer = book.train.get(device)
        if (trainer is not None or device in book.joining) and book.role.get(device) != "rollout":
            self._arrivals.at_version(device, event.version)
            if publication is not None:
                publication.waiting.discard(device)
                self.settle_publication()
            return
        replica = book.rollout.get(device)
        if replica is not None and replica.version == event.version:
            replica.loading = False
        if publication is None or publication.version != event.version:
            return
        publication.loaded(device, event.seconds, event.at)
        self.settle_publication()

    def settle_publication(self) -> None:
        """Everybody who was told of the newest version holds it, or is gone: how long that took."""
        publication, row = self._applier.publication, self._last_row
        if publication is None or publication.settled or publication.waiting or not publication.load_s:
            return
        if row is None or row.step != publication.version:
            return
        publication.settled = True
        measured = publication.metrics()
        # the snapshot was taken before the version was told, and is part of the step
        self._profiling.synced(max(0.0, measured["publish_latency_s"] - self._snapshot_s))
        self._recorder.step_again(dataclasses.replace(row, metrics=row.metrics | measured))

    def _step_done(self, device: int, event: msg.StepDone, now: float) -> None:
        book = self._book
        step = book.step
        if event.handle is None:
            # a primary that follows the first one; when that one was quicker, this one may have been handed more
            trainer = book.train.get(device)
            if trainer is not None and event.step == step.version + 1:
                trainer.busy = None
            return
        staleness = max(group.bound.staleness for group in step.taken)
        row = step_row(self._recorder.run_id, step, event, staleness=staleness, now=now, learns=not self._job.emulated)
        self._profiling.stepped(event)
        if self._lending.merged(event.merge_s):
            self._profiling.merged(event.merge_s)
        done = book.step_done(now)
        self.exclusions.step_made()
        self._recorder.step(done, row)
        self._last_row, self.last_step_at, self._snapshot_s = row, now, event.snapshot_s
        self.steps_done.append((done.version + 1, tuple(group.group_id for group in done.taken)))
        self._applier.snapshot = event.snapshot
        self._publish(Publication(event.stats.version, event.handle, event.published_at, event.publish_s))
        for trainer in book.train.values():
            if trainer.lease is not None:
                # it goes on into the next step, at whose version it must be
                trainer.ready = False
                self._applier.load_weights(trainer.device, book.step.version)
        for trainer in book.joining.values():
            if trainer.version == done.version:
                # it came while the step was being made
                self._applier.make_primary(trainer.device)

    def _eval_done(self, device: int, event: msg.EvalDone, now: float) -> None:
        self._book.train[device].busy = self._book.train[device].evaluating = None
        self._book.step.evals_running -= 1
        total = self._evaluations.setdefault((event.step, event.name), _Evaluation())
        total.correct += event.correct
        total.items += event.items
        total.failed += event.failed
        total.parts += 1
        if total.parts < len(self._book.step.eval_parts[event.name]):
            return
        del self._evaluations[event.step, event.name]
        if total.failed:
            failed = f"{total.failed} held-out items could not be asked or scored at version {event.step}"
            self._recorder.log(now, f"{failed}; they are left out.", level="warning")
        if total.items:
            accuracy = total.correct / total.items
            self._recorder.eval(
                step=event.step,
                name=event.name,
                accuracy=accuracy,
                items=total.items,
                failed=total.failed,
                at=now,
            )

    def _checkpoint_saved(self, device: int, event: msg.CheckpointSaved, now: float) -> None:
        self._book.train[device].busy = None
        self._book.step.checkpoint_running = False
        self._written.append(_Written(event, self._book.groups.resume_point, self._recorder.receipt()))
        self.complete_checkpoints(now)

    def complete_checkpoints(self, now: float) -> bool:
        """Complete what was written once its history is stored; is none left?

        A checkpoint ahead of the telemetry would, when the engine dies between the two, be resumed into a run that
        has no record of the steps before it.
        """
        while self._written and self._recorder.stored(self._written[0].receipt):
            written = self._written.pop(0)
            folder = written.event.folder
            checkpoints.complete(folder, written.point)
            checkpoints.prune(folder.parent, self._job.checkpoint.keep)
            self.params_sha256 = written.event.params_sha256
            self.saved.append(written.event)
            self._recorder.log(now, f"Checkpoint of version {written.event.step} is in {folder}.")
        return not self._written
