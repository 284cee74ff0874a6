"""Talking to an engine through its data folder: start one, send commands, wait for answers, read results."""

from __future__ import annotations

import getpass
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from engine import results as run_results
from engine.config import JobError, parse_job
from engine.lock import is_locked
from storage.database import TelemetryMissing
from storage.mailbox import Mailbox
from storage.paths import DataDir
from storage.reader import TelemetryReader
from storage.records import Command, RunRow
from storage.words import TERMINAL

ENGINE_START_S = 180.0
"""Longest wait for an engine to come up; Ray takes 1 to 15 s, more on a loaded machine."""

ENGINE_STOP_S = 30.0
"""Longest wait for an engine to go; then it is killed."""

ANSWER_S = 30.0
"""Longest wait for an engine to look at a command (it looks four times a second)."""

TRIED_S = 600.0
"""Longest wait for a launch that the engine has and whose model folder it tries: five that take all of their time."""

LAUNCHED = {"applied", "rejected", "expired"}
"""States of a launch that has its answer."""

APPLIED_S = 3600.0
"""Longest wait with --wait."""

ALIVE_S = 2.0
"""How often the engine's life is checked while it is waited for."""

LOOK_S = 0.1
"""How often an answer is looked for."""

INTERRUPTED = 130
"""Exit code after Ctrl-C: 128 + SIGINT. A command that has told what it stopped calls `sys.exit` with it; typer's own
exit with this code is that of an interruption of which nothing was told yet."""


class BadInput(ValueError):
    """What the user gave cannot be done; the text says what, where, and what would be allowed."""


class EngineFailed(RuntimeError):
    """The engine did not come up or went away."""


def who() -> str:
    """The operator's name in rows."""
    return os.environ.get("BIDIRL_USER") or getpass.getuser()


def data_dir(given: str | None) -> DataDir:
    """The data folder to use. Raises BadInput for a place where none can be."""
    data = DataDir.from_env(given)
    nearest = next(place for place in (data.root, *data.root.parents) if place.exists())
    if not nearest.is_dir():
        raise BadInput(f"--data-dir: {nearest} is not a folder")
    if not os.access(nearest, os.W_OK | os.X_OK):
        raise BadInput(f"--data-dir: {nearest} cannot be written")
    try:
        # the rights say yes, the file system may still say no: ask it, and leave nothing behind
        with tempfile.TemporaryDirectory(dir=nearest, prefix=".bidirl-"):
            pass
    except OSError as error:
        raise BadInput(f"--data-dir: {nearest} cannot be written: {error.strerror or error}") from None
    return data


