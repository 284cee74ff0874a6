"""How long a page takes until it shows what it is for: in a new tab, and from the bar of a page that is open."""

from __future__ import annotations

import statistics
import time
from pathlib import Path

from tests.e2e.page_found import Found, most
from tests.e2e.page_probe import App, Tab, chromium, load

TRIES = 5
"""Openings of a page whose median counts."""


def opening(app: App, what: str, address: str, name: str, shown: str, limit: float, scratch: Path) -> list[Found]:
    """How long a page takes until `shown` is there: in a new tab, and by its name in the bar of a page that is open."""
    cold, warm, spent = [], [], []
    with chromium() as browser:
        for _ in range(TRIES + 1):
            tab = Tab(browser)
            begin = time.perf_counter()
            tab.page.goto(f"{app.url}/{address}")
            tab.page.locator(shown).first.wait_for()
            cold.append(time.perf_counter() - begin)
            tab.page.get_by_role("link", name="Launch", exact=True).first.click()
            tab.page.locator(shown).first.wait_for(state="detached")
            tab.wait(2.0)
            begin, before = time.perf_counter(), (app.cpu_s, tab.busy_s[0])
            tab.page.get_by_role("link", name=name, exact=True).first.click()
            tab.page.locator(shown).first.wait_for()
            warm.append(time.perf_counter() - begin)
            spent.append((app.cpu_s - before[0], tab.busy_s[0] - before[1]))
            tab.wait(1.0)
            tab.shoot(scratch / f"open-{name}.png")
            tab.page.close()
    first, cold = cold[0], sorted(cold[1:])
    warm = sorted(warm[1:])
    server, browsed = (statistics.median(values) for values in zip(*spent[1:], strict=True))
    return [
        Found(what=f"{what}: machine", measured=f"load {load()}"),
        Found(what=f"{what}, from the bar, CPU", measured=f"server {server:.2g} s, browser {browsed:.2g} s (medians)"),
        most(f"{what}, from the bar", statistics.median(warm), limit, "s", 1.0, f"worst {warm[-1]:.2f}"),
        Found(
            what=f"{what}, in a new tab",
            measured=f"{statistics.median(cold):.3g} s (worst {cold[-1]:.2f}; the server's first {first:.2f})",
        ),
    ]
