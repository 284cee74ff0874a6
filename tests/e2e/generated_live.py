"""A fake engine: goes on writing a GENERATED run through the real writer, at the rate of its recipe.

    python -m tests.e2e.generated_live DATA_DIR RECIPE.json SECONDS REPORT.json

One process of its own, as engines are. The report says what was handed in and how the writer kept up.
"""

from __future__ import annotations

import json
import signal
import sys
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from storage.paths import DataDir
from storage.records import DeviceState, Span
from storage.writer import TelemetryWriter
from tests.e2e.generated import ENGINE, Recipe, group_rows, step_row

TICK_S = 0.1
"""Between two reports of spans; engines report about as often."""

STATES_EVERY_S = 0.5
"""Between two reports of open spans and of the heartbeat."""


@dataclass(kw_only=True)
class Report:
    """How the writer kept up."""

    spans: int = 0
    """Raw spans handed in."""
    seconds: float = 0.0
    """That it took."""
    rows_written: int = 0
    """Rows committed, those of rollups included."""
    spans_dropped: int = 0
    """Raw spans that the full queue refused."""
    most_waiting: int = 0
    """Longest queue that was seen, rows."""
    lags_s: list[float] = field(default_factory=list)
    """Age of the oldest waiting row, twice a second."""
    depths: list[int] = field(default_factory=list)
    """Rows waiting, twice a second."""
    thread_cpu_s: float = 0.0
    """CPU seconds of the writer's thread."""
    left_at: float = 0.0
    """Where the run was left, unix seconds."""
    failure: str = ""
    """What the writer failed of, a lock that it did not get among it."""


class FakeEngine:
    """Reports each device's spans as they end. `now`: where the recipe was left."""

    def __init__(self, writer: TelemetryWriter, recipe: Recipe, now: float) -> None:
        self.writer, self.recipe, self.now = writer, recipe, now
        edges = [recipe.edges(device, now) for device in range(recipe.devices)]
        self.number = [len(e) - 1 for e in edges]
        self.since = np.array([e[-1] for e in edges])
        self.until = np.array([self._end(d) for d in range(recipe.devices)])
        self.step = recipe.step_at(now)

    def advance(self, now: float) -> int:
        """Report everything that ended by `now`; returns the spans."""
        spans: list[Span] = []
        while len(over := np.flatnonzero(self.until <= now)):
            for device in over.tolist():
                spans.append(self._span(device))
                self.number[device] += 1
                self.since[device] = self.until[device]
                self.until[device] = self._end(device)
        self.now = now
        with self.writer.together():
            if spans:
                self.writer.spans(spans)
                self.writer.device_states(self.recipe.run_id, self.states({span.device for span in spans}))
        while self.step < self.recipe.step_at(now):
            self.writer.step(step_row(self.recipe, self.step))
            self.writer.groups(list(group_rows(self.recipe, [self.step])))
            self.writer.run(self.recipe.run_id, steps=self.step, buffer_groups=20 + self.step % 20)
            self.step += 1
        return len(spans)

    def beat(self, report: Report) -> None:
        """The heartbeat, every device's open span, and how the writer keeps up."""
        stats = self.writer.stats
        report.lags_s.append(stats.flush_lag_s)
        report.depths.append(stats.queue_depth)
        report.most_waiting = max(report.most_waiting, stats.queue_depth)
        self.writer.device_states(self.recipe.run_id, self.states(range(self.recipe.devices)))
        self.writer.engine(
            ENGINE,
            beat_at=self.now,
            spans_dropped=stats.spans_dropped,
            queue_depth=stats.queue_depth,
            flush_lag_s=stats.flush_lag_s,
        )

    def states(self, devices: Any) -> list[DeviceState]:
        """The open spans of some devices."""
        found = []
        for device in devices:
            kind, role, cause, _ = self.recipe.piece(device, self.number[device])
            since = float(self.since[device])
            step = self.recipe.step_at(since)
            found.append(
                DeviceState(
                    device=device, kind=kind, role=role, cause=cause, version=step - 1, step=step, since=since,
                    seen_at=self.now,
                )
            )  # fmt: skip
        return found

    def _end(self, device: int) -> float:
        return float(self.since[device] + self.recipe.lengths(device, self.number[device], 1)[0])

    def _span(self, device: int) -> Span:
        kind, role, cause, _ = self.recipe.piece(device, self.number[device])
        t0, t1 = float(self.since[device]), float(self.until[device])
        step = self.recipe.step_at(t0)
        return Span(
            run_id=self.recipe.run_id, device=device, t0=t0, t1=t1, kind=kind, role=role, cause=cause,
            version=step - 1, step=step, cpu_s=None if kind == "idle" else (t1 - t0) * 0.97,
        )  # fmt: skip


def write(folder: DataDir, recipe: Recipe, left_at: float, seconds: float) -> Report:
    """Go on for so many seconds, or until SIGTERM. left_at: unix seconds where the stored part ends."""
    report, stopping = Report(), []
    signal.signal(signal.SIGTERM, lambda *_: stopping.append(True))
    writer = TelemetryWriter(folder.telemetry_db)
    begin, beat_at = time.monotonic(), 0.0
    try:
        engine = FakeEngine(writer, recipe, left_at)
        while time.monotonic() - begin < seconds and not stopping:
            report.spans += engine.advance(time.time())
            if time.monotonic() - beat_at >= STATES_EVERY_S:
                beat_at = time.monotonic()
                engine.beat(report)
            time.sleep(TICK_S)
        report.left_at = engine.now
        writer.close(60)
    except Exception as error:  # the report says it, and whoever reads that fails
        report.failure = f"{type(error).__name__}: {error}"
    stats = writer.stats
    report.seconds = time.monotonic() - begin
    report.rows_written, report.spans_dropped = stats.rows_written, stats.spans_dropped
    report.thread_cpu_s = stats.thread_cpu_s
    return report


def main(data_dir: str, recipe_file: str, seconds: str, report_file: str) -> None:
    told = json.loads(Path(recipe_file).read_text(encoding="utf-8"))
    left_at = told.pop("left_at")
    report = write(DataDir(Path(data_dir)), Recipe(**told), left_at, float(seconds))
    Path(report_file).write_text(json.dumps(asdict(report)), encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
