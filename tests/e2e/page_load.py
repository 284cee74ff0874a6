"""Measures the pages under load in a real Chromium, on GENERATED telemetry, and prints what was found and what must be.

    python -m tests.e2e.page_load --live 32 256 1024     live refreshes: server, payload, browser, zoom, no blank frame
    python -m tests.e2e.page_load --soak 1800            so many refreshes at 0.5 s: does anything grow?
    python -m tests.e2e.page_load --open timeline        opening a run of a million spans, and any window of it
    python -m tests.e2e.page_load --runs 2000            the Runs page
    python -m tests.e2e.page_load --writer 5000          so many spans a second while three pages are open

Figures depend on the machine, whose load is printed beside them; that is why none of this is a test.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from app import detail
from app.binned import binned
from storage.paths import DataDir
from storage.reader import TelemetryReader
from tests.e2e.generated import Recipe, sized, write_finished, write_live
from tests.e2e.page_found import Found, every, most, table
from tests.e2e.page_open import floor, opening
from tests.e2e.page_probe import App, FakeEngine, Tab, chromium, load, settled

SPANS = 1_000_000
HOURS = 1.0
"""A million spans in an hour: one every 3.7 s of each of 1,024 devices, which is what a chunk takes."""

REFRESH_S, PAYLOAD_KB, BROWSER_S = 0.1, 150.0, 0.15
"""What a refresh may cost: seconds of the server, what is sent, seconds of the browser's main thread."""

FIRST_PICTURE_S, WINDOW_S, RUNS_S, GROWTH_MB = 2.0, 0.05, 1.0, 10.0

WARM_UP = 8
"""Refreshes before a measurement: imports, caches, compiled scripts."""

SHOTS = 50
"""Refreshes over which a zoom must stay and no chart may be blank."""

TABLE = "[data-testid=stDataFrame] canvas"
"""The first table of a page, drawn."""

BLANK = 5.0
"""Variance of the pixels of a chart without anything in it; one with rows has hundreds."""

REUSED_S = 1200.0
"""Generated data this old are gone on with; older ones are made anew."""


def prepared(scratch: Path, devices: int, mean_s: float | None = None) -> tuple[DataDir, Recipe, float]:
    """A run of so many devices that goes on, made now or a while ago; and when it was left."""
    folder = DataDir(scratch / (f"live-{devices}" + (f"-{mean_s:g}" if mean_s else "")))
    kept = folder.root / "recipe.json"
    if kept.exists():
        told = json.loads(kept.read_text(encoding="utf-8"))
        if time.time() - told["left_at"] < REUSED_S:
            return folder, Recipe(**told["recipe"]), told["left_at"]
    if folder.root.exists():
        for old in folder.root.iterdir():
            old.unlink()
    now, begin = time.time(), time.perf_counter()
    recipe = sized(f"GENERATED-{devices}", devices, SPANS, hours=HOURS, now=now)
    if mean_s:
        recipe = Recipe(run_id=recipe.run_id, devices=devices, mean_s=mean_s, start=now - SPANS * mean_s / devices)
    spans = write_live(folder, recipe, now)
    kept.write_text(json.dumps({"recipe": asdict(recipe), "left_at": now}), encoding="utf-8")
    size = folder.telemetry_db.stat().st_size / 1e6
    print(f"made {spans:,} GENERATED spans of {devices} devices in {time.perf_counter() - begin:.0f} s, {size:.0f} MB")
    return folder, recipe, now


@contextmanager
def going_on(scratch: Path, devices: int, **options: Any) -> Iterator[tuple[App, Recipe, dict[str, Any]]]:
    """The app and a run that goes on meanwhile; what the fake engine reports is there afterwards. Raises RuntimeError
    when its writer failed."""
    folder, recipe, left_at = prepared(scratch, devices, options.pop("mean_s", None))
    kept = folder.root / "recipe.json"
    kept.unlink()  # until it is known where the run was left
    engine, app, report = FakeEngine(folder, recipe, left_at, scratch), App(folder.root, scratch, **options), {}
    try:
        yield app, recipe, report
    finally:
        app.stop()
        report |= engine.stop()
    if report["failure"]:
        raise RuntimeError(f"the fake engine's writer failed: {report['failure']}")
    kept.write_text(json.dumps({"recipe": asdict(recipe), "left_at": report["left_at"]}), encoding="utf-8")


