"""What `bidirl serve` makes of the Procfile's commands."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

from engine.cli import serve


@pytest.fixture(autouse=True)
def _no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serve, "RESTART_S", 0)


@pytest.mark.parametrize(
    ("codes", "runs", "code"),
    [
        pytest.param([0], 1, 0, id="an end in order"),
        pytest.param([2], 1, 2, id="bad input"),
        pytest.param([137, 1, 0], 3, 0, id="two deaths, then an end in order"),
    ],
)
def test_a_process_that_dies_is_started_again(codes: list[int], runs: int, code: int, tmp_path: Path) -> None:
    count = tmp_path / "count"
    exits = " ".join(f"{number}) exit {value};;" for number, value in enumerate(codes, start=1))
    script = f"sh -c 'echo x >> {count}; case $(wc -l < {count}) in {exits} esac'"
    done = subprocess.run(["sh", "-c", serve.coming_back(script)], timeout=30, capture_output=True, text=True)
    assert (done.returncode, len(count.read_text().splitlines())) == (code, runs)
    assert done.stdout.count("starting again") == runs - 1


def test_a_stop_of_the_whole_service_waits_for_the_process_and_does_not_start_it_again(tmp_path: Path) -> None:
    ready, ended = tmp_path / "ready", tmp_path / "ended"
    script = f"sh -c 'trap \"echo x > {ended}; exit 143\" TERM; : > {ready}; while :; do sleep 0.05; done'"
    shell = subprocess.Popen(["sh", "-c", serve.coming_back(script)], start_new_session=True)
    deadline = time.monotonic() + 30
    while not ready.exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    os.killpg(shell.pid, signal.SIGTERM)
    assert shell.wait(30) == 143
    assert ended.exists()
