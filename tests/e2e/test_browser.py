"""An operator's whole visit, in a real Chromium against the real service: launch, watch, zoom, steer, stop."""

from __future__ import annotations

import math
import os
import re
import signal
import time
from collections.abc import Iterator

import pytest
from playwright.sync_api import Page, expect

from engine.config import dump_job
from tests.e2e.browser import MARKS, Service, attribute, host, opened, settle, wait_ticks
from tests.e2e.service import small_job, wait_for

pytestmark = MARKS


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    running = Service(tmp_path_factory.mktemp("serve"))
    yield running
    running.stop()


@pytest.fixture
def page() -> Iterator[Page]:
    with opened() as page:
        yield page


def plotted_rewards(page: Page) -> int:
    """Points of the first trace of the learning chart."""
    script = "() => { const p = document.querySelector('.st-key-learning .js-plotly-plot');"
    return page.evaluate(script + " return p && p.data ? Math.max(...p.data.map(t => (t.y || []).length), 0) : 0; }")


def launch(page: Page, service: Service) -> str:
    """Through the Launch page: YAML, then a field that is first wrong and then right."""
    page.goto(f"{service.url}/launch")
    settle(page)
    page.get_by_role("tab", name="YAML").click()
    text = dump_job(small_job("algorithm.steps=5000", "checkpoint.every_steps=0", "name=visit"))
    page.get_by_role("textbox", name="Job file").fill(text)
    page.get_by_role("textbox", name="Job file").press("Control+Enter")
    page.get_by_role("tab", name="Form").click()
    field = page.get_by_role("textbox", name="Staleness, versions")
    field.fill("-1")
    field.press("Enter")
    expect(page.locator(".st-key-problem_schedule_staleness")).to_contain_text("must be a number from 0 to 16")
    expect(page.locator(".st-key-launch_send button")).to_be_disabled()
    field.fill("2")
    field.press("Enter")
    expect(page.locator(".st-key-problem_schedule_staleness")).to_have_count(0)
    page.locator(".st-key-launch_send button").click()
    expect(page.locator(".st-key-launch_state")).to_contain_text("Launched as")
    page.get_by_role("link", name=re.compile("Watch .* live")).click()
    page.wait_for_url(re.compile(r"run=visit-"))
    match = re.search(r"run=([^&]+)", page.url)
    assert match is not None
    return match[1]


def command(page: Page, what: str, state: str) -> None:
    """The newest command as the page shows it."""
    expect(page.locator(".st-key-last_command")).to_contain_text(re.compile(f"{what}.*{state}"))


def shown_numbers(page: Page) -> dict[str, float]:
    """The exact figures behind the five cards."""
    cards = page.locator("[data-key]")
    return {
        str(cards.nth(i).get_attribute("data-key")): float(cards.nth(i).get_attribute("data-value") or "nan")
        for i in range(cards.count())
    }


def numbers_from_sql(service: Service, run_id: str) -> dict[str, float]:
    """The same five from the raw rows, by the definitions of the design and nothing else."""
    begin, end, buffer = service.sql(
        "SELECT training_at, measured_until, buffer_groups FROM runs WHERE run_id = ?", run_id
    )[0]

    def seconds(low: float, high: float, *, idle: bool) -> float:
        where = "kind = 'idle'" if idle else "1"
        query = f"SELECT sum(min(t1, ?) - max(t0, ?)) FROM spans WHERE run_id = ? AND t1 > ? AND t0 < ? AND {where}"
        return service.sql(query, high, low, run_id, low, high)[0][0] or 0.0

    steps = service.sql(
        "SELECT prompt_tokens + response_tokens, t_end - t_start, lag_json FROM steps WHERE run_id = ? ORDER BY step",
        run_id,
    )
    low = max(begin, end - 300)
    staleness = service.sql("SELECT staleness FROM runs WHERE run_id = ?", run_id)[0][0]
    tail = math.ceil(staleness)
    steady = steps[max(1, tail) : len(steps) - tail]
    lags = [
        int(group[0])
        for group in service.sql(
            "SELECT lag FROM groups WHERE run_id = ? AND step > ? ORDER BY lag", run_id, len(steps) - 20
        )
    ]
    return {
        "busy": 1 - seconds(low, end, idle=True) / seconds(low, end, idle=False),
        "idle": seconds(begin, end, idle=True),
        "tokens": sum(row[0] for row in steady) / sum(row[1] for row in steady),
        "lag": lags[math.ceil(0.95 * len(lags)) - 1],
        "buffer": buffer,
    }


