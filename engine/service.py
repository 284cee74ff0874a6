"""The service: one engine per data folder, from the mailbox to running jobs.

    mailbox --launch--> queue --devices free--> Run --over--> result
            --command-> Run
    every pass: wait for workers (at most a quarter of a second) -> observe -> tick -> mailbox -> heartbeat

Healthy end: SIGTERM or SIGINT; active runs are marked interrupted (they resume from their last checkpoint), queued ones
stay queued for the next engine. A crash leaves the same picture: the next engine finds runs of a life that is over.
"""

from __future__ import annotations

import logging
import math
import os
import shutil
import socket
import threading
import time
import uuid
from collections.abc import Callable
from importlib.metadata import version as package_version
from pathlib import Path
from traceback import format_exc
from typing import Any

from engine import allowed_paths, checkpoints, launching, ledger_check, results
from engine.config import Job, ProfileConfig, calibrations, check_runnable, parse_job
from engine.config.job import usable_cores
from engine.config.model import unreplaced
from engine.cpu_time import CpuAccount, CpuSample
from engine.devices import Report, Workers
from engine.importing import Imports
from engine.lock import lock
from engine.models import memory
from engine.models.check import check_model
from engine.models.trials import Trials, Undecided
from engine.run.book import StartPoint
from engine.run.commands import RunCommands
from engine.run.live_lease import cut_off
from engine.run.parts import SNAPSHOTS
from engine.run.recorder import Recorder
from engine.run.run import Run
from engine.waiting import Waiting
from planner import work
from storage.mailbox import Mailbox
from storage.paths import DataDir
from storage.reader import TelemetryReader
from storage.records import Command, RunRow
from storage.words import TERMINAL
from storage.writer import TelemetryWriter

logger = logging.getLogger(__name__)

MAILBOX_S = 0.25
"""How often the mailbox is read: a command is seen within that time."""

BEAT_S = 1.0
"""How often the heartbeat is written; pages call the engine silent after ten missed ones."""

WORKERS_END_S = 3.0
"""Longest wait for the transport to end: whoever stopped us may kill after five seconds, and daemons end with us."""

FLUSH_S = 60.0
"""Longest wait for the telemetry of a run that ended to be on disk."""


