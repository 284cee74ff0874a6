"""The Timeline page under AppTest: controls and URL, what is drawn, money, and each state of run, reader and folder."""

from __future__ import annotations

import json
import sqlite3
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from streamlit.testing.v1 import AppTest

from app.live_chart import Chart, ChartEvents
from app.price import SETTING, Price, as_setting, read_price
from app.timeline_cards import cell_clicked, clicked
from app.timeline_controls import chart_key, read_local, written, zoomed
from app.timeline_url import Block, View, moment, parsed_moment
from engine.config.operators import SECRET_VARIABLE
from storage.mailbox import Mailbox
from storage.paths import DataDir
from storage.records import DeviceRow
from tests.app.fake_commands import Asked, write_commands
from tests.app.fake_emulated import write_emulated
from tests.app.fake_run import open_writer, write_engine, write_run
from tests.app.test_figures import CLOCK
from tests.app.test_live_page import words

MAIN = str(Path(__file__).parents[2] / "app" / "main.py")
PAGE = "app_pages/timeline.py"
RUN = "demo-0001"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> DataDir:
    monkeypatch.setenv("BIDIRL_DATA_DIR", str(tmp_path))
    monkeypatch.setenv("BIDIRL_USER", "ana")
    return DataDir(tmp_path)


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> dict[str, dict[str, Any]]:
    """Key of a chart without its run -> what was sent of it last."""
    sent: dict[str, dict[str, Any]] = {}

    def host(shown: Chart, *, key: str) -> ChartEvents:
        sent[key.partition(":")[0]] = {**asdict(shown), "fig": json.loads(shown.fig), "key": key}
        return ChartEvents()

    monkeypatch.setattr("app.timeline_cards.live_chart", host)
    monkeypatch.setattr("app.timeline_lost.live_chart", host)
    return sent


def write(folder: DataDir, run_id: str = RUN, **given: Any) -> float:
    """A run of two pools; returns when its last step ended."""
    now = time.time()
    writer = open_writer(folder, now)
    write_engine(writer, now=now + 600)
    write_run(writer, run_id, now=now, **{"state": "finished", "pools": (2, 1), "steps": 30, **given})
    writer.close()
    return now - 1.0


def show(run: str | None = RUN, **params: str) -> AppTest:
    page = AppTest.from_file(MAIN, default_timeout=60.0)
    if run is not None:
        page.query_params["run"] = run
    page.run()
    page.switch_page(PAGE)
    for name, value in ({} if run is None else {"run": run} | params).items():
        page.query_params[name] = value
    page.run()
    assert not page.exception, page.exception
    return page


def asked(page: AppTest) -> dict[str, str]:
    """The page's parameters without the run."""
    found = {name: value[0] if isinstance(value, list) else value for name, value in page.query_params.items()}
    found.pop("run")
    return found


def segment(page: AppTest, name: str, value: str) -> AppTest:
    control = next(c for c in page.button_group if str(c.key) == f"timeline_{name}:{RUN}")
    control.set_value(value).run()
    assert not page.exception, page.exception
    return page


def press(page: AppTest, key: str) -> AppTest:
    page.button(key=key).click().run()
    assert not page.exception, page.exception
    return page


Drawn = dict[str, dict[str, Any]]


def timeline(drawn: Drawn) -> dict[str, Any]:
    return next(chart for key, chart in reversed(drawn.items()) if key.startswith("timeline_"))


# -- what is shown -----------------------------------------------------------------------------------------------------


def test_a_run_that_is_over_is_shown_as_a_whole(folder: DataDir, drawn: Drawn) -> None:
    write(folder)
    page = show()
    assert [title.value for title in page.title] == ["Timeline"]
    chart = timeline(drawn)
    assert "Timeline of 3 rows" in chart["label"]
    assert [item["name"] for item in chart["fig"]["layout"]["meta"]["legend"]][:2] == ["rollout", "train"]
    assert chart["clicks"]
    assert chart["viewport"]
    assert "Worst bubbles" in words(page)
    assert len([b for b in page.button if str(b.key).startswith("timeline_worst:")]) == 10
    # nothing was chosen, so the address stays as short as it was
    assert asked(page) == {}


