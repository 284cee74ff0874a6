"""One run, from its devices to its result: a state machine whose body is four verbs.

    observe   workers' deliveries -> books, telemetry            (observer.py)
    decide    books -> State -> planner.policy.decide -> actions (pure)
    apply     actions -> books, commands to workers              (applier.py)
    record    idle causes, run row                               (recorder.py)

    starting -> warming_up -> running <-> pausing -> paused
    any of them -> stopping -> closing ledgers -> finished | stopped | failed

Healthy end: the last step is made, its evaluations and checkpoint are done, workers close their ledgers, the result is
written. Stop: groups in flight come back, the running chunk ends, the unfinished step is given up, a checkpoint is
written, then as above. A worker that fails or dies ends the run as failed; what was learnt until the last checkpoint
is kept. Every wait has a deadline, and what it says names who was waited for.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from pathlib import Path

from engine import checkpoints
from engine.config import Job
from engine.devices import Report, Workers
from engine.learning.data_order import DataOrder
from engine.run.applier import Applier
from engine.run.book import Book, StartPoint
from engine.run.observer import Observer
from engine.run.recorder import Recorder
from engine.run.specs import device_name, device_row, worker_specs
from engine.run.watchdog import Watchdog
from engine.worker import messages as msg
from planner.policy.decide import decide
from planner.policy.due import CHECKPOINT, due_work
from planner.policy.idle import idle_causes
from planner.policy.staleness import overdue
from storage.words import EVAL_NAMES

logger = logging.getLogger(__name__)

CLOSE_DEADLINE_S = 60.0
"""Longest wait for the workers' last spans."""

MAX_ROUNDS = 8
"""Decisions in one tick: each round of actions may allow a few more; a rule that never settles is a fault."""


