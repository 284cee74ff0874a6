"""The head of every page: which runs the picker calls live, and whose heartbeat stands beside the status."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest

from app.header import status_of
from storage.paths import DataDir
from storage.records import EngineRow, RunRow
from storage.words import RUN_STATES, TERMINAL
from tests.app.fake_run import NOW, open_writer, write_engine, write_run
from tests.app.test_live_page import MAIN, TIMEOUT_S


@pytest.mark.parametrize("page", ["live", "timeline", "control", "decisions", "learning"])
@pytest.mark.parametrize(("beat_age_s", "live"), [(0.5, True), (60.0, False)], ids=["heard", "silent"])
def test_the_picker_calls_a_run_live_only_while_its_status_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, page: str, beat_age_s: float, live: bool
) -> None:
    monkeypatch.setenv("BIDIRL_DATA_DIR", str(tmp_path))
    now = time.time()
    writer = open_writer(DataDir(tmp_path), now)
    write_engine(writer, now=now, beat_age_s=beat_age_s)
    write_run(writer, "over", now=now - 900, state="finished")
    write_run(writer, "goes-on", now=now)
    writer.close()
    shown = AppTest.from_file(MAIN, default_timeout=TIMEOUT_S).run()
    if page != "live":
        shown.switch_page(f"app_pages/{page}.py")
    shown.query_params["run"] = "goes-on"
    shown.run()
    assert not shown.exception
    picker = next(box for box in shown.selectbox if box.label == "Run")
    assert [option.startswith("live") for option in picker.options] == [live, False]


@pytest.mark.parametrize("state", RUN_STATES)
def test_a_run_that_is_over_has_no_heartbeat_and_no_time_left_beside_it(state: str) -> None:
    run = RunRow(run_id="r", name="demo", kind="cpu", state=state, arm="no_borrow", job="")
    engine = EngineRow(engine_id="e", beat_at=NOW - 3)
    told = status_of(run, state, engine, NOW, 125.0, deterministic=False)
    assert ("left" in str(told["facts"])) == (state not in TERMINAL)
    # an interrupted run ended with its engine, whose silence says when
    assert bool(told["beat"]) == (state not in TERMINAL or state == "interrupted")