class Service:
    """One engine life; `serve` until told to stop."""

    def __init__(
        self, data: DataDir, *, make_workers: Callable[[int], Workers], stop: threading.Event, with_parent: bool = False
    ) -> None:
        """`stop` ends `serve` after the present pass; `with_parent`: so does the end of the parent process."""
        self._lock = lock(data)
        self._data = data
        self._clock_offset_s = time.time() - time.monotonic()
        self._make_workers = make_workers
        self._workers: Workers
        self._stop = stop
        self._parent = os.getppid() if with_parent else None
        self._runs: dict[str, tuple[Run, RunCommands]] = {}
        self._queue = Waiting()
        self._cpu_at: dict[str, CpuSample] = {}
        self._longest_pass_s: dict[str, float] = {}
        self._cores = usable_cores()
        self._cpu = CpuAccount()
        self.engine_id = uuid.uuid4().hex[:12]
        self._writer = TelemetryWriter(data.telemetry_db)
        self._mailbox = Mailbox(data.control_db)
        self._trials = Trials(data.cache)
        self._imports = Imports(data, writer=self._writer, mailbox=self._mailbox)
        self._next_mailbox = 0.0
        self._next_beat = 0.0

    def now(self) -> float:
        """Unix seconds on the time line shared with the workers of this machine."""
        return time.monotonic() + self._clock_offset_s

    def serve(self) -> None:
        """Work until told to stop."""
        self._writer.engine(
            self.engine_id,
            pid=os.getpid(),
            host=socket.gethostname(),
            started_at=self.now(),
            beat_at=self.now(),
            state="starting",
            version=package_version("bidirl"),
            cores=len(self._cores),
        )
        self._take_over()
        self._workers = self._make_workers(len(self._cores))
        logger.info("Engine %s serves %s on %d cores.", self.engine_id, self._data.root, len(self._cores))
        try:
            self._beat("ready")
            while not self._stop.is_set():
                self._pass()
        finally:
            self._shut_down()

    def _pass(self) -> None:
        due = min((run.next_due for run, _ in self._runs.values()), default=math.inf)
        reports = self._workers.wait(max(0.0, min(MAILBOX_S, due - self.now())))
        by_run: dict[str, list[Report]] = {}
        for report in reports:
            by_run.setdefault(report.run_id, []).append(report)
        began_at = time.monotonic()
        for run_id, (run, commands) in list(self._runs.items()):
            try:
                run.observe(by_run.get(run_id, []))
                run.tick()
                commands.settle()
            except Exception as error:  # a fault of ours ends its run, not the other runs and not the service
                logger.exception("Run %s met a fault of the engine.", run_id)
                run.break_off(f"The engine met a fault of its own: {type(error).__name__}: {error}", format_exc())
            if run.state == "running" and run_id not in self._cpu_at:
                self._cpu_at[run_id] = self._sample_cpu(fresh=True)
            if run.over:
                self._end(run, commands)
        self._note_pass(time.monotonic() - began_at)
        now = self.now()
        if now >= self._next_mailbox:
            self._next_mailbox = now + MAILBOX_S
            for command in self._mailbox.pending():
                self._receive(command)
            for command in self._trials.ended():
                self._launch(command, accepted=True)
            self._imports.settle()
            self._start_queued()
        if now >= self._next_beat:
            self._beat("ready")
            if self._parent is not None and os.getppid() != self._parent:
                logger.info("The process that started this engine is gone; the engine ends too.")
                self._stop.set()

    def _note_pass(self, seconds: float) -> None:
        """Reports that came while this pass went on waited for so long."""
        for run_id, (run, _) in self._runs.items():
            if run.state == "running":
                self._longest_pass_s[run_id] = max(self._longest_pass_s.get(run_id, 0.0), seconds)

    def _sample_cpu(self, *, fresh: bool = False) -> CpuSample:
        return self._cpu.sample(writer_s=self._writer.stats.thread_cpu_s, calls_s=self._workers.cpu_s, fresh=fresh)

    def _beat(self, state: str) -> None:
        now = self.now()
        self._next_beat = now + BEAT_S
        stats = self._writer.stats
        cpu = self._sample_cpu()
        self._writer.engine(
            self.engine_id,
            beat_at=now,
            state=state,
            cpu_s=cpu.own_s,
            ray_cpu_s=cpu.ray_s,
            spans_dropped=stats.spans_dropped,
            rows_written=stats.rows_written,
            queue_depth=stats.queue_depth,
            flush_lag_s=stats.flush_lag_s,
        )

    # -- launching ----------------------------------------------------------------------------------------------------

    def _take_over(self) -> None:
        """Runs of an engine life that is over: the active ones were interrupted, the queued ones are ours now."""
        self._writer.flush(FLUSH_S)
        with TelemetryReader(self._data.telemetry_db) as reader:
            beats = {life.engine_id: life.beat_at for life in reader.engines()}
            for run in reversed(reader.runs(limit=100_000)):
                if run.state == "queued":
                    self._writer.run(run.run_id, engine_id=self.engine_id)
                    self._enqueue(run)
                elif run.state not in TERMINAL:
                    # it ended with the last sign of life of its engine, not now
                    ended_at = beats.get(run.engine_id or "") or self.now()
                    self._writer.run(
                        run.run_id, state="interrupted", ended_at=ended_at, error="The engine that ran it ended."
                    )
                    self._writer.leases([cut_off(lease, ended_at) for lease in reader.leases_open(run.run_id)])
        for command in self._mailbox.list(state="accepted", limit=100_000):
            self._mailbox.reject(command.id, "The engine ended before this took effect.")
        self._imports.clear_leftovers()
        self._writer.flush(FLUSH_S)

    def _receive(self, command: Command) -> None:
        if command.kind == "launch":
            self._launch(command)
        elif command.kind == "import":
            self._imports.receive(command)
        elif command.kind == "delete":
            self._delete(command)
        elif command.run_id in self._runs:
            self._runs[command.run_id][1].receive(command)
        elif command.kind == "stop" and (run := self._stored(command.run_id)) and run.state == "queued":
            self._mailbox.accept(command.id)
            self._queue.remove(run.run_id)
            self._writer.run(run.run_id, state="stopped", ended_at=self.now())
            self._writer.flush(FLUSH_S)
            self._mailbox.apply(command.id, "Taken out of the queue.")
        else:
            known = self._stored(command.run_id)
            state = f"is {known.state}" if known else "is not known"
            self._mailbox.reject(command.id, f"run {command.run_id!r} {state}; only a running one takes commands")

    def _stored(self, run_id: str | None) -> RunRow | None:
        self._writer.flush(FLUSH_S)
        with TelemetryReader(self._data.telemetry_db) as reader:
            return reader.run(run_id) if run_id else None

    def _launch(self, command: Command, *, accepted: bool = False) -> None:
        """Queue it, reject it, or have its model folder tried first; `accepted`: that was done, it is answered now."""
        try:
            # behind other runs it gets the memory that they have now
            room = memory.total_bytes if self._runs else memory.available_bytes
            launch = launching.prepare(
                command.payload,
                data=self._data,
                cores=len(self._cores),
                find=self._stored,
                available=room,
                verdict=self._trials.verdict,
            )
        except Undecided as undecided:
            if not accepted:
                self._mailbox.accept(command.id, "Its model folder is tried first; that takes some seconds.")
            self._trials.add(command, undecided.question)
            return
        except ValueError as error:
            self._mailbox.reject(command.id, str(error))
            return
        if not accepted:
            self._mailbox.accept(command.id)
        run_id = launching.new_run_id(launch.job, self.now())
        self._writer.run(
            run_id, engine_id=self.engine_id, created_at=self.now(), who=command.who, **launching.columns(launch)
        )
        self._writer.flush(FLUSH_S)
        self._queue.add(run_id, launch.job)
        self._mailbox.apply(command.id, f"Queued as {run_id}.", result={"run_id": run_id})

    def _start_queued(self) -> None:
        """Start the queued runs whose devices are free."""
        busy = {core for run, _ in self._runs.values() for core in run.cores}
        free = [core for core in self._cores if core not in busy]
        emulated = sum(run.job.device_count for run, _ in self._runs.values() if run.job.emulated)
        for run_id, job, need in self._queue.ready(cores=len(self._cores), free=len(free), emulated=emulated):
            stored = self._stored(run_id)
            assert stored is not None, f"run {run_id} vanished from the database"
            self._start(stored, job, free[:need])
            free = free[need:]

    def _enqueue(self, stored: RunRow) -> None:
        """Behind the others; one that cannot run here (queued by another version, or on a larger machine) fails."""
        try:
            job = parse_job(stored.job, source=stored.run_id)
            check_runnable(job, source=stored.run_id)
            job.check_machine(len(self._cores))
        except ValueError as error:
            self._writer.run(stored.run_id, state="failed", error=str(error), ended_at=self.now())
            return
        self._queue.add(stored.run_id, job)

    def _start(self, stored: RunRow, job: Job, cores: list[int]) -> None:
        start, folder = StartPoint(), None
        try:
            if stored.parent_run_id is not None:
                found = checkpoints.resumable(self._data.checkpoints(stored.parent_run_id))
                if found is None:
                    raise ValueError(f"run {stored.parent_run_id!r} has no checkpoint any more")
                folder, start = found
            base_dir = Path(stored.base_dir or self._data.root)
            roots = allowed_paths.roots(base_dir=base_dir, data_root=self._data.root)
            check_model(job, roots=roots, available=memory.total_bytes)
        except ValueError as error:
            self._writer.run(stored.run_id, state="failed", error=str(error), ended_at=self.now())
            return
        recorder = Recorder(self._writer, stored.run_id)
        for sentence in [] if job.emulated else unreplaced(job.model, job.task):
            recorder.log(self.now(), sentence, level="warning")
        run = Run(
            run_id=stored.run_id,
            job=job,
            start=start,
            resume_from=folder,
            cores=cores,
            base_dir=base_dir,
            cache_dir=self._data.cache,
            checkpoints_dir=self._data.checkpoints(stored.run_id),
            workers=self._workers,
            recorder=recorder,
            clock=self.now,
            clock_offset_s=self._clock_offset_s,
            calibration=self._calibration(job, recorder),
            roots=allowed_paths.roots(base_dir=base_dir, data_root=self._data.root),
        )
        self._runs[stored.run_id] = (run, RunCommands(run, self._mailbox))
        run.begin()
        where = f"cores {cores}" if cores else f"{job.device_count} emulated devices"
        logger.info("Run %s starts on %s.", stored.run_id, where)

    def _calibration(self, job: Job, recorder: Recorder) -> ProfileConfig | None:
        """What was measured of a job like this one; a broken file costs no run, and is told."""
        try:
            found = calibrations.find(self._data, job)
        except ValueError as error:
            recorder.log(self.now(), f"The stored calibration is left aside: {error}", level="warning")
            return None
        if found is None:
            return None
        recorder.log(self.now(), f"It starts from the {found.source}.")
        return found.profile

    # -- ends ---------------------------------------------------------------------------------------------------------

    def _end(self, run: Run, commands: RunCommands) -> None:
        ended_at = self.now()
        self._writer.flush(FLUSH_S)
        with TelemetryReader(self._data.telemetry_db) as reader:
            stored = reader.run(run.run_id)
            assert stored is not None, f"run {run.run_id} vanished from the database"
            sums = reader.kind_seconds(run.run_id, stored.started_at or 0.0, ended_at, quick=True)
            ledger = ledger_check.check(
                run.recorder.account,
                run.observer.life,
                cpu_witness=run.job.devices.kind == "cpu" and not run.job.devices.oversubscribe,
                stored_s={device: sum(columns.values()) for device, columns in sums.items()},
            )
            final: dict[str, Any] = {"state": run.state, "ended_at": ended_at, "error": run.error, "ledger": ledger}
            result = results.build(
                reader,
                stored,
                now=ended_at,
                bound_s_per_token=self._least_work(reader, stored),
                engine=self._engine_share(run.run_id),
                **final,
            )
        for problem in ledger["problems"]:
            run.recorder.log(ended_at, f"Ledger check: {problem}.", level="warning")
        run.recorder.run(**final, result=result)
        self._writer.flush(FLUSH_S)
        commands.end()
        shutil.rmtree(self._data.checkpoints(run.run_id) / SNAPSHOTS, ignore_errors=True)
        del self._runs[run.run_id]
        logger.info("Run %s is %s after %d steps.", run.run_id, run.state, result["steps"])

    @staticmethod
    def _least_work(reader: TelemetryReader, run: RunRow) -> float | None:
        """Busy device-seconds per token of the finished run of the same job that needed the least."""
        found = [other.result["work"] for other in reader.same_work(run.work_key) if other.result is not None]
        scale = run.time_scale or 1.0
        return min(filter(None, (work.device_s_per_token(work.scaled(each, scale)) for each in found)), default=None)

    def _engine_share(self, run_id: str) -> dict[str, float] | None:
        """What watching and steering took since the run began to train, as shares of all cores' time."""
        begin = self._cpu_at.pop(run_id, None)
        if begin is None:
            return None
        end = self._sample_cpu(fresh=True)
        cores_s = (end.at - begin.at) * len(self._cores)
        return {
            "cpu_fraction": (end.own_s - begin.own_s) / cores_s,
            "ray_fraction": (end.ray_s - begin.ray_s) / cores_s,
            "longest_pass_s": self._longest_pass_s.pop(run_id, 0.0),
        }

    def _delete(self, command: Command) -> None:
        stored = self._stored(command.run_id)
        if stored is None or command.run_id is None:
            self._mailbox.reject(command.id, f"run {command.run_id!r} is not known")
            return
        if command.run_id in self._runs or command.run_id in self._queue:
            self._mailbox.reject(command.id, f"run {command.run_id!r} is {stored.state}; stop it first")
            return
        self._mailbox.accept(command.id)
        launching.remove_files(self._data.checkpoints(command.run_id))
        self._writer.delete_run(command.run_id)
        self._writer.flush(FLUSH_S)
        self._mailbox.forget_marks(command.run_id)
        self._mailbox.apply(command.id, f"Run {command.run_id} is deleted, with its checkpoints, tags and note.")

    def _shut_down(self) -> None:
        """Leave true records first; the workers, who may be gone already, get what is left of the time."""
        for run, commands in self._runs.values():
            run.abandon("The engine was shut down.")
            run.recorder.run(state=run.state, error=run.error, ended_at=self.now())
            commands.end()
        self._trials.close()
        self._beat("stopped")
        self._writer.close(FLUSH_S)
        self._mailbox.close()
        ending = threading.Thread(target=self._workers.shutdown, daemon=True)
        ending.start()
        ending.join(WORKERS_END_S)
        if ending.is_alive():
            logger.warning("The workers' transport did not end within %.0f s and is left to the system.", WORKERS_END_S)
        self._lock.close()
