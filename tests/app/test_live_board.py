"""What the ticking part of the Live page is handed, and what becomes of what the reader does there."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from app import live_board
from app.detail import Row
from app.live_board import WINDOWS, answer, opened_key, view_of
from app.live_chart import BoardEvents
from storage.paths import DataDir
from tests.app.fake_run import write_folder
from tests.app.test_live_page import show, told

ROWS = [Row(label="node a", devices=(0, 1), key="node:a"), Row(label="device 2", devices=(2,), key="device:2")]


class Shown:
    """As much of a frame and of a chart as a click needs."""

    run = type("Run", (), {"run_id": "r"})
    rows = ROWS
    clicks = True


@pytest.fixture
def session(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    state: dict[str, Any] = {}
    monkeypatch.setattr("streamlit.session_state", state)
    monkeypatch.setattr("streamlit.rerun", lambda: state.update(again=True))
    return state


@pytest.mark.parametrize(
    ("kept", "length"),
    [({}, 300.0), ({"window": "15 s"}, 15.0), ({"window": "All"}, None), ({"window": "a <b>"}, 300.0)],
    ids=["nothing", "one", "the whole run", "none that there is"],
)
def test_the_window_is_what_was_chosen_or_what_suits_the_run(session: Any, kept: Any, length: float | None) -> None:
    session["timeline:r"] = kept
    assert view_of("r", "5 min").window_s == length


@pytest.mark.parametrize(
    ("events", "opened"),
    [
        ({"click": {"y": 0.2}}, "node:a"),
        ({"click": {"y": 1}}, None),
        ({"back": True}, None),
    ],
    ids=["a group", "a device", "the way back"],
)
def test_a_group_opens_by_a_click_and_closes_again(session: Any, events: Any, opened: str | None) -> None:
    session[opened_key("r")] = "node:z"
    answer(Shown(), Shown(), BoardEvents(**events))  # type: ignore[arg-type]
    assert session == {opened_key("r"): opened, "again": True}


@pytest.mark.parametrize("events", [{}, {"click": {"y": 7}}, {"click": {"y": None}}, {"click": {"y": -1}}])
def test_what_is_no_row_changes_nothing(session: Any, events: Any) -> None:
    session[opened_key("r")] = "node:z"
    answer(Shown(), Shown(), BoardEvents(**events))  # type: ignore[arg-type]
    assert session == {opened_key("r"): "node:z"}


def test_all_that_ticks_is_one_element_of_the_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BIDIRL_DATA_DIR", str(tmp_path))
    write_folder(DataDir(tmp_path).root, now=time.time(), steps=30)
    (board,) = [part for part in told(show()) if "attention" in part]
    assert [card["key"] for card in board["numbers"]] == ["busy", "idle", "tokens", "lag", "buffer"]
    assert board["status"]["said"].endswith(": Running · live")
    assert board["timeline"]["windows"] == list(WINDOWS) == list(live_board.WINDOWS)
    assert (board["timeline"]["window"], board["timeline"]["opened"], board["timeline"]["none"]) == ("5 min", False, "")
    assert board["chart"]["name"].startswith("timeline:")
    for part in (board["status"]["facts_help"], board["timeline"]["help"], board["attention"]["help"]):
        assert part
        assert not {"\\", "*"} & set(part), "no markup: it is shown as it is"
