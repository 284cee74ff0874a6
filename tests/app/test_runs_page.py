"""The Runs page under AppTest, and its rows."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
from streamlit.testing.v1 import AppTest

from app.runs_table import can_delete, can_resume, sampled
from storage.mailbox import Mailbox
from storage.paths import DataDir
from storage.words import RUN_STATES
from tests.app.fake_run import open_writer, write_engine, write_run
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


def chosen(row: int) -> dict[str, Any]:
    return {"runs_table": {"selection": {"rows": [row], "columns": [], "cells": []}}}


def test_every_run_is_a_row_with_what_it_lost(folder: DataDir) -> None:
    write_two(folder)
    table = show().dataframe[0].value
    assert list(table["run"]) == ["new-2", "old-1"]
    assert list(table["state"]) == ["running", "stopped"]
    assert list(table["steps"]) == ["20 / 60", "10 / 60"]
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
    page = show(**chosen(1))
    page.button(key=key).click().run()
    assert not page.exception
    assert [t.value for t in page.title] == [title]
    assert page.query_params[query] == "old-1"


def test_deleting_asks_first_and_is_sent_to_the_engine(folder: DataDir) -> None:
    write_two(folder)
    page = show(**chosen(1))
    page.button(key="run_delete_confirm").click().run()
    with Mailbox(folder.control_db) as mailbox:
        assert [(c.kind, c.run_id, c.who) for c in mailbox.list()] == [("delete", "old-1", "ana")]
    assert "Delete is sent and waits for the engine." in words(page)


def test_a_live_run_can_be_neither_resumed_nor_deleted(folder: DataDir) -> None:
    write_two(folder)
    page = show(**chosen(0))
    assert page.button(key="run_resume").disabled


@pytest.mark.parametrize("state", RUN_STATES)
def test_what_may_be_done_with_a_run_in_each_state(state: str) -> None:
    assert can_delete(state) == (state in ("finished", "stopped", "failed", "interrupted"))
    assert can_resume(state) == (state in ("stopped", "failed", "interrupted"))


def test_a_reward_line_is_a_mean_of_neighbours() -> None:
    assert sampled([1.0, 3.0, 5.0, 7.0], 2) == (2.0, 6.0)
    assert sampled([1.0, 3.0], 60) == (1.0, 3.0)
    assert sampled([], 60) == ()
