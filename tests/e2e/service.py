"""A real engine process on a folder of its own, and short ways to talk to it. For tests only."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from engine.config import Job, dump_job, load_job
from storage.database import StorageError
from storage.mailbox import Mailbox
from storage.paths import DataDir
from storage.reader import TelemetryReader
from storage.records import Command, RunRow
from storage.words import TERMINAL

ROOT = Path(__file__).resolve().parents[2]

SMALL = [
    "algorithm.steps=6",
    "algorithm.prompts_per_step=4",
    "algorithm.group_size=4",
    "devices.rollout_slots=16",
    "schedule.max_chunk_groups=2",
    "model.warm_start.steps=150",
    "model.warm_start.worked_only_steps=150",
    "eval.items=16",
    "eval.every_steps=3",
    "checkpoint.every_steps=2",
]
"""The demo job, cut down to seconds; its warm start is long enough that some answers are right and some are wrong."""

DEADLINE_S = 120.0
"""Longest wait for anything here; a quiet machine needs a tenth of it."""


def small_job(*settings: str) -> Job:
    return load_job(ROOT / "jobs" / "demo.yaml", [*SMALL, *settings])


def wait_for(what: str, look: Callable[[], Any], *, seconds: float = DEADLINE_S) -> Any:
    """Poll `look` until it gives something true."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        try:
            found = look()
        except StorageError:
            found = None
        if found:
            return found
        time.sleep(0.05)
    raise AssertionError(f"{what} did not happen within {seconds:.0f} s")


class EngineProcess:
    """`python -m engine` on a data folder."""

    def __init__(self, root: Path) -> None:
        self.data = DataDir(root)
        self.process: subprocess.Popen[bytes]
        self.start()

    def start(self) -> None:
        self.data.root.mkdir(parents=True, exist_ok=True)
        with (self.data.root / "engine.out").open("ab") as out:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "engine", "--data-dir", str(self.data.root)],
                cwd=ROOT,
                stdout=out,
                stderr=out,
                env=os.environ | {"BIDIRL_DATA_DIR": str(self.data.root)},
            )
        wait_for("the engine's first beat", self._is_ready)

    def _is_ready(self) -> bool:
        with self.reader() as reader:
            row = reader.engine()
            return row is not None and row.pid == self.process.pid and row.state == "ready"

    def kill(self) -> None:
        """As a crash would: no handler runs."""
        self.process.kill()
        self.process.wait(DEADLINE_S)

    def stop(self) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            self.process.wait(DEADLINE_S)

    def reader(self) -> TelemetryReader:
        return TelemetryReader(self.data.telemetry_db)

    def run(self, run_id: str) -> RunRow:
        with self.reader() as reader:
            row = reader.run(run_id)
            assert row is not None
            return row

    def send(self, kind: str, payload: dict[str, Any] | None = None, run_id: str | None = None) -> int:
        with Mailbox(self.data.control_db) as mailbox:
            return mailbox.send(kind, payload or {}, run_id=run_id, who="test")

    def command(self, command_id: int) -> Command:
        with Mailbox(self.data.control_db) as mailbox:
            return mailbox.get(command_id)

    def answer(self, command_id: int, *states: str) -> Command:
        """The command once it is in one of the states."""
        return wait_for(
            f"command {command_id} {states}",
            lambda: row if (row := self.command(command_id)).state in states else None,
        )

    def launch(self, job: Job | None, *, resume: str | None = None) -> str:
        payload = {"job": dump_job(job) if job else None, "base_dir": str(ROOT / "jobs"), "resume": resume}
        answer = self.answer(self.send("launch", payload), "applied", "rejected")
        assert answer.state == "applied", answer.answer
        assert answer.result is not None
        return str(answer.result["run_id"])

    def wait_state(self, run_id: str, *states: str) -> RunRow:
        def look() -> RunRow | None:
            row = self.run(run_id)
            assert row.state in states or row.state not in TERMINAL, f"{row.state}: {row.error}"
            return row if row.state in states else None

        return wait_for(f"run {run_id} {states}", look)

    def wait_steps(self, run_id: str, steps: int) -> RunRow:
        return wait_for(f"{steps} steps", lambda: row if ((row := self.run(run_id)).steps or 0) >= steps else None)

    def finish(self, run_id: str) -> dict[str, Any]:
        """The result of a run that ends by itself."""
        row = self.wait_state(run_id, "finished")
        assert row.result is not None
        return row.result
