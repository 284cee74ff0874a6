"""Two people at one run, in a real Chromium: an operator steers it and sees what came of it, a viewer cannot."""

from __future__ import annotations

import os
import re
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from storage.reader import TelemetryReader
from tests.e2e.browser import MARKS, Service, opened, settle
from tests.e2e.service import ROOT, wait_for

pytestmark = MARKS

SECRET = "only operators know this"


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    running = Service(tmp_path_factory.mktemp("serve"), BIDIRL_OPERATOR_SECRET=SECRET)
    yield running
    running.stop()


@pytest.fixture(scope="module")
def run_id(service: Service) -> str:
    """A run on sixteen emulated devices, fast enough that effects can be seen."""
    job = ROOT / "jobs" / "emulated_16.yaml"
    settings = ("devices.partition=12:4", "algorithm.steps=2000", "devices.time_scale=0.01", "schedule.arm=no_borrow")
    bidirl = Path(sys.executable).parent / "bidirl"
    wait_for("the engine", lambda: is_ready(service))
    done = subprocess.run(
        [bidirl, "launch", job, *(part for each in settings for part in ("--set", each))],
        env=os.environ | {"BIDIRL_DATA_DIR": str(service.data.root)},
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    found = done.stdout.strip()
    wait_for("8 steps", lambda: (service.sql("SELECT steps FROM runs WHERE run_id = ?", found)[0][0] or 0) >= 8)
    return found


@pytest.fixture
def page() -> Iterator[Page]:
    with opened() as page:
        yield page


def is_ready(service: Service) -> bool:
    with TelemetryReader(service.data.telemetry_db) as reader:
        engine = reader.engine()
        return engine is not None and engine.state == "ready"


def become_operator(page: Page) -> None:
    """Enter the secret."""
    page.locator(".st-key-who button").first.click()
    page.get_by_label("Your name").fill("ann")
    page.get_by_label("Operator secret").fill(SECRET)
    page.get_by_role("button", name="Become an operator").click()
    expect(page.locator(".st-key-who")).to_contain_text("ann")


def commands(service: Service, run_id: str) -> list[tuple[str, str, str]]:
    """(kind, who, state) of the run's commands, oldest first."""
    with sqlite3.connect(f"file:{service.data.control_db}?mode=ro", uri=True) as connection:
        query = "SELECT kind, who, state FROM commands WHERE run_id = ? ORDER BY id"
        return connection.execute(query, [run_id]).fetchall()


def test_a_viewer_sees_everything_and_commands_nothing(service: Service, run_id: str, page: Page) -> None:
    page.goto(f"{service.url}/control?run={run_id}")
    settle(page)
    expect(page.locator(".st-key-notices")).to_contain_text("You see and do not command")
    for key in ("control_pause", "control_checkpoint"):
        buttons = page.locator(f".st-key-{key} button")
        if buttons.count():
            expect(buttons.first).to_be_disabled()
    assert commands(service, run_id) == []


def test_an_operator_lowers_staleness_and_changes_the_partition_and_sees_what_it_did(
    service: Service, run_id: str, page: Page, tmp_path: Path
) -> None:
    errors: list[str] = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.goto(f"{service.url}/control?run={run_id}")
    settle(page)
    become_operator(page)

    field = page.get_by_role("spinbutton", name="Staleness, versions")
    field.fill("0.5")
    field.press("Enter")
    page.get_by_role("combobox", name=re.compile("Partition")).click()
    page.get_by_role("option", name="8:8").click()
    page.locator(".st-key-control_review button").click()
    card = page.locator(".st-key-control_review_card")
    expect(card).to_contain_text("Tokens/s")
    expect(card).to_contain_text("When it takes effect")
    assert commands(service, run_id) == [], "a review sends nothing"
    page.screenshot(path=tmp_path / "review.png", full_page=True)
    page.locator(".st-key-control_confirm button").click()
    expect(page.locator(".st-key-last_command")).to_contain_text(re.compile("applied"))
    wait_for(
        "both to be applied", lambda: [state for _, _, state in commands(service, run_id)] == ["applied", "applied"]
    )
    assert [kind for kind, _, _ in commands(service, run_id)] == ["staleness", "partition"]
    assert all(who.startswith("ann") for _, who, _ in commands(service, run_id))
    row = service.sql("SELECT staleness, partition FROM runs WHERE run_id = ?", run_id)[0]
    assert row == (0.5, "8:8")
    pools = service.sql("SELECT pool, count(*) FROM devices WHERE run_id = ? GROUP BY pool ORDER BY pool", run_id)
    assert pools == [("rollout", 8), ("train", 8)]

    # the effect, once enough steps were made, and the mark on the charts
    before = service.sql("SELECT steps FROM runs WHERE run_id = ?", run_id)[0][0]
    wait_for(
        "steps to compare", lambda: service.sql("SELECT steps FROM runs WHERE run_id = ?", run_id)[0][0] >= before + 8
    )
    # the partition of this job was wrong by far: what was expected and what was measured are both an increase
    wait_for("the measured effect", lambda: "steps on each side" in log_text(page))
    page.screenshot(path=tmp_path / "control.png", full_page=True)
    page.goto(f"{service.url}/?run={run_id}")
    settle(page)
    script = (
        "() => [...document.querySelectorAll('.js-plotly-plot')].flatMap(p => ((p.layout || {}).annotations || [])"
        ".map(a => String(a.text)))"
    )
    wait_for("the mark of the partition", lambda: any("8:8" in text for text in page.evaluate(script)))
    page.screenshot(path=tmp_path / "marks.png", full_page=True)
    assert errors == []


def log_text(page: Page) -> str:
    """All that the log of commands says; a table draws its cells on a canvas, so its accessible twin is read."""
    return page.locator(".st-key-commands").inner_text() + "".join(
        page.locator(".st-key-commands [role=gridcell]").all_text_contents()
    )