def test_the_table_beside_the_timeline_adds_up_to_the_devices_time(folder: DataDir, drawn: Drawn) -> None:
    write(folder)
    show()
    rows = timeline(drawn)["table"]["rows"]
    for row in rows:
        # thirty steps of four seconds
        assert sum(float(cell.removesuffix(" s")) for cell in row[1:]) == pytest.approx(120, abs=2)


def test_steps_commands_checkpoints_and_leases_are_marked(folder: DataDir, drawn: Drawn) -> None:
    end = write(folder, lending=True)
    asked_for = Asked(kind="staleness", payload={"staleness": 0.5}, at=end - 60, step=15)
    write_commands(folder, RUN, [asked_for], {"staleness": 1.0})
    show()
    names = {trace.get("name") for trace in timeline(drawn)["fig"]["data"]}
    assert {"step", "command", "checkpoint", "lent", "home again"} <= names


def test_a_failed_run_says_why_and_marks_where(folder: DataDir, drawn: Drawn) -> None:
    write(folder, state="failed", error="device 1 ran out of <b>memory</b> for $5")
    page = show()
    assert any("The run failed" in error.value and "memory" in error.value for error in page.error)
    failure = next(trace for trace in timeline(drawn)["fig"]["data"] if trace.get("name") == "failure")
    assert "&lt;b&gt;memory" in failure["text"][0]


def test_emulated_runs_are_labelled_on_every_card(folder: DataDir, drawn: Drawn) -> None:
    now = time.time()
    writer = open_writer(folder, now)
    write_engine(writer, now=now)
    write_emulated(writer, RUN, now=now, state="finished", steps=20)
    writer.close()
    page = show()
    cards = [m.value for m in page.markdown if m.value.startswith("**") and "·" in m.value]
    for name in ("Device timeline", "Bubble heatmap", "Worst bubbles"):
        assert any(name in card and "EMULATED" in card for card in cards)
    assert "EMULATED" in timeline(drawn)["fig"]["data"][0]["meta"]["rows"][0]
    assert "modelled" in drawn["lost"]["label"]


# -- controls and URL --------------------------------------------------------------------------------------------------


def test_every_choice_is_in_the_url_and_a_new_session_shows_the_same(folder: DataDir, drawn: Drawn) -> None:
    write(folder)
    page = show()
    segment(page, "window", "1m")
    segment(page, "rows", "role")
    segment(page, "colour", "cause")
    assert asked(page) == {"window": "1m", "rows": "role", "colour": "cause", "sums": "window"}
    one = timeline(drawn)
    drawn.clear()
    show(**asked(page))
    other = timeline(drawn)
    assert other["fig"] == one["fig"]
    assert other["label"] == one["label"]
    assert "Timeline of 2 rows" in other["label"]
    assert "coloured by cause" in other["label"]


def test_nonsense_in_the_url_is_named_and_the_rest_is_shown(folder: DataDir, drawn: Drawn) -> None:
    write(folder)
    page = show(window="soon", colour="<b>", rows="role")
    said = [error.value for error in page.error]
    assert any("window must be one of" in text and "soon" in text for text in said)
    assert any("colour must be one of" in text for text in said)
    assert "Timeline of 2 rows" in timeline(drawn)["label"]


def test_an_exact_window_is_shifted_by_half_of_it(folder: DataDir, drawn: Drawn) -> None:
    write(folder)
    page = show(**{"from": "2020-01-01T00:00:00Z", "to": "2020-01-01T00:01:00Z"})
    assert page.button(key="timeline_shift:-1").disabled  # the run has not begun
    press(page, "timeline_shift:1")
    assert (asked(page)["from"], asked(page)["to"]) == ("2020-01-01T00:00:30.000Z", "2020-01-01T00:01:30.000Z")