@contextmanager
def engine(data: DataDir) -> Iterator[subprocess.Popen[bytes] | None]:
    """An engine on this folder: the one that lives (None), or one of our own that ends with this block, and after an
    undisturbed block not before the runs that others gave it meanwhile."""
    if is_locked(data):
        yield None
        return
    data.engine_log.parent.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "engine", "--data-dir", str(data.root), "--with-parent"]
    with data.engine_log.open("ab") as log:
        # a session of its own: Ctrl-C reaches us only, and we end the run in order
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=log, start_new_session=True)
    try:
        _wait_ready(data, process)
        yield process
        _others_end(data, process)
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(ENGINE_STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(ENGINE_STOP_S)


def unfinished(data: DataDir) -> list[str]:
    """Ids of the runs that the folder's newest engine has still to end, newest first."""
    with TelemetryReader(data.telemetry_db) as reader:
        engine = reader.engine()
        return [
            run.run_id
            for run in reader.runs()
            if run.state not in TERMINAL and engine and run.engine_id == engine.engine_id
        ]


def _others_end(data: DataDir, process: subprocess.Popen[bytes]) -> None:
    """Stay as long as the engine lives and has runs of others to end: their senders count on it. Ctrl-C ends it."""
    told: list[str] = []
    while process.poll() is None and (left := unfinished(data)):
        if left != told:
            told = left
            print(f"this engine stays for {', '.join(left)}; Ctrl-C ends it and interrupts them", file=sys.stderr)
        time.sleep(ALIVE_S)


def _wait_ready(data: DataDir, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + ENGINE_START_S
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise EngineFailed(f"the engine ended with code {process.returncode}; see {data.engine_log}")
        try:
            with TelemetryReader(data.telemetry_db) as reader:
                row = reader.engine()
                if row is not None and row.pid == process.pid and row.state == "ready":
                    return
        except TelemetryMissing:
            pass
        time.sleep(LOOK_S)
    raise EngineFailed(f"the engine was not ready within {ENGINE_START_S:.0f} s; see {data.engine_log}")


def require_engine(data: DataDir) -> None:
    """Raise BadInput when no engine lives on the folder."""
    if not is_locked(data):
        raise BadInput(f"no engine runs on {data.root}; start one with: bidirl serve --data-dir {data.root}")


def launch(
    data: DataDir,
    text: str | None,
    *,
    base_dir: Path | None,
    resume: str | None = None,
    settings: list[str] | None = None,
    comparison: dict[str, Any] | None = None,
) -> str:
    """Queue a job and return its run id; `settings`: changes of the job of the run that is resumed, where `text` names
    no other; `comparison`: the part it has in one (`launching.prepare`).

    Raises BadInput with the engine's reason when it refuses.
    """
    payload: dict[str, Any] = {"job": text, "base_dir": str(base_dir) if base_dir else None, "resume": resume}
    if settings:
        payload["settings"] = settings
    if comparison is not None:
        payload["comparison"] = comparison
    with Mailbox(data.control_db) as mailbox:
        # an engine that takes it when nobody waits any more would start a run that nobody looks for
        command_id = mailbox.send("launch", payload, who=who(), expires_in_s=ANSWER_S)
        try:
            answer = _wait(mailbox, data, command_id, {"accepted", *LAUNCHED}, ANSWER_S)
            if answer.state == "accepted":  # its model folder is tried first, perhaps behind those of other launches
                answer = _wait(mailbox, data, command_id, LAUNCHED, TRIED_S, quiet=answer.answer is None)
        except KeyboardInterrupt:
            _take_back(mailbox, data, command_id)
            raise
    if answer.state != "applied" or answer.result is None:
        raise BadInput(answer.answer or answer.state)
    return str(answer.result["run_id"])


def _take_back(mailbox: Mailbox, data: DataDir, command_id: int) -> None:
    """Stop the run of a launch that Ctrl-C interrupts; a second one leaves at once."""
    print("Taking the launch back; Ctrl-C again leaves at once.", file=sys.stderr)
    with suppress(EngineFailed):
        answer = _wait(mailbox, data, command_id, LAUNCHED, ANSWER_S, quiet=True)
        if answer.state == "applied" and answer.result is not None:
            mailbox.send("stop", {}, run_id=str(answer.result["run_id"]), who=who())


def command(
    data: DataDir,
    kind: str,
    payload: dict[str, Any],
    *,
    run_id: str,
    wait: bool,
    expected_version: int | None = None,
) -> dict[str, Any]:
    """Send a command; wait for the engine's first look, or until it is applied. Raises BadInput when it is refused.

    `expected_version`: the run's configuration that it was made for; the engine refuses it for another one.
    """
    state = result(data, run_id)["state"]
    if kind != "delete" and state in TERMINAL and state != "interrupted":
        raise BadInput(f"{kind}: run {run_id} is {state}; only a running one takes commands")
    if wait and not is_locked(data):
        raise BadInput(f"{kind}: no engine runs on {data.root} to wait for; start one with: bidirl serve")
    done = {"applied", "rejected", "superseded", "expired"}
    with Mailbox(data.control_db) as mailbox:
        command_id = mailbox.send(kind, payload, run_id=run_id, who=who(), expected_config_version=expected_version)
        if not is_locked(data):
            text = f"no engine runs on {data.root}; command {command_id} waits in the mailbox until one does"
            return {"id": command_id, "state": "pending", "answer": text, "effective_step": None, "result": None}
        wanted, seconds = (done, APPLIED_S) if wait else ({"accepted", *done}, ANSWER_S)
        answer = _wait(mailbox, data, command_id, wanted, seconds)
    if answer.state in ("rejected", "superseded", "expired"):
        raise BadInput(f"{kind}: {answer.answer or answer.state}")
    return {
        "id": answer.id,
        "state": answer.state,
        "answer": answer.answer,
        "effective_step": answer.effective_step,
        "result": answer.result,
    }


def ask(data: DataDir, kind: str, payload: dict[str, Any], *, seconds: float) -> Command:
    """Send a command that names no run and wait until it is done. Raises BadInput when it is refused, EngineFailed."""
    with Mailbox(data.control_db) as mailbox:
        command_id = mailbox.send(kind, payload, who=who())
        answer = _wait(mailbox, data, command_id, {"applied", "rejected", "superseded", "expired"}, seconds)
    if answer.state != "applied":
        raise BadInput(f"{kind}: {answer.answer or answer.state}")
    return answer


def _wait(
    mailbox: Mailbox, data: DataDir, command_id: int, states: set[str], seconds: float, *, quiet: bool = False
) -> Command:
    """The command once it is in one of the states; says on stderr, unless `quiet`, what an accepted one waits for."""
    deadline = time.monotonic() + seconds
    next_look, told = time.monotonic() + ALIVE_S, quiet
    while time.monotonic() < deadline:
        row = mailbox.get(command_id)
        if row.state in states:
            return row
        if row.state == "accepted" and not told:
            told = True
            print(f"accepted: {row.answer or 'it takes effect at the next safe point'}", file=sys.stderr)
        if time.monotonic() >= next_look:
            next_look = time.monotonic() + ALIVE_S
            if not is_locked(data):
                raise EngineFailed(f"the engine on {data.root} is gone; command {command_id} is still {row.state}")
        time.sleep(LOOK_S)
    raise EngineFailed(f"the engine gave no answer to command {command_id} within {seconds:.0f} s")


def known_run(reader: TelemetryReader, run_id: str, *, told: str = "RUN:") -> RunRow:
    """The run. Raises BadInput when it is not known, with the newest ones; `told`: what names it in the message."""
    run = reader.run(run_id)
    if run is None:
        known = ", ".join(row.run_id for row in reader.runs(limit=5)) or "none"
        raise BadInput(f"{told} {run_id!r} is not known; the newest are: {known}")
    return run


def result(data: DataDir, run_id: str) -> dict[str, Any]:
    """The result fields of one run. Raises BadInput when it is not known."""
    with TelemetryReader(data.telemetry_db) as reader:
        return run_results.build(reader, known_run(reader, run_id))


def judge(data: DataDir, run_id: str) -> str | None:
    """What `show.summary` says of a stored run's held-out answers; None where that needs no words, or its job is of
    another version."""
    with TelemetryReader(data.telemetry_db) as reader:
        run = reader.run(run_id)
    try:
        return None if run is None else parse_job(run.job).task.named_judge
    except JobError:
        return None


def results(data: DataDir) -> list[dict[str, Any]]:
    """The result fields of all runs, newest first; empty when nothing ever ran."""
    try:
        with TelemetryReader(data.telemetry_db) as reader:
            return [run_results.build(reader, run) for run in reader.runs(limit=100_000)]
    except TelemetryMissing:
        return []
