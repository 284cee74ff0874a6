"""The Decisions page under AppTest: runs that lend, that never do, and emulated ones; its list, filters and links."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from streamlit.testing.v1 import AppTest

from app.decision_reading import PAGE_ROWS, Place, read
from storage.filters import DecisionFilter
from storage.paths import DataDir
from storage.reader import TelemetryReader
from storage.records import DecisionRow
from tests.app.fake_emulated import write_emulated
from tests.app.fake_lending import make_decision, make_lease
from tests.app.fake_run import open_writer, write_engine, write_run

PAGE = "app_pages/decisions.py"
MAIN = str(Path(__file__).parents[2] / "app" / "main.py")
RUN = "lends-1"

INPUTS = {"version": 8, "start_cap": None, "group_s": 0.5}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> DataDir:
    monkeypatch.setenv("BIDIRL_DATA_DIR", str(tmp_path))
    monkeypatch.setenv("BIDIRL_USER", "ana")
    return DataDir(tmp_path)


def write(folder: DataDir, run_id: str = RUN, **given: Any) -> None:
    """A run that lends, over for a while."""
    now = time.time()
    writer = open_writer(folder, now)
    write_engine(writer, now=now + 600)
    values = {"state": "finished", "arm": "bidirectional", "steps": 6, "spans": False} | given
    write_run(writer, run_id, now=now - 60, **values)
    writer.close()


def decide(folder: DataDir, *decisions: DecisionRow, leases: tuple[Any, ...] = (), run_id: str = RUN) -> None:
    writer = open_writer(folder, time.time())
    writer.decisions([replace(d, run_id=run_id) for d in decisions])
    writer.leases([replace(lease, run_id=run_id) for lease in leases])
    writer.close()


def opened(run: str | None = RUN, **address: str) -> AppTest:
    page = AppTest.from_file(MAIN, default_timeout=30.0)
    page.switch_page(PAGE)
    for name, value in ({"run": run} if run else {}).items():
        page.query_params[name] = value
    for name, value in address.items():
        page.query_params[name] = value
    page.run()
    assert not page.exception, page.exception
    return page


def words(page: AppTest) -> str:
    """Everything that the page says."""
    parts = [*page.markdown, *page.caption, *page.subheader, *page.error, *page.warning, *page.info, *page.code]
    return "\n".join([*(str(part.value) for part in parts), *(str(part.body) for part in page.get("html"))])


GRANT = make_decision(
    id=4, action="lend", lease=1, at=1000.0, gain_s=1.25, cost_s=0.25, reason="12 <b>groups</b> $are$ missing.",
    inputs=INPUTS,
)  # fmt: skip
END = make_decision(id=5, action="end", lease=1, at=1001.0, gain_s=None, cost_s=None, reason="The home role is back.")
REFUSED = make_decision(id=6, at=1002.0, block=None)
LEASE = make_lease(
    lease=1, granted_at=1000.0, working_at=1000.25, ended_at=1000.5, released_at=1001.0, measured_gain_s=-0.5,
    regret_s=0.5, gain_s=1.25, cost_s=0.25, phases={"in_fetch": 0.125}, end_reason="its work was done",
)  # fmt: skip


def test_without_a_database_it_says_what_to_start(folder: DataDir) -> None:
    assert "No engine has run here yet" in words(opened(None))


def test_an_unknown_run_is_named(folder: DataDir) -> None:
    write(folder)
    page = opened("gone-1")
    assert "There is no such run" in words(page)
    assert [code.value for code in page.code] == ["gone-1"]


def test_an_arm_that_never_lends_says_so_and_has_no_list(folder: DataDir) -> None:
    write(folder, arm="no_borrow")
    page = opened()
    assert "Arm no\\_borrow lends nothing" in words(page)
    assert not page.dataframe
    assert "Every decision" not in words(page)


def test_a_run_that_lends_and_decided_nothing_says_so_and_offers_no_filters(folder: DataDir) -> None:
    write(folder)
    page = opened()
    assert "Nothing was decided in this run." in words(page)
    assert not page.text_input


def test_the_newest_decision_is_open_until_one_is_chosen(folder: DataDir) -> None:
    write(folder)
    decide(folder, GRANT, END, REFUSED, leases=(LEASE,))
    page = opened()
    assert "**Decision 6** · refused" in words(page)
    assert list(page.dataframe[0].value["what"]) == ["refused", "ended · 1", "lent · 1"]
    # predicted 1.25 s at 0.25 s; of the refusal 0.25 s at 0.4 s
    assert list(page.dataframe[0].value["predicted"].round(6))[0::2] == [-0.15, 1.0]
    assert page.dataframe[0].value["measured"].iloc[2] == -0.5


@pytest.mark.parametrize("address", [{"lease": "1"}, {"decision": "4"}], ids=["lease", "decision"])
def test_the_address_opens_a_decision_with_all_that_there_is_to_say(folder: DataDir, address: dict[str, str]) -> None:
    write(folder)
    decide(folder, GRANT, END, REFUSED, leases=(LEASE,))
    page = opened(**address)
    said = words(page)
    assert "**Decision 4** · lent · lease 1" in said
    assert "It was expected to win 1.25 s and to cost 0.25 s." in said
    assert "Costs deducted, it lost 0.50 s." in said
    assert "12 &lt;b&gt;groups&lt;/b&gt; $are$ missing." in said, "a reason is never markup"
    for told in ("version of the weights", "fetching weights", "first useful work", "The policy ended it\\: its work"):
        assert told in said
    (link,) = [element for element in page.get("page_link") if "Timeline" in element.label]
    # three tenths of the lease's second, but at least two seconds to either side
    assert "t0=998.000&t1=1003.000" in link.query_string
    assert [button.label for button in page.button if button.label == "its end"]


@pytest.mark.parametrize(
    ("address", "told"),
    [
        ({"decision": "99"}, "This run has no decision 99."),
        ({"lease": "9"}, "This run has no decision about lease 9."),
        ({"lease": "<b>"}, "The address asks for lease '\\<b\\>', which must be a number."),
        ({"decision": "1" * 20}, "which must be a number"),
    ],
    ids=["no such decision", "no such lease", "no number", "no number that fits"],
)
def test_an_address_that_asks_for_nothing_says_so(folder: DataDir, address: dict[str, str], told: str) -> None:
    write(folder)
    decide(folder, REFUSED)
    page = opened(**address)
    assert told in words(page)
    assert "**Decision 6** · refused" in words(page)


def test_filters_narrow_and_a_field_that_cannot_be_read_narrows_nothing(folder: DataDir) -> None:
    write(folder)
    decide(folder, GRANT, END, REFUSED, leases=(LEASE,))
    page = opened()
    page.selectbox(key="decisions_action").select("lend").run()
    assert list(page.dataframe[0].value["what"]) == ["lent · 1"]
    page.text_input(key="decisions_lease").input("x").run()
    assert "must be the number of a lease, got 'x'" in words(page)
    assert list(page.dataframe[0].value["what"]) == ["lent · 1"]
    page.text_input(key="decisions_lease").input("8").run()
    assert "No decision matches these filters." in words(page)
    page.text_input(key="decisions_lease").input("").run()
    page.selectbox(key="decisions_action").select("").run()
    page.toggle(key="decisions_lost").set_value(True).run()
    assert list(page.dataframe[0].value["what"]) == ["ended · 1", "lent · 1"]


def test_a_page_is_a_page_and_the_way_back_ends_at_the_newest(folder: DataDir) -> None:
    write(folder)
    decide(folder, *(make_decision(id=n, at=1000.0 + n) for n in range(PAGE_ROWS + 30)))
    page = opened()
    assert f"{PAGE_ROWS} of {PAGE_ROWS + 30} decisions" in words(page)
    assert page.button(key="decisions_newer").disabled
    page.button(key="decisions_older").click().run()
    assert len(page.dataframe[0].value) == 30
    assert page.button(key="decisions_older").disabled
    assert "the list stands still" in words(page)
    page.button(key="decisions_newer").click().run()
    assert len(page.dataframe[0].value) == PAGE_ROWS
    assert page.button(key="decisions_newer").disabled, "there is nothing above: it follows the newest again"


def test_the_way_up_gives_the_next_page_and_not_the_newest(folder: DataDir) -> None:
    write(folder)
    decide(folder, *(make_decision(id=n) for n in range(3 * PAGE_ROWS)))
    with TelemetryReader(folder.telemetry_db) as reader:
        run = reader.run(RUN)
        assert run is not None
        up = read(reader, run, DecisionFilter(), Place(after=PAGE_ROWS - 1), None)
        assert [up.rows[0].id, up.rows[-1].id, up.place, up.older] == [
            2 * PAGE_ROWS - 1, PAGE_ROWS, Place(after=PAGE_ROWS - 1), True
        ]  # fmt: skip
        top = read(reader, run, DecisionFilter(), Place(after=2 * PAGE_ROWS - 1), None)
        assert [top.rows[0].id, top.place] == [3 * PAGE_ROWS - 1, Place()]


def test_a_guard_that_holds_a_direction_off_is_told_with_its_sentence(folder: DataDir) -> None:
    write(folder, guards={"train_on_rollout": "Off for 20 windows: its last 8 leases lost 0.4 s."})
    page = opened()
    assert "guard: holds it off" in words(page)
    assert "guard: lends" in words(page), "the other direction"
    assert "Off for 20 windows" in words(page)


def test_emulated_seconds_are_modelled_and_say_so(folder: DataDir) -> None:
    now = time.time()
    writer = open_writer(folder, now)
    write_engine(writer, now=now + 600)
    write_emulated(writer, "emulated-1", now=now - 60, steps=4, state="finished")
    writer.close()
    page = opened("emulated-1", lease="1")
    said = words(page)
    # 0.41 and 0.266 seconds at a scale of 0.02
    assert "It was expected to win 20.5 s and to cost 13.3 s, modelled." in said
    assert ":violet-badge[EMULATED]" in said
    assert "1 second here stands for 50" in said


def test_a_run_of_a_long_name_with_markup_is_shown(folder: DataDir) -> None:
    write(folder, name="<b>$x$</b> " * 11, lending=True, spans=True)
    assert "trainer's devices generate" in words(opened())


@pytest.mark.parametrize("state", ["finished", "running"])
def test_a_database_that_breaks_leaves_the_last_picture(folder: DataDir, state: str) -> None:
    write(folder, state=state)
    decide(folder, GRANT, END, REFUSED, leases=(LEASE,))
    page = opened()
    for path in folder.root.glob("telemetry.db*"):
        path.write_bytes(b"nothing of the kind")
    page.run()
    assert not page.exception, page.exception
    assert "The database cannot be read" in words(page)
    assert list(page.dataframe[0].value["what"]) == ["refused", "ended · 1", "lent · 1"]
