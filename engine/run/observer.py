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
from engine.run.book import Book, StartPoint
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

    def __init__(self, *, job: Job, book: Book, recorder: Recorder, applier: Applier, train_devices: list[int]) -> None:
        self._job = job
        self._book = book
        self._recorder = recorder
        self._applier = applier
        self._train_devices = train_devices
        self._evaluations: dict[tuple[int, str], _Evaluation] = {}
        self._written: list[_Written] = []
        self._last_row: StepRow | None = None
        self.started: dict[int, int] = {}
        """Device -> process, of the workers that live."""
        self.ready: set[int] = set()
        """Devices whose models are in memory."""
        self.closed: set[int] = set()
        """Devices whose ledger is closed."""
        self.life: dict[int, Life] = {}
        """Device -> its ledger's bounds as the worker gave them."""
        self.failed: dict[int, str] = {}
        """Device -> why it failed."""
        self.progress: tuple[str, float] | None = None
        self.excluded: dict[str, int] = {}
        self.steps_done: list[tuple[int, tuple[int, ...]]] = []
        """Steps made since they were last looked at, with their groups."""
        self.saved: list[msg.CheckpointSaved] = []
        """Checkpoints completed since they were last looked at."""
        self.last_step_at: float | None = None
        self.params_sha256: str | None = None

    def event(self, device: int, event: msg.Event, now: float) -> None:
        """Enter one event."""
        book = self._book
        match event:
            case msg.Started(pid=pid):
                self.started[device] = pid
            case msg.Progress(text=text, fraction=fraction):
                self.progress = (text, fraction)
            case msg.Ready():
                self._ready(device, event, now)
            case msg.WeightsLoaded():
                self._weights_loaded(device, event)
            case msg.GroupScored(group=group):
                book.group_finished(group)
            case msg.GroupExcluded(group=group, reason=reason, detail=detail):
                self._recorder.excluded(book.group_excluded(group), reason)
                self.excluded[reason] = self.excluded.get(reason, 0) + 1
                text = f"Group {group.group_id} is excluded ({reason}): {detail}"
                self._recorder.log(now, text, level="warning", device=device)
            case msg.GroupsAborted(groups=groups):
                book.groups_aborted(device, [group.group_id for group in groups])
            case msg.ChunkDone(stats=stats):
                book.chunk_done(device, stats)
            case msg.GradientShipped(handle=handle):
                self._applier.gradients[device] = handle
                book.train[device].busy, book.train[device].shipped = None, True
            case msg.StepDone():
                self._step_done(device, event, now)
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
                self.life[device] = Life(began=event.started_at, ended=event.ended_at, other_cpu_s=event.other_cpu_s)

    def _ready(self, device: int, event: msg.Ready, now: float) -> None:
        self.ready.add(device)
        if event.training_items != self._job.task.items:
            self.failed[device] = f"it has {event.training_items} training items, the job has {self._job.task.items}"
            return
        for note in event.notes:
            self._recorder.log(now, note, device=device)
        if event.version is None:
            return
        self._publish(Publication(event.version, event.handle, now, 0.0))
        self._book.train[device].ready = True
        for other in self._train_devices:
            if other != device:
                self._applier.load_weights(other, event.version)

    def _publish(self, publication: Publication) -> None:
        self._applier.publication = publication
        self._book.published = publication.version

    def _weights_loaded(self, device: int, event: msg.WeightsLoaded) -> None:
        book, publication = self._book, self._applier.publication
        trainer = book.train.get(device)
        if trainer is not None and not trainer.ready:
            trainer.ready = True
            return
        replica = book.rollout[device]
        if replica.version == event.version:
            replica.loading = False
        if publication is None or publication.version != event.version:
            return
        publication.loaded(device, event.seconds, event.at)
        if not publication.waiting and self._last_row is not None and self._last_row.step == event.version:
            metrics = self._last_row.metrics | publication.metrics()
            self._recorder.step_again(dataclasses.replace(self._last_row, metrics=metrics))

    def _step_done(self, device: int, event: msg.StepDone, now: float) -> None:
        book = self._book
        if event.handle is None:
            # a replica that follows the first one; when that one was quicker, this one may have been handed more
            if event.step == book.step.version + 1:
                book.train[device].busy = None
            return
        staleness = max(group.bound.staleness for group in book.step.taken)
        row = step_row(self._recorder.run_id, book.step, event, staleness=staleness, now=now)
        done = book.step_done(now)
        self._recorder.step(done, row)
        self._last_row, self.last_step_at = row, now
        self.steps_done.append((done.version + 1, tuple(group.group_id for group in done.taken)))
        self._publish(Publication(event.stats.version, event.handle, event.published_at, event.publish_s))

    def _eval_done(self, device: int, event: msg.EvalDone, now: float) -> None:
        self._book.train[device].busy = None
        self._book.step.evals_running -= 1
        total = self._evaluations.setdefault((event.step, event.name), _Evaluation())
        total.correct += event.correct
        total.items += event.items
        total.failed += event.failed
        total.parts += 1
        if total.parts < len(self._train_devices):
            return
        del self._evaluations[event.step, event.name]
        if total.failed:
            text = f"{total.failed} held-out items could not be scored at version {event.step}; they are left out."
            self._recorder.log(now, text, level="warning")
        if total.items:
            accuracy = total.correct / total.items
            self._recorder.eval(step=event.step, name=event.name, accuracy=accuracy, items=total.items, at=now)

    def _checkpoint_saved(self, device: int, event: msg.CheckpointSaved, now: float) -> None:
        self._book.train[device].busy = None
        self._book.step.checkpoint_running = False
        self._written.append(_Written(event, self._book.resume_point, self._recorder.receipt()))
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
