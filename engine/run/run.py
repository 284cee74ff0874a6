"""One run, from its devices to its result: a state machine whose body is four verbs.

    observe   workers' deliveries -> books, leases, profile, telemetry   (observer.py)
    decide    books -> State -> planner.policy.decide -> actions         (steering.py, picture.py)
    apply     actions -> books, commands to workers                      (applier.py)
    record    decisions, idle causes, run row                            (decisions.py, recorder.py)

    starting -> warming_up -> running <-> pausing -> paused
    any of them -> stopping -> closing ledgers -> finished | stopped | failed

Healthy end: the last step is made, its evaluations and checkpoint are done, workers close their ledgers, the result is
written. Stop: leases end, groups in flight come back, the running chunk ends, the unfinished step is given up, a
checkpoint is written, then as above. A worker that dies is replaced (recovery.py); one that fails ends the run as
failed, and what was learnt until the last checkpoint is kept. Every wait has a deadline, and what it says names who was
waited for.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path

from engine import checkpoints
from engine.config import Job, ProfileConfig
from engine.devices import Report, Workers
from engine.run.book import StartPoint
from engine.run.parts import assemble
from engine.run.recorder import Recorder
from engine.run.specs import device_name, device_row
from engine.run.watchdog import Watchdog
from engine.worker import messages as msg
from planner.policy.staleness import overdue

CLOSE_DEADLINE_S = 60.0
"""Longest wait for the workers' last spans."""

