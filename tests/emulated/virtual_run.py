"""A whole run of the engine over emulated nodes on a virtual clock: the live loop, without Ray, threads or waiting."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path

from engine.config import Job
from engine.devices import Report
from engine.launching import with_partition
from engine.run.book import StartPoint
from engine.run.idle_log import IdleLog
from engine.run.run import Run
from engine.worker import messages as msg
from planner.throughput import throughput
from storage.records import StepRow
from tests.emulated.virtual_workers import VirtualWorkers
from tests.engine.recording import RecordingRecorder

MAILBOX_S = 0.25
"""The service's longest wait."""


@dataclass
class CausesRecorder(RecordingRecorder):
    """Keeps why devices were idle too, as the real recorder stores it."""

    idle: dict[int, list[tuple[float, float, str]]] = field(default_factory=lambda: defaultdict(list))
    """Device -> its idle time as (begin, end, cause), unix seconds."""
    _logs: dict[int, IdleLog] = field(default_factory=lambda: defaultdict(IdleLog))

    def idle_cause(self, device: int, now: float, cause: str | None) -> None:
        super().idle_cause(device, now, cause)
        self._logs[device].note(now, cause)

    def delivery(self, device: int, delivery: msg.Delivery) -> None:
        for span in delivery.spans:
            if span.kind == "idle":
                self.idle[device] += self._logs[device].cut(span.t0, span.t1)


class VirtualRun:
    """One emulated run; `play` until it is over."""

    def __init__(self, job: Job, folder: Path, *, workers: VirtualWorkers | None = None) -> None:
        self.job = with_partition(job)
        self.workers = workers or VirtualWorkers()
        self.recorder = CausesRecorder()
        self.run = Run(
            run_id="run",
            job=self.job,
            start=StartPoint(),
            resume_from=None,
            cores=[],
            base_dir=folder,
            cache_dir=folder,
            checkpoints_dir=folder,
            workers=self.workers,
            recorder=self.recorder,  # type: ignore[arg-type]
            clock=lambda: self.workers.clock.now,
            clock_offset_s=0.0,
        )
        self.ticks = 0
        self.spans: dict[int, list[tuple[float, float, str]]] = defaultdict(list)
        """Device -> its closed spans as (begin, end, kind), unix seconds."""

    def play(self) -> VirtualRun:
        """Run the loop as the service does, to its end."""
        self.run.begin()
        while not self.run.over:
            due = self.run.next_due - self.workers.clock.now
            reports = self.workers.wait(max(0.0, min(MAILBOX_S, due)))
            self._note(reports)
            self.run.observe(reports)
            self.run.tick()
            self.ticks += 1
            assert not (self.workers.empty and not reports and not self.run.over), self.run.state
        return self

    def _note(self, reports: list[Report]) -> None:
        for report in reports:
            if report.delivery is not None:
                self.spans[report.device] += [(s.t0, s.t1, s.kind) for s in report.delivery.spans]

    # -- what it came to, in the seconds that the devices stand for ---------------------------------------------------

    @property
    def rows(self) -> list[StepRow]:
        """The steps that were made."""
        return [row for _, row in self.recorder.steps]

    @property
    def throughput(self) -> float | None:
        """Tokens per modelled second."""
        scale = self.job.devices.time_scale
        timed = [(row.prompt_tokens + row.response_tokens, (row.t_end - row.t_start) / scale) for row in self.rows]
        return throughput(timed, self.job.schedule.staleness_resolved)

    @property
    def shares(self) -> dict[str, float]:
        """Kind of span -> share of the devices' time until the last step."""
        return self._shares(self.spans)

    @property
    def idle(self) -> dict[str, float]:
        """Cause -> share of the devices' time until the last step."""
        return self._shares(self.recorder.idle)

    def _shares(self, by_device: dict[int, list[tuple[float, float, str]]]) -> dict[str, float]:
        begin, end = self.rows[0].t_start, self.rows[-1].t_end
        sums: dict[str, float] = defaultdict(float)
        for spans in by_device.values():
            for t0, t1, kind in spans:
                sums[kind] += max(0.0, min(t1, end) - max(t0, begin))
        total = (end - begin) * self.job.device_count
        return {kind: seconds / total for kind, seconds in sums.items()}