def refreshed(app: App, tab: Tab, count: int, since: float) -> None:
    """Let the Live page refresh so often."""
    while len(app.parts("now_part", since)) < count:
        tab.wait(0.2)


def live(scratch: Path, devices: int, count: int, shots: int) -> list[Found]:
    """What a refresh of the Live page costs while the run goes on, and what stays over many of them."""
    with going_on(scratch, devices) as (app, recipe, _), chromium() as browser:
        tab = Tab(browser)
        tab.page.goto(f"{app.url}/?run={recipe.run_id}")
        settled(tab, "timeline")
        refreshed(app, tab, WARM_UP, time.time())
        found = _costs(app, tab, devices, count)
        found += _stays(app, tab, devices, shots)
        tab.shoot(scratch / f"live-{devices}.png")
    return found


def _costs(app: App, tab: Tab, devices: int, count: int) -> list[Found]:
    begin, cpu, busy, ticks = time.time(), app.cpu_s, tab.busy_s, tab.ticks("timeline")
    tab.bytes = 0
    tab.frames.clear()
    refreshed(app, tab, count, begin)
    cpu, sent = app.cpu_s - cpu, tab.bytes
    task, clock = (after - before for before, after in zip(busy, tab.busy_s, strict=True))
    parts, seconds = app.parts(since=begin), time.time() - begin
    now = [part for part in parts if part.part == "now_part"]
    walls, cpus = ([getattr(part, name) for part in now] for name in ("wall_s", "cpu_s"))
    n, what = len(now), f"{devices} devices, every {detail.refresh_interval_s(devices):g} s: "
    others = sum(part.cpu_s for part in parts if part.part != "now_part")
    wall, worst = statistics.median(walls), max(walls)
    return [
        Found(what=f"{what}machine", measured=f"load {load()}; {n} refreshes in {seconds:.0f} s"),
        most(f"{what}server, script's wall time", wall, REFRESH_S, "ms", 1e3, f"median; worst {worst * 1e3:.0f}"),
        most(f"{what}server, script's CPU", statistics.median(cpus), REFRESH_S, "ms", 1e3, "median"),
        most(
            f"{what}server, CPU of all", cpu / n, REFRESH_S, "ms", 1e3, f"other parts' scripts {others / n * 1e3:.0f}"
        ),
        most(f"{what}payload", sent / n / 1e3, PAYLOAD_KB, "kB", 1.0, f"largest frame {max(tab.frames) / 1e3:.0f}"),
        most(
            f"{what}browser's main thread, CPU", task / n, BROWSER_S, "ms", 1e3, f"by the clock {clock / n * 1e3:.0f}"
        ),
        every(f"{what}pictures drawn", min(n, tab.ticks("timeline") - ticks), n),
    ]


def _stays(app: App, tab: Tab, devices: int, shots: int) -> list[Found]:
    """Zooms in, and looks at every refresh whether the zoom, the window's choice and the picture are still there."""
    host = tab.page.locator(".st-key-timeline .blc").first
    if devices > detail.MAX_DEVICE_ROWS:
        tab.page.locator(".st-key-timeline .nsewdrag").first.click(position={"x": 400, "y": 20})
        tab.page.locator(".st-key-timeline_all_rows").wait_for()
    box = tab.page.locator(".st-key-timeline .nsewdrag").first.bounding_box()
    assert box is not None
    tab.page.mouse.move(box["x"] + box["width"] * 0.5, box["y"] + box["height"] / 2)
    tab.page.mouse.down()
    tab.page.mouse.move(box["x"] + box["width"] * 0.8, box["y"] + box["height"] / 2, steps=6)
    tab.page.mouse.up()
    tab.wait(1.0)
    zoom, mount = host.get_attribute("data-viewport"), host.get_attribute("data-mount")
    kept = shown = opened = 0
    begin = time.time()
    for n in range(1, shots + 1):
        refreshed(app, tab, n, begin)
        now = tab.page.evaluate(
            "() => { const h = document.querySelector('.st-key-timeline .blc');"
            " return [JSON.stringify(h.querySelector('.blc-plot')._fullLayout.xaxis.range), h.dataset.mount]; }"
        )
        kept += bool(zoom) and now == [zoom, mount]
        shown += tab.variance("timeline") > BLANK
        opened += devices <= detail.MAX_DEVICE_ROWS or tab.page.locator(".st-key-timeline_all_rows").count() == 1
    what = f"{devices} devices: "
    found = [every(f"{what}zoom kept", kept, shots), every(f"{what}picture there", shown, shots)]
    return found + ([every(f"{what}opened group kept", opened, shots)] if devices > detail.MAX_DEVICE_ROWS else [])