def test_an_operator_launches_watches_zooms_steers_and_stops_a_real_job(service, page, tmp_path):
    errors: list[str] = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    run_id = launch(page, service)

    # the timeline ticks and the reward moves
    wait_ticks(page, "timeline", 2)
    wait_for("rewards on the page", lambda: plotted_rewards(page) >= 3)
    before = plotted_rewards(page)
    wait_for("more rewards on the page", lambda: plotted_rewards(page) > before)

    # a zoom is kept over refreshes, and the chart is never made anew
    mount = attribute(page, "timeline", "mount")
    area = host(page, "timeline").locator(".nsewdrag").first.bounding_box()
    assert area is not None
    page.mouse.move(area["x"] + area["width"] * 0.55, area["y"] + area["height"] / 2)
    page.mouse.down()
    page.mouse.move(area["x"] + area["width"] * 0.8, area["y"] + area["height"] / 2, steps=5)
    page.mouse.up()
    wait_for("the zoom", lambda: attribute(page, "timeline", "zoomed") == "true")
    viewport = attribute(page, "timeline", "viewport")
    wait_ticks(page, "timeline", 3)
    assert attribute(page, "timeline", "viewport") == viewport
    assert attribute(page, "timeline", "mount") == mount
    page.screenshot(path=tmp_path / "zoomed.png", full_page=True)

    page.get_by_role("button", name="Pause").click()
    command(page, "pause", "was applied")
    expect(page.locator(".st-key-status_line")).to_contain_text(re.compile("paused", re.IGNORECASE))
    steps = service.sql("SELECT steps FROM runs WHERE run_id = ?", run_id)[0][0]
    time.sleep(1)
    assert service.sql("SELECT steps FROM runs WHERE run_id = ?", run_id)[0][0] == steps
    page.get_by_role("button", name=re.compile("^Resume")).click()
    command(page, "resume", "was applied")
    wait_for(
        "25 more steps", lambda: service.sql("SELECT steps FROM runs WHERE run_id = ?", run_id)[0][0] >= steps + 25
    )

    page.locator(".st-key-control_stop button").first.click()
    page.locator(".st-key-control_stop_confirm button").click()
    expect(page.locator(".st-key-status_line")).to_contain_text(re.compile("stopped", re.IGNORECASE))
    expect(page.locator(".st-key-ledger")).to_be_visible()
    settle(page)
    wanted = numbers_from_sql(service, run_id)
    wait_for("the final numbers", lambda: shown_numbers(page).get("idle") == pytest.approx(wanted["idle"], rel=0.01))
    shown = shown_numbers(page)
    assert shown == {key: pytest.approx(value, rel=0.01, abs=1e-6) for key, value in wanted.items()}
    page.screenshot(path=tmp_path / "stopped.png", full_page=True)
    assert errors == []

    # the prompts and answers that were trained on
    prompt = service.sql("SELECT prompt FROM groups WHERE run_id = ? AND state = 'consumed' LIMIT 1", run_id)[0][0]
    assert prompt.startswith("State the final answer")
    expect(page.locator(".st-key-samples")).to_be_visible()

    # the run is among the past ones, with what it lost
    page.goto(f"{service.url}/runs")
    settle(page)
    expect(page.locator(".st-key-runs_table")).to_be_visible()
    expect(page.locator(".st-key-lost_by_run")).to_be_visible()


def test_one_click_shows_emulated_devices_while_a_real_job_goes_on(service, page, tmp_path):
    real = launch(page, service)
    wait_ticks(page, "timeline", 1)
    page.locator(".st-key-switch_runs").get_by_role("button", name="Run 16 emulated devices").click()
    page.wait_for_url(re.compile(r"run=emulated_16-"))
    match = re.search(r"run=([^&]+)", page.url)
    assert match is not None
    emulated = match[1]
    expect(page.locator(".st-key-status_line")).to_contain_text("EMULATED · 50 times faster")
    expect(page.locator(".st-key-learns_nothing")).to_be_visible()
    expect(page.locator(".st-key-one_click")).to_have_count(0)

    def steps(run_id: str) -> int:
        return int(service.sql("SELECT coalesce(steps, 0) FROM runs WHERE run_id = ?", run_id)[0][0])

    before = steps(real)
    wait_for("steps of both runs", lambda: steps(emulated) >= 5 and steps(real) > before)
    wait_ticks(page, "timeline", 2)
    # what is shown is fifty times slower than what happened here; the page may be a step behind
    wait_for(
        "modelled tokens/s",
        lambda: (
            shown_numbers(page).get("tokens")
            == pytest.approx(numbers_from_sql(service, emulated)["tokens"] * 0.02, rel=0.1)
        ),
    )
    page.screenshot(path=tmp_path / "emulated.png", full_page=True)

    # back to the real one, which never stopped
    page.locator(f".st-key-switch_{real} button").first.click()
    page.wait_for_url(re.compile(f"run={real}"))
    expect(page.locator(".st-key-status_line")).not_to_contain_text("EMULATED")
    settle(page)  # a popover opens where its button was
    page.locator(".st-key-control_stop button").first.click()
    page.locator(".st-key-control_stop_confirm button").click()
    expect(page.locator(".st-key-status_line")).to_contain_text(re.compile("stopped", re.IGNORECASE))


def test_a_killed_engine_comes_back_beside_the_page(service):
    life = service.sql("SELECT engine_id, pid FROM engine ORDER BY started_at DESC LIMIT 1")[0]
    os.kill(life[1], signal.SIGKILL)
    query = "SELECT engine_id, pid FROM engine WHERE state = 'ready' ORDER BY started_at DESC LIMIT 1"
    wait_for("another engine", lambda: service.sql(query)[0][0] != life[0])
    assert service.answers()