class Run:
    """One run; `begin`, then `observe` and `tick` until `over`."""

    def __init__(
        self,
        *,
        run_id: str,
        job: Job,
        start: StartPoint,
        resume_from: Path | None,
        cores: Sequence[int],
        base_dir: Path,
        cache_dir: Path,
        checkpoints_dir: Path,
        workers: Workers,
        recorder: Recorder,
        clock: Callable[[], float],
        clock_offset_s: float,
    ) -> None:
        self.run_id = run_id
        self.job = job
        self.cores = tuple(cores)
        self.recorder = recorder
        self.step_made: Callable[[int, tuple[int, ...]], None] = lambda number, group_ids: None
        """Told of every step made, by its number and its groups."""
        self.state = "starting"
        self.error: str | None = None
        self.over = False
        self._workers = workers
        self._clock = clock
        self._checkpoints_dir = checkpoints_dir
        self._closing_since: float | None = None
        self._stop_sent = False
        self._last_noted = False
        self._noted: set[str] = set()
        self._recorded: dict[str, object] = {}
        self._lost: set[int] = set()
        order = DataOrder(size=job.task.items, seed=job.seed, shuffle=job.task.shuffle, epochs=job.task.epochs)
        self.book = Book(job, start, order=order.item_at, now=clock(), places=order.groups)
        self.specs = worker_specs(
            run_id=run_id,
            job=job,
            cores=self.cores,
            base_dir=base_dir,
            cache_dir=cache_dir,
            resume_from=resume_from,
            clock_offset_s=clock_offset_s,
        )
        self.applier = Applier(
            run_id=run_id,
            job=job,
            book=self.book,
            workers=workers,
            checkpoint_folder=lambda version: checkpoints.folder_of(checkpoints_dir, version),
        )
        trainers = [spec.device for spec in self.specs if spec.trains]
        self._watchdog = Watchdog(self.specs, now=clock())
        self.observer = Observer(
            job=job, book=self.book, recorder=recorder, applier=self.applier, train_devices=trainers
        )
        self.book.add_devices(
            rollout=[spec.device for spec in self.specs if spec.rolls], train=trainers, pools=job.partition is not None
        )
        self._open_version()

    # -- life ---------------------------------------------------------------------------------------------------------

    def begin(self) -> None:
        """Start the workers."""
        self.recorder.run(state=self.state, started_at=self._clock(), steps=0)
        self.recorder.devices([device_row(spec) for spec in self.specs])
        self._workers.start(self.specs)

    def observe(self, reports: Sequence[Report]) -> None:
        """Enter what the workers said."""
        now = self._clock()
        for report in reports:
            if report.delivery is None:
                self._lose(report, now)
                continue
            before = len(self.observer.started)
            for event in report.delivery.events:
                self.observer.event(report.device, event, now)
            self.recorder.delivery(report.device, report.delivery)
            if len(self.observer.started) > before:
                spec = self.specs[report.device]
                self.recorder.devices([device_row(spec, pid=self.observer.started[report.device])])
        for device, error in self.observer.failed.items():
            if self.error is None:
                self._fail(f"The worker of {device_name(self.specs[device])} failed: {error}")

    def tick(self) -> None:
        """Decide, apply, record; move the run's own state on."""
        now = self._clock()
        checkpoints_complete = self.observer.complete_checkpoints(now)
        if self._closing_since is not None:
            self._finish_closing(now, checkpoints_complete)
            return
        self._advance(now)
        if self.state in ("running", "pausing", "paused", "stopping") and not self.closing:
            self._decide(now)
            if checkpoints_complete and self._nothing_left():
                self._close(now)
        self._watch(now)
        self._record(now)

    def _advance(self, now: float) -> None:
        observer = self.observer
        if self.state == "starting" and len(observer.started) == len(self.specs):
            self._enter("warming_up")
        if self.state == "warming_up" and len(observer.ready) == len(self.specs) and self.book.published is not None:
            self.recorder.run(training_at=now, progress=None, progress_fraction=None)
            self.book.step.began_at = now
            self._enter("running")
        if self.book.stopping and self.state not in ("starting", "warming_up", "stopping"):
            self._enter("stopping")
        if self.state in ("running", "pausing", "paused"):
            wanted = "running" if not self.book.paused else "paused" if self.quiet else "pausing"
            if wanted != self.state:
                self._enter(wanted)
        if self.book.stopping and self.state in ("starting", "warming_up"):
            self._close(now)
        for number, group_ids in self.observer.steps_done:
            self._open_version()
            self.step_made(number, group_ids)
            broken = overdue(version=self.book.step.version, taken=(), unconsumed=self.book.unconsumed)
            if broken:
                self._fail(f"The staleness count is broken: {'; '.join(broken)}")
        self.observer.steps_done.clear()
        if self.book.steps_left == 0 and not self._last_noted and not self.book.stopping:
            self._note_work()

    def _enter(self, state: str) -> None:
        self.state = state
        self.recorder.run(state=state)

    def _decide(self, now: float) -> None:
        for _ in range(MAX_ROUNDS):
            actions = decide(self.book.state(), now)
            if not actions:
                break
            for action in actions:
                self.applier.apply(action)
        else:
            logger.warning("Run %s decided %d rounds in one tick without settling.", self.run_id, MAX_ROUNDS)
        causes = idle_causes(self.book.state())
        for spec in self.specs:
            self.recorder.idle_cause(spec.device, now, causes.get(spec.device))

    @property
    def closing(self) -> bool:
        """Workers were asked for their last spans."""
        return self._closing_since is not None

    @property
    def quiet(self) -> bool:
        """Nothing is being generated or computed."""
        return self.book.in_flight == 0 and all(trainer.busy is None for trainer in self.book.train.values())

    def _open_version(self) -> None:
        """A version was reached."""
        self._noted = set()
        self._note_work()

    def _note_work(self) -> None:
        """Note the evaluations and the checkpoint that belong to the version, each once."""
        job, book = self.job, self.book
        version, last = book.step.version, book.steps_left == 0
        first = version == book.start.version
        self._last_noted = last
        if last and version < job.algorithm.steps:
            text = f"The items end after step {version}: too few are left to fill another step."
            self.recorder.log(self._clock(), text, level="warning")
        due = due_work(
            version,
            first=first,
            last=last,
            eval_every=job.eval.every_steps if job.eval.items else None,
            control=bool(job.eval.control_prefix),
            checkpoint_every=job.checkpoint.every_steps,
        )
        new = due - self._noted
        self._noted |= new
        names = [name for name in EVAL_NAMES if name in new]
        book.step.evals_waiting += [(name, device) for name in names for device in book.train]
        book.step.checkpoint_due = book.step.checkpoint_due or CHECKPOINT in new

    # -- ends ---------------------------------------------------------------------------------------------------------

    def request_stop(self) -> None:
        """Stop at the next safe point: the running chunk ends, then the checkpoint."""
        book = self.book
        if book.stopping:
            return
        book.stopping = True
        for device, replica in book.rollout.items():
            if replica.in_flight:
                self.applier.send(device, msg.AbortGroups())
        book.step.evals_waiting.clear()

    def _nothing_left(self) -> bool:
        book = self.book
        if book.step.checkpoint_due or book.step.checkpoint_running or not self.quiet:
            return False
        if book.stopping:
            return self._stop_sent or self._give_up_step()
        return book.steps_left == 0 and not book.step.evals_waiting and not book.step.evals_running

    def _give_up_step(self) -> bool:
        """The chunks of the unfinished step have ended: forget their gradient, then keep what was learnt before."""
        self._stop_sent = True
        for device in self.book.train:
            self.applier.send(device, msg.DiscardStep())
        self.book.discard_step()
        version = self.book.step.version
        saved = [number for number, _ in checkpoints.checkpoints(self._checkpoints_dir)]
        self.book.step.checkpoint_due = version not in saved and version > self.book.start.version
        return not self.book.step.checkpoint_due

    def _close(self, now: float) -> None:
        """Ask the workers for their last spans."""
        self._closing_since = now
        for spec in self.specs:
            self.applier.send(spec.device, msg.Shutdown())
            if self.state in ("running", "pausing", "paused", "stopping"):
                self.recorder.idle_cause(spec.device, now, "draining" if self.book.stopping else "no_work")
        self._record(now)

    def _finish_closing(self, now: float, checkpoints_complete: bool) -> None:
        missing = [spec.device for spec in self.specs if spec.device not in self.observer.closed | self._lost]
        if (missing or not checkpoints_complete) and now - (self._closing_since or now) < CLOSE_DEADLINE_S:
            return
        if missing and self.error is None and not self.book.stopping:
            names = ", ".join(device_name(self.specs[device]) for device in missing)
            self.error = f"{names} did not close within {CLOSE_DEADLINE_S:.0f} s; the ledger is incomplete."
        self._workers.end(self.run_id)
        self.state = "failed" if self.error else "stopped" if self.book.stopping else "finished"
        self.over = True

    def _fail(self, error: str) -> None:
        """End the run: what still lives closes its ledger, nothing new is handed out."""
        now = self._clock()
        self.error = error
        self.recorder.log(now, error, level="error")
        for spec in self.specs:
            self.recorder.idle_cause(spec.device, now, "failure")
        if self._closing_since is None:
            self._closing_since = now
            for spec in self.specs:
                self.applier.send(spec.device, msg.Shutdown())

    def break_off(self, error: str, traceback: str) -> None:
        """The engine cannot go on with this run: remove the workers, keep what is recorded."""
        self.recorder.log(self._clock(), traceback, level="error")
        self._workers.end(self.run_id)
        self.error, self.state, self.over = error, "failed", True

    def abandon(self, error: str) -> None:
        """The engine itself ends, and the workers with it."""
        self.error, self.state, self.over = error, "interrupted", True

    def _lose(self, report: Report, now: float) -> None:
        if report.device in self.observer.closed:
            return
        self._lost.add(report.device)
        if self.error is None:
            self._fail(f"The worker of {device_name(self.specs[report.device])} is gone: {report.lost}")

    def _watch(self, now: float) -> None:
        if self.error is not None or self.closing:
            return
        complaint = self._watchdog.look(self.state, self.book, self.observer, now)
        if complaint is not None:
            self._fail(complaint)

    # -- record -------------------------------------------------------------------------------------------------------

    def _record(self, now: float) -> None:
        """Write what changed in the run's own row."""
        progress = self.observer.progress if self.state == "warming_up" else None
        columns: dict[str, object] = {
            "steps": self.book.step.version - self.book.start.version,
            "buffer_groups": self.book.buffered,
            "in_flight_groups": self.book.in_flight,
            "measured_until": self.observer.last_step_at,
            "excluded": dict(self.observer.excluded),
            "params_sha256": self.observer.params_sha256,
            "progress": progress[0] if progress else None,
            "progress_fraction": progress[1] if progress else None,
        }
        changed = {name: value for name, value in columns.items() if self._recorded.get(name) != value}
        if changed:
            self._recorded |= changed
            self.recorder.run(**changed)