def test_a_length_is_laid_around_the_middle_of_an_exact_window(folder: DataDir, drawn: Drawn) -> None:
    write(folder)
    page = show(**{"from": "2020-01-01T00:00:00Z", "to": "2020-01-01T00:10:00Z"})
    segment(page, "window", "1m")
    assert (asked(page)["from"], asked(page)["to"]) == ("2020-01-01T00:04:30.000Z", "2020-01-01T00:05:30.000Z")
    segment(page, "window", "all")
    assert "from" not in asked(page)


def test_a_window_beyond_the_run_says_when_the_run_was_and_leads_back(folder: DataDir, drawn: Drawn) -> None:
    write(folder)
    page = show(**{"from": "2020-01-01T00:00:00Z", "to": "2020-01-01T00:01:00Z"})
    assert "Nothing is known of this window" in words(page)
    press(page, "timeline_whole_run")
    assert "Nothing is known of this window" not in words(page)
    assert asked(page)["window"] == "all"


def test_a_whole_run_of_which_nothing_is_known_is_not_offered_again(folder: DataDir, drawn: Drawn) -> None:
    write(folder, state="failed", steps=0, spans=False)
    page = show()
    assert "Nothing is known of this window" in words(page)
    assert not [button for button in page.button if button.key == "timeline_whole_run"]


def test_a_live_run_is_followed_until_the_window_is_held(folder: DataDir, drawn: Drawn) -> None:
    write(folder, state="running", steps=100)
    page = show()
    follow = next(t for t in page.toggle if str(t.key) == f"timeline_follow:{RUN}")
    assert follow.value
    before = timeline(drawn)["key"]
    follow.set_value(False).run()
    assert not page.exception, page.exception
    assert {"from", "to"} <= asked(page).keys()
    # the chart leaves whatever zoom it had
    assert timeline(drawn)["key"] != before
    follow = next(t for t in page.toggle if str(t.key) == f"timeline_follow:{RUN}")
    follow.set_value(True).run()
    assert "from" not in asked(page)


def test_a_run_that_is_over_cannot_be_followed(folder: DataDir) -> None:
    write(folder)
    assert not [t for t in show().toggle if "follow" in str(t.key)]


def test_typed_times_are_local_and_nonsense_is_refused(folder: DataDir, drawn: Drawn) -> None:
    write(folder)
    page = show()
    fields = [t for t in page.text_input if str(t.key).startswith(("timeline_From", "timeline_To"))]
    fields[0].set_value("noon")
    page.button(key="timeline_exact_apply").click().run()
    assert any("a time must be written such as" in error.value and "noon" in error.value for error in page.error)
    assert "from" not in asked(page)
    fields = [t for t in page.text_input if str(t.key).startswith(("timeline_From", "timeline_To"))]
    fields[0].set_value("2020-01-01 00:00:00")
    fields[1].set_value("2020-01-01 00:01:00.5")
    page.button(key="timeline_exact_apply").click().run()
    assert (asked(page)["from"], asked(page)["to"]) == ("2020-01-01T00:00:00.000Z", "2020-01-01T00:01:00.500Z")


def test_what_the_fields_show_is_what_they_read() -> None:
    at = 1_790_000_000.25
    assert read_local(written(at, CLOCK), CLOCK) == at
    with pytest.raises(ValueError, match="got 'x'"):
        read_local("x", CLOCK)


def test_another_run_does_not_inherit_a_window_that_lies_beyond_it(folder: DataDir, drawn: Drawn) -> None:
    write(folder)
    write(folder, "other-2", steps=5)
    page = show(**{"from": "2020-01-01T00:00:00Z", "to": "2020-01-01T00:01:00Z", "colour": "cause"})
    picker = next(box for box in page.selectbox if str(box.key).startswith("run_picker"))
    picker.set_value("other-2").run()
    assert not page.exception, page.exception
    assert page.query_params["run"] in ("other-2", ["other-2"])
    assert asked(page) == {"window": "all", "rows": "device", "colour": "cause", "sums": "window"}