PROFILE_S = 10.0
"""How often the measured profile is written while a run goes on."""


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
        calibration: ProfileConfig | None = None,
        roots: tuple[Path, ...] = (),
    ) -> None:
        """`roots`: folders that the job may read; `calibration`: what was measured of such a job before, from which the
        run starts and measures anew."""
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
        self._recorded: dict[str, object] = {}
        self._profile_due = 0.0
        parts = assemble(
            run_id=run_id,
            job=job,
            start=start,
            resume_from=resume_from,
            cores=self.cores,
            base_dir=base_dir,
            cache_dir=cache_dir,
            checkpoints_dir=checkpoints_dir,
            workers=workers,
            recorder=recorder,
            clock=clock,
            clock_offset_s=clock_offset_s,
            calibration=calibration,
            roots=roots,
        )
        self.specs, self.book, self.lending, self.applier = parts.specs, parts.book, parts.lending, parts.applier
        self.homes = parts.homes
        self.observer, self.recovery = parts.observer, parts.recovery
        self._profiling, self._steering, self._version_work = parts.profiling, parts.steering, parts.version_work
        self._watchdog = Watchdog(self.homes, now=clock())
        self._gone: set[int] = set()
        self._version_work.open()

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
            known = report.device in self.observer.started
            self.observer.delivery(report.device, report.delivery, now)
            if not known and report.device in self.observer.started:
                self._lives(report.device, report.delivery.events)
            self.recorder.delivery(report.device, report.delivery)
        for device, error in self.observer.failed.items():
            if self.error is None:
                self._fail(f"The worker of {device_name(self.specs[device])} failed: {error}")

    def _lives(self, device: int, events: Sequence[msg.Event]) -> None:
        """A worker's process runs: its row, and what was between it and the one before it."""
        spec = self.specs[device]
        self.recorder.devices([device_row(spec, pid=self.observer.started[device])])
        began_at = next(event.at for event in events if isinstance(event, msg.Started))
        self.recorder.gap(device, began_at)

    @property
    def next_due(self) -> float:
        """When to tick though no worker says anything, unix seconds; infinite: not at all."""
        return self._steering.next_due(self._clock()) if self.state == "running" else math.inf

    def tick(self) -> None:
        """Decide, apply, record; move the run's own state on."""
        now = self._clock()
        checkpoints_complete = self.observer.complete_checkpoints(now)
        if self._closing_since is not None:
            self._finish_closing(now, checkpoints_complete)
            return
        self._advance(now)
        self.recovery.look(now)
        if self.state in ("running", "pausing", "paused", "stopping") and not self.closing:
            self._steering.settle(now, dead=self.recovery.dead)
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
            self._note_memory(now)
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
            self._version_work.open()
            self._steering.measured()
            self.step_made(number, group_ids)
            broken = overdue(version=self.book.step.version, taken=(), unconsumed=self.book.groups.unconsumed)
            if broken:
                self._fail(f"The staleness count is broken: {'; '.join(broken)}")
        self.observer.steps_done.clear()
        if self.book.steps_left == 0 and not self._version_work.last_noted and not self.book.stopping:
            self._version_work.note()

    def _enter(self, state: str) -> None:
        self.state = state
        self.recorder.run(state=state)

    def _note_memory(self, now: float) -> None:
        """Say what the roles keep in memory, passive ones included."""
        for spec in self.specs:
            kept = self.observer.memory.get(spec.device, {})
            if not kept:
                continue  # an emulated device
            parts = ", ".join(f"{role} {size / 2**20:.1f} MiB" for role, size in kept.items())
            self.recorder.log(now, f"{device_name(spec)} keeps in memory: {parts}.", device=spec.device)

    @property
    def closing(self) -> bool:
        """Workers were asked for their last spans."""
        return self._closing_since is not None

    @property
    def quiet(self) -> bool:
        """Nothing is being generated or computed, and no device is lent or on its way to another pool."""
        return self._still and not self.lending.out and not self.homes.under_way

    @property
    def _still(self) -> bool:
        idle = all(trainer.busy is None for trainer in self.book.train.values())
        return self.book.groups.flying == 0 and idle

    # -- ends ---------------------------------------------------------------------------------------------------------

    def request_stop(self) -> None:
        """Stop at the next safe point: the running chunk ends, then the checkpoint."""
        book = self.book
        if book.stopping:
            return
        book.stopping = True
        for device, groups in book.groups.in_flight.items():
            if groups and self.lending.lease_on(device) is None:
                self.applier.send(device, msg.AbortGroups())
        book.step.evals_waiting.clear()

    def _nothing_left(self) -> bool:
        book = self.book
        if book.step.checkpoint_due or book.step.checkpoint_running or not self._still:
            return False
        if book.stopping:
            return self.quiet and (self._stop_sent or self._give_up_step())
        # an auxiliary that has nothing to do any more need not come home first: its lease ends with the run
        return book.steps_left == 0 and not book.step.evals_waiting and not book.step.evals_running

    def _give_up_step(self) -> bool:
        """The chunks of the unfinished step have ended: forget their gradient, then keep what was learnt before."""
        self._stop_sent = True
        for device in (*self.book.train, *self.book.joining):
            self.applier.send(device, msg.DiscardStep())
        self.book.discard_step()
        version = self.book.step.version
        saved = [number for number, _ in checkpoints.checkpoints(self._checkpoints_dir)]
        kept = self.job.emulated or version in saved
        self.book.step.checkpoint_due = not kept and version > self.book.start.version
        return not self.book.step.checkpoint_due

    def _close(self, now: float) -> None:
        """Ask the workers for their last spans."""
        self._closing_since = now
        self.lending.close(now)
        for spec in self.specs:
            self.applier.send(spec.device, msg.Shutdown())
            if self.state in ("running", "pausing", "paused", "stopping"):
                self.recorder.idle_cause(spec.device, now, "draining" if self.book.stopping else "no_work")
        self._record(now)

    def _finish_closing(self, now: float, checkpoints_complete: bool) -> None:
        missing = [spec.device for spec in self.specs if spec.device not in self.observer.closed | self._gone]
        if (missing or not checkpoints_complete) and now - (self._closing_since or now) < CLOSE_DEADLINE_S:
            return
        if missing and self.error is None and not self.book.stopping:
            names = ", ".join(device_name(self.specs[device]) for device in missing)
            self.error = f"{names} did not close within {CLOSE_DEADLINE_S:.0f} s; the ledger is incomplete."
        left_nothing = self.observer.exclusions.left_nothing if self.book.step.version == 0 else None
        if self.error is None and not self.book.stopping and left_nothing is not None:
            self.error = left_nothing
            self.recorder.log(now, left_nothing, level="error")
        self._workers.end(self.run_id)
        self.recorder.run(**self._profiling.columns())
        if self._profiling.problem:
            self.recorder.log(now, self._profiling.problem, level="warning")
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
            self.lending.close(now)
            for spec in self.specs:
                self.applier.send(spec.device, msg.Shutdown())

    def _end_leases(self) -> None:
        """However the run ends, its leases end with it."""
        if not self.lending.over:
            self.lending.close(self._clock())

    def break_off(self, error: str, traceback: str) -> None:
        """The engine cannot go on with this run: remove the workers, keep what is recorded."""
        self.recorder.log(self._clock(), traceback, level="error")
        self._end_leases()
        self._workers.end(self.run_id)
        self.error, self.state, self.over = error, "failed", True

    def abandon(self, error: str) -> None:
        """The engine itself ends, and the workers with it."""
        self._end_leases()
        self.error, self.state, self.over = error, "interrupted", True

    def _lose(self, report: Report, now: float) -> None:
        device = report.device
        if device in self.observer.closed:
            return
        if self.closing or self.state in ("starting", "warming_up"):
            self._gone.add(device)
            if self.error is None:
                self._fail(f"The worker of {device_name(self.specs[device])} is gone: {report.lost}")
            return
        refusal = self.recovery.lose(device, report.lost or "nobody knows why", now)
        if refusal is not None:
            self._gone.add(device)
            self._fail(refusal)

    def _watch(self, now: float) -> None:
        if self.error is not None or self.closing:
            return
        complaint = self.observer.exclusions.complaint
        if complaint is None:
            complaint = self._watchdog.look(self.state, self.book, self.observer, self.lending, self.recovery.dead, now)
        if complaint is not None:
            self._fail(complaint)

    # -- record -------------------------------------------------------------------------------------------------------

    def _record(self, now: float) -> None:
        """Write what changed in the run's own row."""
        progress = self.observer.progress if self.state == "warming_up" else None
        columns: dict[str, object] = {
            "steps": self.book.step.version - self.book.start.version,
            "buffer_groups": self.book.groups.buffered,
            "in_flight_groups": self.book.groups.flying,
            "measured_until": self.observer.last_step_at,
            "excluded": dict(self.observer.exclusions.counts),
            "params_sha256": self.observer.params_sha256,
            "progress": progress[0] if progress else None,
            "progress_fraction": progress[1] if progress else None,
            "guards": self.lending.held_off(now),
        }
        if now >= self._profile_due and self.state == "running":
            self._profile_due = now + PROFILE_S
            columns |= self._profiling.columns()
        changed = {name: value for name, value in columns.items() if self._recorded.get(name) != value}
        if changed:
            self._recorded |= changed
            self.recorder.run(**changed)
