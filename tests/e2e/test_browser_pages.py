"""Timeline, Decisions, Learning, Runs and Plan in a real Chromium: each opens, and what it is for can be done by hand.

Runs that are over, written through storage: no engine runs, and no figure here was measured.
"""

from __future__ import annotations

import time
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from playwright.sync_api import Locator, Page, expect

from engine.config import dump_job, load_job
from storage.paths import DataDir
from tests.app.fake_emulated import write_emulated
from tests.app.fake_run import open_writer, write_engine, write_run
from tests.app.test_plan import JOB_FILE, SMALL, _group
from tests.e2e.accessible import checked
from tests.e2e.app_alone import served
from tests.e2e.browser import CHROMIUM, attribute, host, opened, settle
from tests.e2e.service import wait_for

pytestmark = [pytest.mark.browser, pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine")]

LENT, PLAIN, EMULATED = "lent-1", "plain-1", "emulated-1"
STEPS = 12
ROW_PX = 35
"""Height of a table's row."""


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = DataDir(tmp_path_factory.mktemp("pages"))
    now = time.time()
    writer = open_writer(folder, now)
    write_engine(writer, now=now)
    write_run(writer, PLAIN, now=now - 400, state="finished", steps=STEPS)
    lends: dict[str, Any] = {"arm": "bidirectional", "lending": True, "pools": (4, 4), "steps": STEPS}
    write_run(writer, LENT, now=now - 200, state="finished", **lends)
    job = load_job(JOB_FILE, [*SMALL[:2], "algorithm.steps=8", "devices.partition=8:8"])
    assert job.profile is not None
    profile = job.profile.model_dump(mode="json")
    write_emulated(
        writer, EMULATED, now=now, steps=8, state="finished", profile=profile, job=dump_job(job), config_version=0
    )
    writer.groups([_group(EMULATED, index) for index in range(64)])
    writer.close()
    with served(folder.root) as address:
        yield address


@pytest.fixture(scope="module")
def page(url: str) -> Iterator[Page]:
    with opened(viewport={"width": 1440, "height": 1000}, accept_downloads=True) as page:
        yield page


def show(page: Page, address: str, first: str) -> Locator:
    """The page, once what it is for is there and nothing on it failed."""
    page.goto(address)
    seen = page.locator(first).first
    expect(seen).to_be_visible()
    settle(page)
    nothing_failed(page)
    return seen


def nothing_failed(page: Page) -> None:
    expect(page.locator("[data-testid=stException]")).to_have_count(0)
    expect(page.locator("[data-testid=stAlertContentError]")).to_have_count(0)


def drawn(page: Page, card: str) -> Locator:
    """The plot of a card, once its chart was drawn; it says what it shows."""
    wait_for(f"a picture of {card}", lambda: attribute(page, card, "tick"))
    plot: Locator = host(page, card).locator(".blc-plot")
    assert plot.get_attribute("role") == "img"
    assert plot.get_attribute("aria-label")
    return plot


def all_named(page: Page) -> None:
    """Everything that can be operated or is a picture has a name, once all charts are drawn."""
    expect(page.locator(".blc:not([data-tick])")).to_have_count(0)
    for table in page.locator("[data-testid=data-grid-canvas]").all():
        expect(table.locator("th").first).to_be_attached()  # what a screen reader has of it comes a moment later
    settle(page)
    assert checked(page)["problems"] == []


def fill(page: Page, label: str, text: str) -> None:
    box = page.get_by_label(label, exact=True).first
    box.fill(text)
    box.press("Enter")


def test_a_click_on_a_block_of_the_timeline_tells_what_it_was(page: Page, url: str) -> None:
    show(page, f"{url}/timeline?run={LENT}", ".st-key-where_timeline .blc[data-tick]")
    for card in ("where_timeline", "where_bubbles", "where_lost"):
        drawn(page, card)
    # a cell of the heatmap is shown in the timeline
    area = page.locator(".st-key-where_bubbles .nsewdrag").first
    box = area.bounding_box()
    assert box is not None
    area.click(position={"x": box["width"] * 0.3, "y": box["height"] * 0.3})
    page.wait_for_url(lambda address: "from=" in address and "block=device" in address)
    expect(page.locator(".st-key-where_chosen")).to_be_visible()
    show(page, f"{url}/timeline?run={LENT}", ".st-key-where_timeline .blc[data-tick]")
    shows = page.locator(".st-key-where_worst [data-testid=stButton]", has_text="Show")
    expect(shows).to_have_count(10)
    expect(page.locator(".st-key-where_chosen")).to_have_count(0)
    area = page.locator(".st-key-where_timeline .nsewdrag").first
    box = area.bounding_box()
    assert box is not None
    area.click(position={"x": box["width"] * 0.45, "y": box["height"] * 0.44})  # a rollout of device 3
    chosen = page.locator(".st-key-where_chosen")
    expect(chosen).to_contain_text("device 3")
    expect(chosen).to_contain_text("rollout")
    page.wait_for_url(lambda address: "block=device" in address)
    shows.first.get_by_role("button").click()
    page.wait_for_url(lambda address: "listed_from=" in address)
    expect(chosen).to_contain_text("idle", ignore_case=True)
    nothing_failed(page)
    all_named(page)


def test_what_is_exported_arrives_and_can_be_opened(page: Page, url: str, tmp_path: Path) -> None:
    show(page, f"{url}/timeline?run={LENT}", ".st-key-where_timeline .blc[data-tick]")
    page.get_by_role("button", name="Export").click()
    page.get_by_role("combobox", name="Format").click()
    page.get_by_role("option", name="Bundle").click()
    page.get_by_role("button", name="Prepare").click()
    button = page.locator(".st-key-timeline_export_download button")
    expect(button).to_be_visible()
    with page.expect_download() as found:
        button.click()
    path = tmp_path / found.value.suggested_filename
    found.value.save_as(path)
    with zipfile.ZipFile(path) as bundle:
        assert bundle.testzip() is None
        assert sum(entry.file_size for entry in bundle.infolist()) > 10_000
    nothing_failed(page)


def test_decisions_are_filtered_and_one_tells_its_story(page: Page, url: str) -> None:
    show(page, f"{url}/decisions?run={LENT}", "[data-testid=stDataFrame] canvas")
    nothing_failed(page)
    all_named(page)
    fill(page, "Lease", "1")
    expect(page.get_by_text("2 of 2 decisions")).to_be_visible()
    expect(page.locator(".st-key-decision")).to_contain_text("lease 1")
    fill(page, "Text in the reason", "no decision says this")
    expect(page.locator("[data-testid=stDataFrame] canvas")).to_have_count(0)
    nothing_failed(page)


def test_samples_are_searched_on_learning(page: Page, url: str) -> None:
    show(page, f"{url}/learning?run={PLAIN}", ".blc[data-tick]")
    sample = page.locator(".st-key-sample")
    expect(sample).to_be_visible()
    all_named(page)
    fill(page, "Search in prompts and answers", "no prompt says this")
    expect(page.locator(".st-key-sample")).to_have_count(0)
    fill(page, "Search in prompts and answers", "")
    expect(sample).to_be_visible()
    nothing_failed(page)


def test_two_runs_are_chosen_in_the_table_and_compared(page: Page, url: str) -> None:
    table = show(page, f"{url}/runs", ".st-key-runs_table [data-testid=stDataFrame] canvas")
    drawn(page, "lost_by_run")
    expect(page.locator(".st-key-runs_count")).to_contain_text("3 runs")
    for row in (1, 2):  # below the header; each choice is a table anew
        box = table.bounding_box()
        assert box is not None
        page.mouse.click(box["x"] + 16, box["y"] + ROW_PX * row + ROW_PX / 2)
        page.wait_for_url(chosen(row))
        settle(page)
    expect(page.locator(".st-key-compare_settings")).to_be_visible()
    expect(page.locator(".st-key-compare_figures")).to_be_visible()
    drawn(page, "compare_lost")
    nothing_failed(page)
    all_named(page)


def chosen(count: int) -> Callable[[str], bool]:
    """Whether an address names so many runs as chosen."""

    def look(address: str) -> bool:
        named = parse_qs(urlsplit(address).query).get("compare", [])
        return len([name for value in named for name in value.split(",")]) == count

    return look


def test_a_recorded_run_is_replayed_under_other_settings_on_plan(page: Page, url: str) -> None:
    show(page, f"{url}/plan?run={EMULATED}", ".st-key-plan_whatif")
    page.locator(".st-key-plan_whatif_play button").click()
    wait_for("a replay", lambda: attribute(page, "plan_whatif", "tick"))
    label = host(page, "plan_whatif").locator(".blc-plot").get_attribute("aria-label") or ""
    assert f"Run {EMULATED} measured" in label
    assert "replayed under" in label
    nothing_failed(page)
    all_named(page)
