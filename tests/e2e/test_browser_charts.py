"""Charts and help in a real Chromium: by keyboard, as a table, as files, for a screen reader, and without a leak.

One emulated run that is over, written through storage: no engine runs, and the page stands still.
"""

from __future__ import annotations

import csv
import io
import re
import struct
import time
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from storage.paths import DataDir
from tests.app.fake_run import open_writer, write_engine, write_run
from tests.e2e.accessible import checked
from tests.e2e.app_alone import served
from tests.e2e.browser import CHROMIUM, attribute, host, opened, settle
from tests.e2e.service import wait_for

pytestmark = [pytest.mark.browser, pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine")]

RUN = "emu-1"


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = DataDir(tmp_path_factory.mktemp("charts"))
    now = time.time()
    writer = open_writer(folder, now)
    write_engine(writer, now=now)
    lends = {"arm": "bidirectional", "lending": True, "pools": (4, 4), "steps": 12}
    write_run(writer, RUN, now=now - 60, kind="emulated", time_scale=0.02, state="finished", **lends)
    writer.close()
    with served(folder.root) as address:
        yield f"{address}/?run={RUN}"


@pytest.fixture(scope="module")
def page(url: str) -> Iterator[Page]:
    with opened(viewport={"width": 1440, "height": 1000}) as page:
        show(page, url)
        yield page


def show(page: Page, url: str) -> None:
    page.goto(url)
    settle(page)
    for card in ("timeline", "bubbles", "lost_time"):
        wait_for(f"a picture of {card}", lambda card=card: attribute(page, card, "tick"))


def plot(page: Page, card: str) -> Any:
    return host(page, card).locator(".blc-plot")


def save(page: Page, card: str, form: str, folder: Path) -> Path:
    """As by keyboard: S on the chart, then the button of the format."""
    plot(page, card).focus()
    page.keyboard.press("s")
    with page.expect_download() as found:
        host(page, card).locator(f"button[data-format={form}]").press("Enter")
    path = folder / found.value.suggested_filename
    found.value.save_as(path)
    page.keyboard.press("Escape")
    return path


def test_a_chart_is_reached_by_tab_and_says_what_it_shows(page: Page) -> None:
    host(page, "timeline").locator(".blc-toggle").focus()
    page.keyboard.press("Shift+Tab")
    expect(plot(page, "timeline")).to_be_focused()
    expect(host(page, "timeline").locator(".blc-keys")).to_be_visible()
    outline = plot(page, "timeline").evaluate(
        "e => getComputedStyle(e).outlineStyle + getComputedStyle(e).outlineWidth"
    )
    assert outline == "solid2px"
    label = plot(page, "timeline").get_attribute("aria-label") or ""
    assert re.match(r"Emulated timeline of 8 rows, .*: (rollout|train) \d+%", label)
    page.keyboard.press("Tab")
    expect(host(page, "timeline").locator(".blc-toggle")).to_be_focused()


def test_keys_zoom_pan_and_go_back(page: Page) -> None:
    plot(page, "bubbles").focus()

    def shown() -> list[float]:
        axis = "document.querySelector('.st-key-bubbles .blc-plot')._fullLayout.xaxis"
        return page.evaluate(f"{axis}.range.map({axis}.r2l)")

    whole = shown()
    page.keyboard.press("+")
    wait_for("the zoom", lambda: attribute(page, "bubbles", "zoomed") == "true")
    near = shown()
    assert near[1] - near[0] == pytest.approx(0.8 * (whole[1] - whole[0]), rel=1e-3)
    page.keyboard.press("ArrowRight")
    wait_for("the pan", lambda: shown()[0] > near[0])
    assert shown()[0] - near[0] == pytest.approx(0.1 * (near[1] - near[0]), rel=1e-3)
    page.keyboard.press("ArrowLeft")
    page.keyboard.press("Escape")
    wait_for("the whole", lambda: shown() == whole)
    assert attribute(page, "bubbles", "zoomed") == "false"


def test_keys_go_from_row_to_row_and_say_what_is_there(page: Page) -> None:
    plot(page, "bubbles").focus()
    said = host(page, "bubbles").locator(".blc-said")
    page.keyboard.press("ArrowDown")
    expect(said).to_contain_text(re.compile(r"device 0 .*idle \d+%"))
    page.keyboard.press("ArrowDown")
    expect(said).to_contain_text("device 1 ")
    page.keyboard.press("Tab")
    expect(said).to_have_text("")


def test_keys_that_mean_something_elsewhere_are_left_to_the_page(page: Page) -> None:
    # kept from the page's own shortcuts, which would wait for the key to be let go
    script = """(e, key) => {
      e.parentElement.addEventListener("keydown", (event) => event.stopPropagation(), { once: true });
      return e.dispatchEvent(new KeyboardEvent("keydown", { bubbles: true, cancelable: true, ...key }));
    }"""
    plot(page, "lost_time").focus()
    for key in ({"key": "ArrowLeft"}, {"key": "Escape"}, {"key": "s", "ctrlKey": True}, {"key": "x"}):
        # its axis does not move, it is not zoomed, and Ctrl+S is the browser's
        assert plot(page, "lost_time").evaluate(script, key) is True, key


def test_no_chart_offers_to_send_its_data_away(page: Page) -> None:
    assert page.locator(".modebar-btn").count() > 0
    expect(page.locator(".modebar-btn[data-title^=Share], .modebar-btn[aria-label^=Share]")).to_have_count(0)


def test_the_table_twin_has_a_caption_and_heads_and_equals_the_csv(page: Page, tmp_path: Path) -> None:
    plot(page, "lost_time").focus()
    page.keyboard.press("t")
    table = host(page, "lost_time").locator(".blc-table")
    expect(table).to_be_visible()
    assert table.get_attribute("tabindex") == "0"
    expect(table.locator("caption")).to_contain_text("Lost time by cause, modelled")
    rows = table.evaluate("e => [...e.querySelectorAll('tr')].map(r => [...r.cells].map(c => c.textContent))")
    scopes = table.evaluate("e => [...e.querySelectorAll('th')].map(c => c.scope)")
    assert scopes == ["col"] * len(rows[0]) + ["row"] * (len(rows) - 1)
    text = save(page, "lost_time", "csv", tmp_path).read_text()
    found = list(csv.reader(io.StringIO(text)))
    # the label of emulated devices goes with every row
    assert [row[:-1] for row in found] == rows
    assert [row[-1] for row in found] == ["devices"] + ["EMULATED"] * (len(rows) - 1)
    plot(page, "lost_time").focus()
    page.keyboard.press("t")
    expect(table).to_be_hidden()


def test_a_png_is_the_whole_picture_twice_as_sharp(page: Page, tmp_path: Path) -> None:
    path = save(page, "timeline", "png", tmp_path)
    assert path.name == f"bidirl_{RUN}_timeline_EMULATED.png"
    head = path.read_bytes()[:24]
    assert head.startswith(b"\x89PNG")
    width, height = struct.unpack(">II", head[16:])
    shown = plot(page, "timeline").bounding_box()
    assert shown is not None
    assert width == pytest.approx(2 * shown["width"], abs=2)
    assert height > 2 * shown["height"] + 60, "title and legend are in it"


def test_an_svg_holds_title_label_legend_and_an_opaque_ground(page: Page, tmp_path: Path) -> None:
    tree = ET.fromstring(save(page, "timeline", "svg", tmp_path).read_text())
    space = "{http://www.w3.org/2000/svg}"
    words = " ".join("".join(text.itertext()) for text in tree.iter(f"{space}text"))
    assert "EMULATED · Emulated timeline of 8 rows" in words
    assert RUN in words
    for name in ("rollout", "aux train", "idle", "lent", "end of a step", "device 0"):
        assert name in words
    assert "drag to zoom" not in words
    assert tree.find(f"{space}rect").get("fill") == "#FFFFFF"  # type: ignore[union-attr]
    assert not re.search(r"NaN|undefined", ET.tostring(tree, encoding="unicode"))


def test_a_page_of_html_opens_without_a_network_and_zooms(page: Page, tmp_path: Path) -> None:
    path = save(page, "bubbles", "html", tmp_path)
    context = page.context.browser.new_context(offline=True)  # type: ignore[union-attr]
    asked: list[str] = []
    errors: list[str] = []
    alone = context.new_page()
    alone.on("request", lambda request: asked.append(request.url))
    alone.on("pageerror", lambda error: errors.append(str(error)))
    alone.goto(path.as_uri())
    expect(alone.locator("#chart .heatmaplayer image")).to_have_count(1)
    expect(alone.locator("h1")).to_contain_text("EMULATED")
    expect(alone.locator("[aria-label^=Share]")).to_have_count(0)
    range_of = "document.querySelector('#chart')._fullLayout.xaxis.range"
    before = alone.evaluate(range_of)
    alone.locator("#chart .modebar-btn[aria-label='Zoom in']").click(force=True)
    wait_for("the zoom", lambda: alone.evaluate(range_of) != before)
    assert alone.locator("details tbody tr").count() == 8
    assert [url for url in asked if not url.startswith(("file:", "data:", "blob:"))] == []
    assert errors == []
    context.close()


def test_help_opens_by_its_key_and_finds_a_number(page: Page) -> None:
    page.keyboard.press("F1")
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("What the numbers mean")
    dialog.get_by_label("Search").fill("regret")
    expect(dialog.locator("dt").first).to_have_text("Regret")
    expect(dialog.locator("dt", has_text="Busy, last 5 min")).to_have_count(0)
    dialog.get_by_role("tab", name="Keyboard").click()
    expect(dialog.locator("kbd", has_text="Alt + P")).to_be_visible()
    assert checked(page)["problems"] == []
    page.keyboard.press("Escape")
    expect(dialog).to_have_count(0)


def test_cards_are_a_list_and_say_on_focus_what_they_mean(page: Page) -> None:
    numbers = page.get_by_role("list", name="Key figures")
    expect(numbers.get_by_role("listitem")).to_have_count(5)
    label = numbers.locator(".bnc-label", has_text="Busy, last 5 min")
    label.focus()
    page.keyboard.press("Shift+Tab")
    page.keyboard.press("Tab")
    tip = numbers.locator(".bnc-tip").first
    expect(tip).to_be_visible()
    expect(tip).to_contain_text("Formula: 1 - idle device-seconds / known device-seconds")
    page.keyboard.press("Escape")
    expect(tip).to_be_hidden()


def test_the_window_is_chosen_by_keyboard_and_the_picture_follows(page: Page) -> None:
    windows = page.get_by_role("radiogroup", name="Window")
    expect(windows.get_by_role("radio", checked=True)).to_have_text("All")
    axis = "(() => { const a = document.querySelector('.st-key-timeline .blc-plot')._fullLayout.xaxis;"
    length = f"{axis} return (a.r2l(a.range[1]) - a.r2l(a.range[0])) / 1000; }})()"
    windows.get_by_role("radio", name="All").focus()
    page.keyboard.press("ArrowRight")
    expect(windows.get_by_role("radio", name="15 s")).to_be_focused()
    wait_for("fifteen seconds", lambda: page.evaluate(length) == pytest.approx(15, abs=0.01))
    expect(windows.get_by_role("radio", checked=True)).to_have_text("15 s")
    page.keyboard.press("ArrowLeft")
    wait_for("the whole run", lambda: page.evaluate(length) > 15.5)
    expect(windows.get_by_role("radio", checked=True)).to_have_text("All")


def test_help_of_a_heading_and_of_the_status_line_opens_on_focus(page: Page) -> None:
    for said, words in (
        (page.locator(".st-key-timeline .bht-mark"), "A column of the timeline"),
        (page.locator(".st-key-status_line .bst-facts"), "Staleness"),
    ):
        tip = page.locator(f"#{said.get_attribute('aria-describedby')}")
        expect(tip).to_be_hidden()
        said.focus()
        page.keyboard.press("Shift+Tab")
        page.keyboard.press("Tab")
        expect(tip).to_be_visible()
        expect(tip).to_contain_text(words)
        page.keyboard.press("Escape")
        expect(tip).to_be_hidden()


def test_nothing_that_ticks_is_read_out_by_itself(page: Page) -> None:
    script = "() => [...document.querySelectorAll('main [role=status], main [aria-live]:not([aria-live=off])')]"
    regions = page.evaluate(script.replace("main ", "") + ".map(e => [e.className, e.textContent])")
    assert "demo: Finished" in [text for _, text in regions]
    assert [name for name, text in regions if re.search(r"\d+ s ago|tokens", text)] == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_everything_has_a_name_and_our_texts_can_be_read(page: Page, scheme: str) -> None:
    page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
    dark = "getComputedStyle(document.querySelector('.stApp')).backgroundColor"
    wait_for(f"the {scheme} theme", lambda: (page.evaluate(dark) == "rgb(18, 21, 27)") == (scheme == "dark"))
    plot(page, "lost_time").focus()
    page.keyboard.press("t")
    found = checked(page)
    page.keyboard.press("t")
    page.emulate_media(color_scheme="light")
    assert found["texts"] > 100
    assert found["problems"] == []


def test_the_check_finds_a_pale_text_a_nameless_button_and_a_stop_out_of_order(page: Page) -> None:
    bad = "<button></button><i tabindex=3>x</i><style>.blc-note { opacity: .4 !important }</style>"
    page.evaluate("(html) => document.body.insertAdjacentHTML('beforeend', `<div id=bads>${html}</div>`)", bad)
    problems = checked(page)["problems"]
    page.evaluate("document.getElementById('bads').remove()")
    assert [problem for problem in problems if problem.startswith("no name: BUTTON")]
    assert [problem for problem in problems if problem.startswith("out of order: I")]
    assert [problem for problem in problems if re.match(r"contrast \d\.\d+: SPAN\.blc-note", problem)]


HARNESS = """
async (rounds) => {
  const loaded = performance.getEntriesByType("resource").map((e) => e.name);
  const address = (name) => loaded.find((n) => n.includes(`/static/${name}-`));
  const { default: host } = await import(address("host"));
  // what the chart takes while it has the word, and what of that is given back; the rest of the page is its own
  const held = new Set();
  const real = {};
  const names = ["addEventListener", "removeEventListener", "setInterval", "clearInterval"];
  for (const name of names) real[name] = window[name];
  let word = false;
  window.addEventListener = (type, act, ...rest) => {
    if (word) held.add(act);
    return real.addEventListener.call(window, type, act, ...rest);
  };
  window.removeEventListener = (type, act, ...rest) => {
    held.delete(act);
    return real.removeEventListener.call(window, type, act, ...rest);
  };
  window.setInterval = (...given) => {
    const timer = real.setInterval.apply(window, given);
    if (word) held.add(timer);
    return timer;
  };
  window.clearInterval = (timer) => { held.delete(timer); real.clearInterval.call(window, timer); };
  const place = document.createElement("div");
  document.body.append(place);
  const clicks = [];
  const given = { note: "", follow: "", table: null, as_of: 1, frozen: "", title: "", tag: "" };
  let end;
  for (let round = 0; round < rounds; round += 1) {
    const trace = { type: "scatter", name: "reward", x: [1, 2, 3], y: [round, 2, 1], customdata: ["a", "b", "c"] };
    const fig = JSON.stringify({ data: [trace], layout: { height: 200 } });
    word = true;
    end = host({
      data: { ...given, fig, height: 200, label: "rewards", name: "t:r", clicks: true, plotly: address("plotly") },
      parentElement: place, setStateValue: () => {}, setTriggerValue: (name, value) => clicks.push([name, value]),
    });
    word = false;
    await new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)));
  }
  const plot = place.querySelector(".blc-plot");
  const mounts = place.querySelectorAll(".blc").length;
  const shown = { mounts, ticks: place.firstElementChild.dataset.tick, y: plot.data[0].y[0] };
  plot.focus();
  for (const key of ["ArrowDown", "ArrowDown", "Enter"]) {
    plot.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true }));
    await new Promise((done) => setTimeout(done, 200));
  }
  const taken = held.size;
  place.remove();
  end();
  await new Promise((done) => setTimeout(done, 200));
  Object.assign(window, real);
  return { ...shown, clicks, taken, kept: held.size, left: place.childElementCount };
}
"""


def test_a_chart_redraws_in_place_clicks_by_enter_and_leaves_nothing_behind(page: Page) -> None:
    found = page.evaluate(HARNESS, 30)
    assert (found["mounts"], found["y"]) == (1, 29)
    assert int(found["ticks"]) >= 15
    assert found["clicks"] == [["click", {"x": 2, "y": 2, "curve": 0, "customdata": "b"}]]
    assert found["taken"] == 1, "a listener for the end of a drag; the clock is one for all charts of the page"
    assert found["kept"] == 0
    assert found["left"] == 0
