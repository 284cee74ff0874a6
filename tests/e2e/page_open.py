"""How long a page takes until it shows what it is for: the first time in a browser, in a new tab of one that has been
here before, and from the bar of a page that is open. Beside each stands what a page of Streamlit with one word costs.
"""

from __future__ import annotations

import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from playwright.sync_api import BrowserContext, sync_playwright

from tests.e2e.browser import CHROMIUM, FLAGS
from tests.e2e.page_found import Found, most
from tests.e2e.page_probe import App, Tab, load
from tests.e2e.service import wait_for

TRIES = 5
"""Openings of a page whose median counts."""

SEEN = 3
"""Openings until a browser keeps the scripts compiled, as one does that is used daily."""

ONE_WORD = "import streamlit as st\nst.set_page_config(layout='wide')\nst.html('<p id=word>here</p>')\n"


@dataclass(frozen=True, kw_only=True)
class Opened:
    """One opening."""

    wall_s: float
    """What somebody waits for."""
    browser_s: float
    """CPU seconds of the browser's main thread."""
    server_s: float = 0.0
    """CPU seconds of the server."""


@contextmanager
def profile() -> Iterator[BrowserContext]:
    """A browser with a profile of its own, which keeps what it has fetched and compiled: Playwright's pages do not."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder, sync_playwright() as playwright:
        context = playwright.chromium.launch_persistent_context(
            folder, executable_path=CHROMIUM, args=FLAGS, headless=True, viewport={"width": 1440, "height": 1000}
        )
        yield context
        context.close()


def _new_tab(context: BrowserContext, url: str, shown: str) -> tuple[Tab, Opened]:
    tab = Tab(context)
    begin = time.perf_counter()
    tab.page.goto(url, wait_until="commit")
    tab.page.locator(shown).first.wait_for()
    return tab, Opened(wall_s=time.perf_counter() - begin, browser_s=tab.busy_s[0])


def _from_bar(app: App, tab: Tab, name: str, shown: str) -> Opened:
    tab.page.get_by_role("link", name="Launch", exact=True).first.click()
    tab.page.locator(shown).first.wait_for(state="detached")
    tab.wait(2.0)
    begin, before = time.perf_counter(), (app.cpu_s, tab.busy_s[0])
    tab.page.get_by_role("link", name=name, exact=True).first.click()
    tab.page.locator(shown).first.wait_for()
    wall = time.perf_counter() - begin
    return Opened(wall_s=wall, browser_s=tab.busy_s[0] - before[1], server_s=app.cpu_s - before[0])


def _medians(found: list[Opened]) -> tuple[float, float, float]:
    columns = zip(*((each.wall_s, each.browser_s, each.server_s) for each in found), strict=True)
    wall, browser, server = (statistics.median(values) for values in columns)
    return wall, browser, server


@contextmanager
def one_word(scratch: Path) -> Iterator[str]:
    """The address of a page of Streamlit with one word."""
    folder = scratch / "one-word"
    folder.mkdir(exist_ok=True)
    (folder / "main.py").write_text(ONE_WORD, encoding="utf-8")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    url = f"http://127.0.0.1:{port}"
    command = [sys.executable, "-m", "streamlit", "run", "main.py", "--server.port", str(port)]
    settings = {"STREAMLIT_SERVER_HEADLESS": "true", "STREAMLIT_BROWSER_GATHER_USAGE_STATS": "false"}
    with (folder / "out").open("wb") as out:
        process = subprocess.Popen(command, cwd=folder, stdout=out, stderr=out, env=os.environ | settings)

    def answers() -> bool:
        try:
            with urllib.request.urlopen(f"{url}/_stcore/health", timeout=1) as response:
                return bool(response.status == 200)
        except OSError:
            return False

    try:
        wait_for("a page of one word", answers)
        yield url
    finally:
        process.terminate()
        process.wait(30)


def floor(scratch: Path) -> list[Found]:
    """What no page can be below on this machine."""
    with one_word(scratch) as url, profile() as context:
        opened = []
        for _ in range(SEEN + TRIES):
            tab, one = _new_tab(context, url, "#word")
            opened.append(one)
            tab.wait(1.0)
            tab.page.close()
    return [*_told("a page of Streamlit with one word", opened)]


def _told(what: str, opened: list[Opened], limit: float | None = None) -> Iterator[Found]:
    first, kept = opened[0], opened[SEEN:]
    wall, browser, _ = _medians(kept)
    more = f"worst {max(each.wall_s for each in kept):.2f}; browser's CPU {browser:.2g} s"
    cold = f"{first.wall_s:.3g} s (browser's CPU {first.browser_s:.2g} s)"
    yield Found(what=f"{what}, first time in a browser", measured=cold)
    if limit is None:
        yield Found(what=f"{what}, in a new tab", measured=f"{wall:.3g} s ({more})")
    else:
        yield most(f"{what}, in a new tab", wall, limit, "s", 1.0, more)


def opening(app: App, what: str, address: str, name: str, shown: str, limit: float, scratch: Path) -> list[Found]:
    """How long a page takes until `shown` is there, each way. limit: seconds, of all but the first time."""
    url, opened, again = f"{app.url}/{address}", [], []
    with profile() as context:
        for number in range(SEEN + TRIES):
            tab, one = _new_tab(context, url, shown)
            opened.append(one)
            tab.wait(2.0)
            if number >= SEEN:
                again.append(_from_bar(app, tab, name, shown))
                tab.wait(1.0)
                tab.shoot(scratch / f"open-{name}.png")
            tab.page.close()
    wall, browser, server = _medians(again)
    more = f"worst {max(each.wall_s for each in again):.2f}; CPU: server {server:.2g} s, browser {browser:.2g} s"
    return [
        Found(what=f"{what}: machine", measured=f"load {load()}"),
        most(f"{what}, from the bar", wall, limit, "s", 1.0, more),
        *_told(what, opened, limit),
    ]
