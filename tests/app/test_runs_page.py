"""The Runs page under AppTest, and its rows."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
from streamlit.testing.v1 import AppTest

from app.access import NotAllowed
from app.runs_marks import change_tags, checked, write_note
from app.runs_page import stamp
from app.runs_table import can_delete, can_resume, sampled
from app.runs_url import Chosen
from storage.mailbox import Mailbox
from storage.paths import DataDir
from storage.words import RUN_STATES
from tests.app.fake_run import open_writer, write_engine, write_run
from tests.app.many_runs import write_many
from tests.app.test_live_page import MAIN, TIMEOUT_S, words


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> DataDir:
    monkeypatch.setenv("BIDIRL_DATA_DIR", str(tmp_path))
    monkeypatch.setenv("BIDIRL_USER", "ana")
    return DataDir(tmp_path)


def write_two(folder: DataDir) -> None:
    now = time.time()
    writer = open_writer(folder, now)
    write_engine(writer, now=now)
    write_run(writer, "old-1", now=now - 900, state="stopped", steps=10, seed=1)
    write_run(writer, "new-2", now=now, steps=20)
    writer.close()


def show(**state: Any) -> AppTest:
    page = AppTest.from_file(MAIN, default_timeout=TIMEOUT_S)
    page.switch_page("app_pages/runs.py")
    for key, value in state.items():
        page.session_state[key] = value
    page.run()
    assert not page.exception, page.exception
    return page


def chosen(*run_ids: str) -> dict[str, Any]:
    """Session state in which these runs were chosen on the table."""
    return {"_runs_chosen": Chosen(ids=run_ids)}


def test_every_run_is_a_row_with_what_it_lost(folder: DataDir) -> None:
    write_two(folder)
    table = show().dataframe[0].value
    assert list(table["run"]) == ["new-2", "old-1"]
    assert list(table["state"]) == ["running", "stopped"]
    assert (list(table["steps"]), list(table["of"])) == ([20, 10], [60, 60])
    assert all(5 < share < 25 for share in table["idle"])
    assert list(table["who"]) == ["ana", "ana"]
    assert len(table["reward"][1]) == 10
    # 10 steps of 4 s on two devices
    lost = table["lost device-h"][1] * 3600
    assert lost == pytest.approx(table["idle"][1] / 100 * 80, rel=0.01)


def test_without_a_database_the_exact_command_is_shown(folder: DataDir) -> None:
    assert f"bidirl serve --data-dir {folder.root}" in words(show())


def test_nothing_is_offered_before_a_run_is_chosen(folder: DataDir) -> None:
    write_two(folder)
    page = show()
    assert "Choose a run" in words(page)
    assert [b for b in page.button if b.key == "run_open"] == []


@pytest.mark.parametrize(
    ("key", "title", "query"),
    [("run_open", "Live", "run"), ("run_clone", "Launch", "clone"), ("run_resume", "Launch", "resume")],
)
def test_a_chosen_run_can_be_opened_cloned_and_resumed(folder: DataDir, key: str, title: str, query: str) -> None:
    write_two(folder)
    page = show(**chosen("old-1"))
    page.button(key=key).click().run()
    assert not page.exception
    assert [t.value for t in page.title] == [title]
    assert page.query_params[query] == "old-1"


def test_deleting_asks_first_and_is_sent_to_the_engine(folder: DataDir) -> None:
    write_two(folder)
    page = show(**chosen("old-1"))
    page.button(key="run_delete_confirm").click().run()
    with Mailbox(folder.control_db) as mailbox:
        assert [(c.kind, c.run_id, c.who) for c in mailbox.list()] == [("delete", "old-1", "ana")]
    assert "Delete is sent and waits for the engine." in words(page)


def test_a_deleted_run_leaves_the_address_and_the_page_says_who_deleted_it(folder: DataDir) -> None:
    write_two(folder)
    page = show(**chosen("old-1", "new-2"))
    with Mailbox(folder.control_db) as mailbox:
        command = mailbox.send("delete", {}, "old-1", who="ben")
        mailbox.accept(command)
    writer = open_writer(folder, time.time())
    writer.delete_run("old-1")
    writer.close()
    page.run()
    assert not page.exception
    assert "**Deleted by ben** · old-1, with telemetry" in words(page)
    assert page.query_params["compare"] == "new-2"
    page.run()
    assert "**Deleted by ben**" in words(page), "the page draws itself again every few seconds"
    page.button(key="runs_clear").click().run()
    assert "Deleted by" not in words(page)


def test_a_live_run_can_be_neither_resumed_nor_deleted(folder: DataDir) -> None:
    write_two(folder)
    page = show(**chosen("new-2"))
    assert page.button(key="run_resume").disabled


@pytest.mark.parametrize("state", RUN_STATES)
def test_what_may_be_done_with_a_run_in_each_state(state: str) -> None:
    assert can_delete(state) == (state in ("finished", "stopped", "failed", "interrupted"))
    assert can_resume(state) == (state in ("stopped", "failed", "interrupted"))


def test_a_reward_line_is_a_mean_of_neighbours() -> None:
    assert sampled([1.0, 3.0, 5.0, 7.0], 2) == (2.0, 6.0)
    assert sampled([1.0, 3.0], 60) == (1.0, 3.0)
    assert sampled([], 60) == ()


def test_several_chosen_runs_are_deleted_together_after_a_question(folder: DataDir) -> None:
    now = time.time()
    write_two(folder)
    writer = open_writer(folder, now)
    write_run(writer, "old-3", now=now - 1900, state="failed", steps=3, seed=2)
    writer.close()
    page = show(**chosen("old-1", "new-2", "old-3"))
    assert [b.label for b in page.button if b.key == "run_open"] == []
    assert "old-1" in words(page)
    assert "1 of the chosen runs go on" in words(page)
    page.button(key="run_delete_confirm").click().run()
    with Mailbox(folder.control_db) as mailbox:
        sent = {(c.kind, c.run_id) for c in mailbox.list()}
    assert sent == {("delete", "old-1"), ("delete", "old-3")}, "the live run stays"


def test_a_search_and_filters_come_from_the_address_and_can_be_cleared(folder: DataDir) -> None:
    write_two(folder)
    page = AppTest.from_file(MAIN, default_timeout=TIMEOUT_S)
    page.switch_page("app_pages/runs.py")
    page.query_params["q"] = "OLD ana"
    page.query_params["state"] = "stopped"
    page.run()
    assert not page.exception
    assert list(page.dataframe[0].value["run"]) == ["old-1"]
    assert "1 of 2 runs" in words(page)
    page.button(key="clear_filters").click().run()
    assert list(page.dataframe[0].value["run"]) == ["new-2", "old-1"]
    page.text_input(key="q").set_value("nothing like that").run()
    assert not page.exception
    assert "No run is like that" in words(page)


def test_a_state_of_the_address_that_no_run_is_in_is_no_filter(folder: DataDir) -> None:
    write_two(folder)
    page = AppTest.from_file(MAIN, default_timeout=TIMEOUT_S)
    page.switch_page("app_pages/runs.py")
    page.query_params["state"] = "exploded"
    page.run()
    assert not page.exception
    assert len(page.dataframe[0].value) == 2


def test_tags_and_notes_are_shown_found_and_written_by_operators(folder: DataDir) -> None:
    write_two(folder)
    with Mailbox(folder.control_db) as mailbox:
        mailbox.add_tag("new-2", "good", who="ben")
    page = show(**chosen("old-1"))
    tags = next(box for box in page.multiselect if box.label == "Tags")
    assert (tags.value, tags.options) == ([], ["good"])
    tags.select("good").run()
    assert not page.exception
    page.text_area[0].set_value("  the **first** one  ").run()
    with Mailbox(folder.control_db) as mailbox:
        assert (mailbox.tags("old-1"), mailbox.note("old-1")) == (("good",), "the **first** one")
    page.text_input(key="q").set_value("good first").run()
    assert list(page.dataframe[0].value["run"]) == ["old-1"]
    next(box for box in page.multiselect if box.label == "Tags").unselect("good").run()
    with Mailbox(folder.control_db) as mailbox:
        assert mailbox.tags("old-1") == ()


def test_a_viewer_can_read_tags_and_notes_and_change_none(folder: DataDir, secret: str) -> None:
    write_two(folder)
    page = show(**chosen("old-1"))
    assert next(box for box in page.multiselect if box.label == "Tags").disabled
    assert page.text_area[0].disabled
    # a disabled field is a courtesy; whoever gets around it is refused where the row is written
    with pytest.raises(NotAllowed):
        change_tags(["old-1"], add=["x"])
    with pytest.raises(NotAllowed):
        write_note("old-1", "x")


def test_a_refused_tag_leaves_its_field_and_the_reason_stays(folder: DataDir) -> None:
    write_two(folder)
    page = show(**chosen("old-1"))
    tags = next(box for box in page.multiselect if box.label == "Tags")
    tags.set_value(["x" * 41]).run()
    for _ in range(2):
        assert not page.exception
        assert "Not saved: a tag has 1 to 40 characters" in words(page)
        assert next(box for box in page.multiselect if box.label == "Tags").value == []
        page.run()
    page.button(key="runs_clear").click().run()
    assert "Not saved" not in words(page)


@pytest.mark.parametrize("tag", ["", "   ", "x" * 41])
def test_a_tag_that_is_none_is_refused_with_its_value(tag: str) -> None:
    with pytest.raises(ValueError, match="a tag has 1 to 40 characters"):
        checked(tag)
    assert checked("  two \n words ") == "two words"


def test_a_table_of_thousands_opens(folder: DataDir) -> None:
    write_many(folder, 2000, now=time.time(), steps=20, interrupted=3)
    page = show()
    assert len(page.dataframe[0].value) == 2000
    assert "2,000 runs" in words(page)


def test_the_page_is_drawn_again_only_when_a_run_moved_on(folder: DataDir) -> None:
    write_two(folder)
    show()
    before = stamp()
    assert stamp() == before
    writer = open_writer(folder, time.time())
    writer.run("new-2", steps=21)
    writer.close()
    assert stamp() != before