# -- colours -----------------------------------------------------------------------------------------------------------


def test_versions_are_coloured_from_raw_spans_and_missed_honestly_where_these_are_gone(
    folder: DataDir, drawn: Drawn
) -> None:
    write(folder)
    page = show(colour="version")
    assert "coloured by version" in timeline(drawn)["label"]
    connection = sqlite3.connect(folder.telemetry_db)
    connection.execute("INSERT INTO raw_missing SELECT run_id, 'retention', min(t0), max(t1), count(*) FROM spans")
    connection.execute("DELETE FROM spans")
    connection.commit()
    connection.close()
    drawn.clear()
    page = show(colour="version")
    assert "coloured by phase" in timeline(drawn)["label"]
    assert "Phases are shown instead of versions" in words(page)
    assert "raw spans of this window were deleted" in words(page)
    assert "only sums are left of that time" in words(page)
    # the sums are exact all the same
    assert "idle" in drawn["lost"]["fig"]["data"][0]["name"] or drawn["lost"]["table"]["rows"]


# -- clicks and bubbles ------------------------------------------------------------------------------------------------


def test_the_worst_bubble_moves_the_window_and_tells_the_decisions_around_it(folder: DataDir, drawn: Drawn) -> None:
    write(folder, lending=True)
    page = show()
    press(page, "timeline_worst:0")
    found = asked(page)
    assert found["block"].startswith("device:")
    assert {"from", "to", "listed_from", "listed_to"} <= found.keys()
    shapes = [shape for shape in timeline(drawn)["fig"]["layout"]["shapes"] if shape.get("name") == "chosen"]
    assert len(shapes) == 2
    assert "**idle · " in words(page)
    assert "Decisions around it" in words(page) or "No decision about lending was made around it" in words(page)
    press(page, "timeline_back")
    assert "block" not in asked(page)


def test_a_lease_in_the_url_is_told_with_its_decision_and_leads_to_the_decisions(folder: DataDir, drawn: Drawn) -> None:
    write(folder, lending=True)
    page = show(lease="3")
    said = words(page)
    assert "**Lease 3**" in said
    assert "was lent as lease 3" in said
    press(page, "timeline_close")
    assert "lease" not in asked(page)


def test_a_block_in_the_url_that_the_run_does_not_have_is_named(folder: DataDir) -> None:
    write(folder)
    page = show(block="device:77@2026-05-01T12:00:00Z")
    assert any("device\\:77" in warning.value for warning in page.warning)
    page = show(lease="7777")
    assert any("lease 7777" in warning.value for warning in page.warning)


def test_a_click_on_a_group_of_rows_offers_to_open_it(folder: DataDir, drawn: Drawn) -> None:
    end = write(folder)
    page = show(rows="role", block=f"pool:rollout@{end - 40:.3f}")
    press(page, "timeline_open_rows")
    assert asked(page)["open"] == "pool:rollout"
    assert "Timeline of 2 rows" in timeline(drawn)["label"]
    assert "Cannot be told of a part of the devices" in words(press_sums(page))
    press(page, "timeline_all_rows")
    assert "open" not in asked(page)


def press_sums(page: AppTest) -> AppTest:
    segment(page, "window", "5m")
    return page


class Scene:
    """What `clicked` looks at."""

    view = View(window="5m", lease=4)
    rows = [type("Row", (), {"key": f"device:{d}"})() for d in range(3)]  # noqa: RUF012
    begin, end = 1_790_000_000.0, 1_790_000_100.0


