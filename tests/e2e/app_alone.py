"""The app without an engine, on a folder that a test wrote: what is stored can be looked at, and nothing starts Ray."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.e2e.service import ROOT, wait_for


@contextmanager
def served(folder: Path) -> Iterator[str]:
    """The address of the app, which shows `folder`, until the block ends."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with (folder / "app.out").open("wb") as out:
        process = subprocess.Popen(
            [
                *(sys.executable, "-m", "streamlit", "run", str(ROOT / "app" / "serve.py")),
                *("--server.port", str(port), "--server.headless", "true"),
            ],
            cwd=folder,
            stdout=out,
            stderr=out,
            env=os.environ | {"BIDIRL_DATA_DIR": str(folder), "BIDIRL_USER": "ana"},
        )
    url = f"http://127.0.0.1:{port}"

    def answers() -> bool:
        try:
            with urllib.request.urlopen(f"{url}/_stcore/health", timeout=1) as response:
                return bool(response.status == 200)
        except OSError:
            return False

    try:
        wait_for("the app", answers)
        yield url
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(30)
