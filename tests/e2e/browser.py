"""A real service with a page of its own, and short ways through it in a real Chromium. For tests only."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, expect, sync_playwright

from storage.paths import DataDir
from tests.e2e.service import wait_for

CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
STEP_MS = 60_000
"""Longest wait for anything on the page."""

MARKS = [
    pytest.mark.ray,
    pytest.mark.browser,
    pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine"),
]


class Service:
    """`bidirl serve` on a folder and port of its own."""

    def __init__(self, root: Path, **environment: str) -> None:
        """`environment`: variables beside those of this process."""
        self.data = DataDir(root)
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        bidirl = Path(sys.executable).parent / "bidirl"
        with (root / "serve.out").open("wb") as out:
            self.process = subprocess.Popen(
                [str(bidirl), "serve", "--port", str(self.port), "--data-dir", str(root)],
                cwd=root,
                stdout=out,
                stderr=out,
                env=os.environ | {"BIDIRL_USER": "operator"} | environment,
            )
        wait_for("the page", self.answers)

    def answers(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.url}/_stcore/health", timeout=1) as response:
                return bool(response.status == 200)
        except OSError:
            return False

    def sql(self, query: str, *values: Any) -> list[tuple[Any, ...]]:
        connection = sqlite3.connect(f"file:{self.data.telemetry_db}?mode=ro", uri=True, timeout=5)
        try:
            return connection.execute(query, values).fetchall()
        finally:
            connection.close()

    def stop(self) -> int:
        self.process.send_signal(signal.SIGINT)
        return self.process.wait(60)


@contextmanager
def opened(**options: Any) -> Iterator[Page]:
    """A page of a browser of its own."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        page = browser.new_page(**({"viewport": {"width": 1440, "height": 900}} | options))
        page.set_default_timeout(STEP_MS)
        expect.set_options(timeout=STEP_MS)
        yield page
        browser.close()


def settle(page: Page) -> None:
    """No part of the page is a placeholder any more."""
    expect(page.locator("[data-testid=stSkeleton]")).to_have_count(0)


def host(page: Page, card: str) -> Any:
    """The live chart inside a card."""
    return page.locator(f".st-key-{card} .blc").first


def attribute(page: Page, card: str, name: str) -> str:
    return host(page, card).get_attribute(f"data-{name}") or ""


def wait_ticks(page: Page, card: str, more: int) -> None:
    """The chart is redrawn `more` times."""
    begin = int(attribute(page, card, "tick") or 0)
    wait_for(f"{more} redraws of {card}", lambda: int(attribute(page, card, "tick") or 0) >= begin + more)