@pytest.mark.parametrize(
    ("click", "expected"),
    [
        ({"curve": 0, "x": 1_790_000_000_000, "y": 2}, Block(row="device:2", at=1_790_000_000.0)),
        ({"curve": 0, "x": 1_790_000_000_000, "y": 9}, None),
        ({"curve": 0, "x": "not a time", "y": 1}, None),
        ({"curve": 3, "x": 1_790_000_000_000, "y": 0.2}, None),
    ],
    ids=["a cell", "beyond the rows", "no time", "a mark of a step"],
)
def test_a_click_on_the_raster_chooses_its_block(click: dict[str, Any], expected: Block | None) -> None:
    found = clicked(Scene(), click)  # type: ignore[arg-type]
    assert (found.block if found else None) == expected
    assert found is None or found.lease is None


@pytest.mark.parametrize(
    ("click", "window", "block"),
    [
        # cells of 10 s: the one from 40 to 50 s, with 10 s on either side
        ({"curve": 0, "x": 1_790_000_045_000, "y": 2}, (30.0, 60.0), Block(row="device:2", at=1_790_000_045.0)),
        # the run begins with the first one
        ({"curve": 0, "x": 1_790_000_003_000, "y": 0}, (0.0, 20.0), Block(row="device:0", at=1_790_000_005.0)),
        ({"curve": 0, "x": 1_790_000_098_000, "y": 1}, (80.0, 100.0), Block(row="device:1", at=1_790_000_095.0)),
        ({"curve": 0, "x": 1_790_000_045_000, "y": 3}, None, None),
        ({"curve": 1, "x": 1_790_000_045_000, "y": 1}, None, None),
        ({"curve": 0, "x": "not a time", "y": 1}, None, None),
    ],
    ids=["a cell", "the first", "the last", "beyond the rows", "a mark of a command", "no time"],
)
def test_a_click_on_the_heatmap_shows_the_cell_and_what_is_around_it(
    click: dict[str, Any], window: tuple[float, float] | None, block: Block | None
) -> None:
    found = cell_clicked(Scene(), click, 10.0)  # type: ignore[arg-type]
    if window is None:
        assert found is None
        return
    assert found is not None
    assert found.exact == (Scene.begin + window[0], Scene.begin + window[1])
    assert (found.block, found.lease) == (block, None)


def test_a_window_is_not_shifted_beyond_the_run(folder: DataDir, drawn: Drawn) -> None:
    ended = write(folder)
    low, high = ended - 30.0, ended - 2.0
    page = show(**{"from": moment(low), "to": moment(high)})
    press(page, "timeline_shift:1")
    whole_end = parsed_moment(asked(page)["to"])
    assert high < whole_end < high + 14.0  # half of the window would be 14 s
    assert parsed_moment(asked(page)["to"]) - parsed_moment(asked(page)["from"]) == pytest.approx(28.0, abs=0.01)
    assert page.button(key="timeline_shift:1").disabled
    limits = drawn["timeline_1"] if "timeline_1" in drawn else drawn["timeline_0"]
    axis = limits["fig"]["layout"]["xaxis"]
    assert axis["minallowed"] < axis["range"][0] < axis["range"][1] <= axis["maxallowed"]


def test_a_click_on_the_mark_of_a_lease_chooses_the_lease() -> None:
    found = clicked(Scene(), {"curve": 1, "x": 1, "y": 0.3, "customdata": 9})  # type: ignore[arg-type]
    assert found is not None
    assert (found.lease, found.block) == (9, None)