def soak(scratch: Path, count: int, devices: int = 32) -> list[Found]:
    """Many refreshes at half a second: what grows?"""
    with going_on(scratch, devices, refresh_s=0.5) as (app, recipe, _), chromium() as browser:
        tab = Tab(browser)
        tab.page.goto(f"{app.url}/?run={recipe.run_id}")
        settled(tab, "timeline")
        begin = time.time()
        refreshed(app, tab, count // 18, begin)
        heap, rss = tab.heap_mb(), app.rss_mb
        for tenth in range(1, 11):
            refreshed(app, tab, count // 18 + count * tenth // 10, begin)
            done, grown = len(app.parts("now_part", begin)), (tab.heap_mb(), app.rss_mb)
            print(f"  {done} refreshes: heap {grown[0]:.1f} MB, server {grown[1]:.1f} MB, load {load()}", flush=True)
        ticks, took = tab.ticks("timeline"), time.time() - begin
        refreshed(app, tab, len(app.parts("now_part", begin)) + 6, begin)
        tab.wait(2.0)
        ticking = tab.ticks("timeline") > ticks
    return [
        Found(what="soak", measured=f"{done} refreshes in {took:.0f} s; load {load()}"),
        most("soak: growth of the heap", grown[0] - heap, GROWTH_MB, "MB", 1.0, f"from {heap:.1f}"),
        most("soak: growth of the server", grown[1] - rss, GROWTH_MB, "MB", 1.0, f"from {rss:.1f}"),
        Found(what="soak: still ticking", measured=str(ticking), wanted="True", right=ticking),
    ]


def open_timeline(scratch: Path, devices: int = 256) -> list[Found]:
    """A run of a million spans that goes on."""
    what, shown = f"opening Timeline, {SPANS:,} spans", ".st-key-where_timeline .blc[data-tick]"
    with going_on(scratch, devices) as (app, recipe, _):
        address = f"timeline?run={recipe.run_id}"
        return opening(app, what, address, "Timeline", shown, FIRST_PICTURE_S, scratch)


def windows(scratch: Path, devices: int, count: int = 60) -> list[Found]:
    """Random windows of a run of a million spans, as pages read them."""
    folder, recipe, left_at = prepared(scratch, devices)
    rng, read, whole, sums = random.Random(0), [], [], []
    with TelemetryReader(folder.telemetry_db) as reader:
        rows = detail.chart_rows(reader.devices(recipe.run_id))
        binned(reader, recipe.run_id, rows, (left_at - 60, left_at), [], left_at)  # what only the first one costs
        for _ in range(count):
            seconds = min(2.0 ** rng.uniform(2, 12), left_at - recipe.start)
            t0 = rng.uniform(recipe.start, left_at - seconds)
            plan = detail.plan_window(t0, t0 + seconds, rows=len(rows), devices=devices, spans=detail.MAX_RAW_SPANS + 1)
            begin = time.thread_time()
            reader.rollup(recipe.run_id, plan.resolution_s or 1, plan.t0, plan.t1)
            read.append(time.thread_time() - begin)
            begin = time.thread_time()
            binned(reader, recipe.run_id, rows, (t0, t0 + seconds), [], left_at)
            whole.append(time.thread_time() - begin)
            begin = time.thread_time()
            reader.kind_seconds(recipe.run_id, t0, t0 + seconds, quick=True)
            sums.append(time.thread_time() - begin)
    named = ((read, "rollups read"), (sums, "sums by kind"), (whole, "read and cut into the bins of a picture"))
    return [
        most(f"{devices} devices, a window's {what}, CPU", sorted(times)[-1], WINDOW_S, "ms", 1e3,
             f"worst of {count}; median {statistics.median(times) * 1e3:.1f}")
        for times, what in named
    ]  # fmt: skip


def runs(scratch: Path, count: int) -> list[Found]:
    """The table of so many runs."""
    folder = DataDir(scratch / f"runs-{count}")
    if not folder.telemetry_db.exists():
        begin = time.perf_counter()
        write_finished(folder, count, time.time())
        print(f"made {count:,} GENERATED runs in {time.perf_counter() - begin:.0f} s")
    app = App(folder.root, scratch)
    try:
        return opening(app, f"Runs with {count:,} runs", "runs", "Runs", TABLE, RUNS_S, scratch)
    finally:
        app.stop()


def writer(scratch: Path, rate: float, seconds: float = 60.0, devices: int = 256) -> list[Found]:
    """An engine that writes so many spans a second while three pages are open."""
    folder, recipe, _ = prepared(scratch, devices, devices / rate)
    before = _stored(folder, recipe)
    with going_on(scratch, devices, mean_s=devices / rate) as (app, _, told), chromium() as browser:
        tabs = [Tab(browser) for _ in range(3)]
        for tab, name in zip(tabs, ("", "timeline", "runs"), strict=True):
            tab.page.goto(f"{app.url}/{name}?run={recipe.run_id}")
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            for tab in tabs:
                tab.wait(0.2)
        alerts = sum(tab.page.locator("[data-testid=stAlertContentError]").count() for tab in tabs)
        for number, tab in enumerate(tabs):
            tab.shoot(scratch / f"writer-{number}.png")
    after = _stored(folder, recipe)
    # the first quarter is what the run had to catch up with
    quarter = len(told["depths"]) // 4
    early, late = (statistics.median(told["depths"][a * quarter : b * quarter]) for a, b in ((1, 2), (3, 4)))
    lost, what = told["spans"] - (after - before), f"{rate:,.0f} spans/s, three pages: "
    return [
        Found(
            what=f"{what}machine", measured=f"load {load()}; {told['spans'] / told['seconds']:,.0f} spans/s handed in"
        ),
        most(f"{what}spans lost", lost, 0, "spans"),
        most(f"{what}spans dropped", told["spans_dropped"], 0, "spans"),
        Found(what=f"{what}writer failed, of a lock or else", measured="no", wanted="no", right=True),
        most(f"{what}errors on pages", alerts, 0, "alerts"),
        most(f"{what}queue at the end", late, max(1.5 * early, rate), "rows", 1.0, f"before {early:.0f}"),
        Found(what=f"{what}age of the oldest row", measured=f"{max(told['lags_s'][quarter:]):.2g} s at worst"),
        Found(what=f"{what}writer's thread", measured=f"{told['thread_cpu_s'] / told['seconds']:.0%} of a core"),
    ]


def _stored(folder: DataDir, recipe: Recipe) -> int:
    with TelemetryReader(folder.telemetry_db) as reader:
        return reader.count_spans(recipe.run_id, recipe.start, time.time() + 1e6, 2**62)


def main() -> int:
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("--live", nargs="*", type=int, default=[], metavar="DEVICES")
    asked.add_argument("--refreshes", type=int, default=30, help="refreshes whose cost is measured")
    asked.add_argument("--shots", type=int, default=SHOTS, help="refreshes over which zoom and picture are looked at")
    asked.add_argument("--soak", type=int, metavar="REFRESHES")
    asked.add_argument("--open", choices=["timeline"])
    asked.add_argument("--windows", nargs="*", type=int, default=[], metavar="DEVICES")
    asked.add_argument("--runs", type=int, metavar="RUNS")
    asked.add_argument("--writer", type=float, metavar="SPANS_PER_S")
    asked.add_argument("--scratch", type=Path, help="folder for data and pictures; kept")
    given = asked.parse_args()
    scratch = given.scratch or Path(tempfile.mkdtemp(prefix="page-load-"))
    scratch.mkdir(parents=True, exist_ok=True)
    found: list[Found] = []
    for devices in given.live:
        found += live(scratch, devices, given.refreshes, given.shots)
        print(table(found), flush=True)
    for devices in given.windows:
        found += windows(scratch, devices)
    if given.soak:
        found += soak(scratch, given.soak)
    if given.open or given.runs:
        found += floor(scratch)
    if given.open:
        found += open_timeline(scratch)
    if given.runs:
        found += runs(scratch, given.runs)
    if given.writer:
        found += writer(scratch, given.writer)
    print(table(found))
    return 0 if all(f.right is not False for f in found) else 1


if __name__ == "__main__":
    raise SystemExit(main())
