"""What the measurements of pages look through: the app in a process of its own, a tab of a real Chromium, and the fake
engine. Each says what it cost; none judges.
"""

from __future__ import annotations

import base64
import io
import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import psutil
from PIL import Image
from playwright.sync_api import Browser, BrowserContext, CDPSession, Page, sync_playwright

from storage.paths import DataDir
from tests.e2e.browser import CHROMIUM, FLAGS, STEP_MS
from tests.e2e.generated import Recipe
from tests.e2e.service import wait_for

ROOT = Path(__file__).resolve().parents[2]

OVER_S = 60.0
"""Longest wait for a process that was told to end."""


@dataclass(frozen=True, kw_only=True)
class Part:
    """One run of one part of a page, on the server."""

    part: str
    """Name of its function."""
    at: float
    """When it ended, unix seconds."""
    wall_s: float
    """What the reader waits for."""
    cpu_s: float
    """Of the thread that ran it; sending is not in it."""


class App:
    """The app on a data folder, without an engine."""

    def __init__(self, root: Path, scratch: Path, *, refresh_s: float | None = None) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self._log = scratch / f"parts-{self.port}.jsonl"
        self._log.touch()
        arguments = [str(self.port), str(self._log), *([] if refresh_s is None else [str(refresh_s)])]
        with (scratch / f"app-{self.port}.out").open("wb") as out:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "tests.e2e.page_server", *arguments],
                cwd=ROOT,
                stdout=out,
                stderr=out,
                env=os.environ | {"BIDIRL_DATA_DIR": str(root), "BIDIRL_USER": "operator"},
            )
        self._seen = psutil.Process(self.process.pid)
        wait_for("the app", self._answers)

    def _answers(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.url}/_stcore/health", timeout=1) as response:
                return bool(response.status == 200)
        except OSError:
            return False

    @property
    def cpu_s(self) -> float:
        """CPU seconds of the whole process: scripts, sending, and Streamlit itself."""
        spent = self._seen.cpu_times()
        return spent.user + spent.system

    @property
    def rss_mb(self) -> float:
        """Resident memory, MB."""
        return self._seen.memory_info().rss / 1e6

    def parts(self, name: str | None = None, since: float = 0.0) -> list[Part]:
        """Runs of parts that ended after `since`."""
        read = [Part(**json.loads(line)) for line in self._log.read_text(encoding="utf-8").splitlines()]
        return [part for part in read if part.at > since and name in (None, part.part)]

    def stop(self) -> None:
        _end(self.process)


class FakeEngine:
    """`tests.e2e.generated_live` in a process of its own."""

    def __init__(self, folder: DataDir, recipe: Recipe, left_at: float, scratch: Path) -> None:
        told = scratch / "recipe.json"
        self._report = scratch / "report.json"
        self._report.unlink(missing_ok=True)
        told.write_text(json.dumps({**asdict(recipe), "left_at": left_at}), encoding="utf-8")
        arguments = [str(folder.root), str(told), "86400", str(self._report)]
        with (scratch / "engine.out").open("wb") as out:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "tests.e2e.generated_live", *arguments], cwd=ROOT, stdout=out, stderr=out
            )

    def stop(self) -> dict[str, Any]:
        """Its report; raises when it left none."""
        _end(self.process)
        return dict(json.loads(self._report.read_text(encoding="utf-8")))


def _end(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        process.send_signal(signal.SIGTERM)
        process.wait(OVER_S)


class Tab:
    """One page in a browser, which counts what comes in."""

    def __init__(self, browser: Browser | BrowserContext, **options: Any) -> None:
        if isinstance(browser, Browser):
            options = {"viewport": {"width": 1440, "height": 1000}} | options
        self.page: Page = browser.new_page(**options)
        self.page.set_default_timeout(STEP_MS)
        self.bytes = 0
        self.frames: list[int] = []
        self._cdp: CDPSession = self.page.context.new_cdp_session(self.page)
        self._cdp.on("Network.webSocketFrameReceived", self._received)
        for domain in ("Network", "Performance", "HeapProfiler", "Runtime"):
            self._cdp.send(f"{domain}.enable")

    def _received(self, event: dict[str, Any]) -> None:
        told = event["response"]
        size = len(told["payloadData"])
        size = size * 3 // 4 if told["opcode"] == 2 else size
        self.bytes += size
        self.frames.append(size)

    @property
    def busy_s(self) -> tuple[float, float]:
        """CPU seconds of the main thread since the page was opened, and how long its tasks took by the clock, which is
        more on a machine that others use."""
        found = {m["name"]: m["value"] for m in self._cdp.send("Performance.getMetrics")["metrics"]}
        return float(found["ThreadTime"]), float(found["TaskDuration"])

    def heap_mb(self) -> float:
        """JavaScript heap in use after collecting garbage, MB."""
        self._cdp.send("HeapProfiler.collectGarbage")
        return float(self._cdp.send("Runtime.getHeapUsage")["usedSize"]) / 1e6

    def ticks(self, key: str) -> int:
        """How often the chart in a container was drawn; 0 before the first time."""
        found = self.page.locator(f".st-key-{key} .blc").first
        return int(found.get_attribute("data-tick") or 0) if found.count() else 0

    def wait(self, seconds: float) -> None:
        """Let the page go on, and take in what it tells."""
        self.page.wait_for_timeout(seconds * 1000)

    def variance(self, key: str) -> float:
        """Variance of the pixels of a chart: next to nothing when it is blank, 0 when there is none."""
        clip = self.page.evaluate(
            "(key) => { const plot = document.querySelector(`.st-key-${key} .blc-plot`); if (!plot) return null;"
            " const { x, y, width, height } = plot.getBoundingClientRect();"
            " return { x: x + scrollX, y: y + scrollY, width, height, scale: 1 }; }",
            key,
        )
        if not clip or not clip["width"] or not clip["height"]:
            return 0.0
        told = self._cdp.send("Page.captureScreenshot", {"clip": clip, "captureBeyondViewport": True})
        picture = Image.open(io.BytesIO(base64.b64decode(told["data"]))).convert("L")
        return float(np.asarray(picture, dtype=float).var())

    def shoot(self, path: Path) -> None:
        """The whole page, as a picture."""
        told = self._cdp.send("Page.captureScreenshot", {"captureBeyondViewport": True})
        path.write_bytes(base64.b64decode(told["data"]))


@contextmanager
def chromium() -> Iterator[Browser]:
    """A browser of its own."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield browser
        browser.close()


LOOP = 1_000_000
"""Rounds of a loop that does nothing, whose CPU time tells a slowed machine from a slow page."""


def load() -> str:
    """How busy the machine is, for beside a figure; with the CPU time of a loop, which others make longer."""
    begin, total = time.thread_time(), 0
    for i in range(LOOP):
        total += i
    loop = time.thread_time() - begin
    return f"{' '.join(f'{v:.1f}' for v in os.getloadavg())} on {os.cpu_count()} cores, loop {loop * 1e3:.0f} ms"


def settled(tab: Tab, key: str, ticks: int = 1, seconds: float = STEP_MS / 1000) -> float:
    """Wait until the chart in a container was drawn so often; returns the seconds that it took."""
    begin = time.perf_counter()
    tab.page.wait_for_function(
        "([key, ticks]) => Number(document.querySelector(`.st-key-${key} .blc`)?.dataset.tick || 0) >= ticks",
        arg=[key, ticks],
        timeout=seconds * 1000,
    )
    return time.perf_counter() - begin