def test_a_zoom_is_an_exact_window_once_and_its_end_is_the_way_back(monkeypatch: pytest.MonkeyPatch) -> None:
    state: dict[str, Any] = {}
    monkeypatch.setattr("app.timeline_controls.st.session_state", state)
    monkeypatch.setattr("app.timeline_controls.session.page_clock", lambda: CLOCK)
    view = View(window="5m")
    assert zoomed(RUN, view) is None
    key = chart_key(RUN)
    state[key] = {"viewport": [CLOCK.axis(1_790_000_000.0), CLOCK.axis(1_790_000_010.0)]}
    found = zoomed(RUN, view)
    assert found is not None
    assert found.exact == (1_790_000_000.0, 1_790_000_010.0)
    assert zoomed(RUN, found) is None
    state[key] = {"viewport": None}
    back = zoomed(RUN, found)
    assert back is not None
    assert back.exact is None


# -- money -------------------------------------------------------------------------------------------------------------


def test_an_operator_sets_and_clears_the_price_and_money_appears(folder: DataDir, drawn: Drawn) -> None:
    write(folder)
    page = show()
    assert "EUR" not in drawn["lost"]["fig"]["data"][0]["text"][0]
    next(n for n in page.number_input if str(n.key).startswith("price_amount")).set_value(36.0)
    page.button(key="price_save").click().run()
    assert not page.exception, page.exception
    assert read_price(folder) == Price(amount=36.0, currency="EUR")
    assert "EUR" in drawn["lost"]["fig"]["data"][0]["text"][0]
    assert "EUR" in words(page)
    page.button(key="price_clear").click().run()
    assert read_price(folder) is None


def test_a_price_of_nothing_is_refused_by_name(folder: DataDir) -> None:
    write(folder)
    page = show()
    page.button(key="price_save").click().run()
    assert any("the price of a device-hour must be a finite number above 0" in error.value for error in page.error)
    assert read_price(folder) is None


def test_a_viewer_sees_the_price_and_cannot_change_it(folder: DataDir, monkeypatch: pytest.MonkeyPatch) -> None:
    write(folder)
    with Mailbox(folder.control_db) as mailbox:
        mailbox.set_setting(SETTING, as_setting(Price(amount=2.0, currency="$")), who="ana")
    monkeypatch.setenv(SECRET_VARIABLE, "correct horse battery")
    page = show()
    assert next(n for n in page.number_input if str(n.key).startswith("price_amount")).disabled
    assert page.button(key="price_save").disabled
    assert page.button(key="price_clear").disabled
    assert "\\$ " in words(page)


# -- empty and broken states -------------------------------------------------------------------------------------------


def test_without_a_database_the_exact_command_is_shown(folder: DataDir) -> None:
    assert "No engine has run here yet" in words(show(None))


def test_an_unknown_run_is_named(folder: DataDir) -> None:
    write(folder)
    page = show("no-such-run")
    assert "There is no such run" in words(page)


def test_a_run_without_spans_says_what_it_waits_for(folder: DataDir) -> None:
    now = time.time()
    writer = open_writer(folder, now)
    write_engine(writer, now=now + 600)
    writer.run(RUN, name="waits", kind="cpu", state="queued", created_at=now)
    writer.close()
    page = show()
    assert "No device time yet" in words(page)


def test_a_database_that_breaks_keeps_the_last_picture(folder: DataDir, drawn: Drawn) -> None:
    write(folder, state="running", steps=60)
    page = show()
    drawn.clear()
    folder.telemetry_db.write_bytes(b"not a database" * 1000)
    page.run()
    assert not page.exception, page.exception
    assert any("The database cannot be read" in error.value for error in page.error)
    assert "Timeline of 3 rows" in timeline(drawn)["label"]


def test_names_with_markup_are_shown_as_they_are(folder: DataDir, drawn: Drawn) -> None:
    name = "<img src=x>" + "n" * 120
    write(folder)
    writer = open_writer(folder, time.time())
    writer.devices(RUN, [DeviceRow(device=d, node=name, pool="rollout" if d < 2 else "train") for d in range(3)])
    writer.close()
    end = time.time() - 40
    page = show(rows="node", block=f"node:{name}@{end:.3f}")
    assert "\\<img" in words(page)
    assert "Timeline of 1 rows" in timeline(drawn)["label"]
