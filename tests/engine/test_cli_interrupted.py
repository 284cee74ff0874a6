"""Ctrl-C: told in one line, exit code 130, and nothing is left behind, whenever it comes."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

from engine.cli import client, follow
from storage.mailbox import Mailbox
from storage.paths import DataDir
from storage.records import Command
from tests.engine.test_cli import store_run
from tests.storage.builders import RUN

BIDIRL = str(Path(sys.executable).with_name("bidirl"))

GOOD = "name: good"

COME_S = 60.0
"""Longest wait for a process to come to a place, and to end."""

INTERRUPT_AT = """
import os, signal, sys
from importlib.abc import MetaPathFinder

class Finder(MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name == "typer":
            os.kill(os.getpid(), signal.SIGINT)

signal.signal(signal.SIGINT, signal.default_int_handler)
sys.meta_path.insert(0, Finder())
sys.argv = ["bidirl", "runs", "list"]
from engine.cli import main
main()
"""


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> DataDir:
    """The data folder, as if an engine had it that looks at nothing."""
    monkeypatch.setattr(client, "is_locked", lambda data: True)
    monkeypatch.setattr(client, "ANSWER_S", 0.05)
    monkeypatch.setattr(client, "LOOK_S", 0.01)
    folder = DataDir(tmp_path / "var")
    folder.root.mkdir()
    return folder


def launch(data: DataDir) -> str:
    return client.launch(data, GOOD, base_dir=None)


def test_an_interruption_of_the_imports_is_one_line(tmp_path: Path) -> None:
    root = Path(__file__).resolve().parents[2]
    done = subprocess.run(
        [sys.executable, "-c", INTERRUPT_AT], capture_output=True, text=True, timeout=COME_S, check=False, cwd=root
    )
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "bidirl: interrupted\n")


def test_an_interruption_while_an_engine_comes_up_ends_it_too(tmp_path: Path) -> None:
    (tmp_path / "job.yaml").write_text(
        "model: {warm_start: {steps: 0, worked_only_steps: 0}}\ndevices: {oversubscribe: true}"
    )
    process = subprocess.Popen(
        [BIDIRL, "run", "job.yaml", "--data-dir", "var"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=tmp_path,
        # whoever started the tests in the background may have masked it
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    engines: list[psutil.Process] = []
    deadline = time.monotonic() + COME_S
    while not engines and process.poll() is None and time.monotonic() < deadline:
        engines = [
            child for child in psutil.Process(process.pid).children() if "--with-parent" in " ".join(child.cmdline())
        ]
        time.sleep(0.02)
    assert engines, f"no engine came up: {process.communicate(timeout=COME_S)}"
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=COME_S)
    assert (process.returncode, out, err) == (130, "", "bidirl: interrupted\n")
    assert not any(engine.is_running() and engine.status() != psutil.STATUS_ZOMBIE for engine in engines)


def test_a_launch_that_is_interrupted_is_taken_back(
    data: DataDir, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The engine takes the job just then; whoever sent it is gone and would not look for the run."""
    waits = client._wait
    taken: list[int] = []

    def interrupted(mailbox: Mailbox, *arguments: Any, **options: Any) -> Command:
        if taken:
            return waits(mailbox, *arguments, **options)
        (sent,) = mailbox.pending()
        taken.append(sent.id)
        mailbox.accept(sent.id)
        mailbox.apply(sent.id, "Queued.", result={"run_id": RUN})
        raise KeyboardInterrupt

    monkeypatch.setattr(client, "_wait", interrupted)
    with pytest.raises(KeyboardInterrupt):
        launch(data)
    assert capsys.readouterr().err == "Taking the launch back; Ctrl-C again leaves at once.\n"
    with Mailbox(data.control_db) as mailbox:
        (stop,) = mailbox.pending()
    assert (stop.kind, stop.run_id) == ("stop", RUN)


def test_a_launch_that_nobody_waits_for_any_more_is_not_taken_later(data: DataDir) -> None:
    with pytest.raises(client.EngineFailed, match="the engine gave no answer to command 1"):
        launch(data)
    with Mailbox(data.control_db, clock=lambda: time.time() + 1) as mailbox:
        assert list(mailbox.pending()) == []


def test_a_run_is_stopped_at_the_first_interruption_and_left_at_the_second(
    data: DataDir,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    store_run(data)

    def interrupt(seconds: float) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(follow.time, "sleep", interrupt)
    with pytest.raises(KeyboardInterrupt):
        follow.follow(data, RUN, quiet=True, owner=None)
    with Mailbox(data.control_db) as mailbox:
        (stop,) = mailbox.pending()
    assert (stop.kind, stop.run_id) == ("stop", RUN)
    assert "Stopping after the running chunk; Ctrl-C again leaves at once." in capsys.readouterr().err
