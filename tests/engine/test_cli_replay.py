"""`bidirl replay`: what it says of decisions that come out the same, of others, and of runs without any."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from engine.cli.main import main
from planner.policy.decide import decide
from planner.replay import encode
from storage.paths import DataDir
from storage.records import StateRow
from storage.writer import TelemetryWriter
from tests.policy.builders import make_rollout, make_state, make_train

RUN = "demo-1129-101500-ab12"


def store(root: Path, rows: list[bytes]) -> None:
    writer = TelemetryWriter(DataDir(root).telemetry_db)
    writer.run(RUN, name="demo", state="finished", arm="bidirectional", created_at=1.8e9)
    writer.states([StateRow(run_id=RUN, seq=place, at=1.8e9, data=data) for place, data in enumerate(rows)])
    writer.close()


def call(monkeypatch: pytest.MonkeyPatch, root: Path, *words: str) -> int:
    monkeypatch.setattr("sys.argv", ["bidirl", "replay", RUN, *words, "--data-dir", str(root)])
    with pytest.raises(SystemExit) as ended:
        main()
    return int(ended.value.code or 0)


@pytest.fixture
def state() -> object:
    return make_state(rollout=(make_rollout(0),), train=(make_train(1),))


def test_decisions_that_come_out_the_same_are_counted(state, tmp_path, monkeypatch, capsys) -> None:
    taken = decide(state, 5.0)
    assert taken
    store(tmp_path, [encode(state, 5.0, taken)] * 3)
    assert call(monkeypatch, tmp_path) == 0
    assert "3 stored decisions" in capsys.readouterr().out
    assert call(monkeypatch, tmp_path, "--json") == 0
    assert json.loads(capsys.readouterr().out) == {"run_id": RUN, "decisions": 3, "differences": []}


def test_a_decision_that_comes_out_differently_is_shown_and_fails(state, tmp_path, monkeypatch, capsys) -> None:
    store(tmp_path, [encode(state, 5.0, decide(state, 5.0)), encode(state, 5.0, ())])
    assert call(monkeypatch, tmp_path) == 1
    assert "1 of 2 stored decisions" in capsys.readouterr().out


def test_a_run_without_stored_decisions_and_damaged_data_are_bad_input(tmp_path, monkeypatch, capsys) -> None:
    store(tmp_path, [])
    assert call(monkeypatch, tmp_path) == 2
    assert "stored no decision" in capsys.readouterr().err
    store(tmp_path, [b"\x00damaged"])
    assert call(monkeypatch, tmp_path) == 2
    assert "this is no stored decision" in capsys.readouterr().err
