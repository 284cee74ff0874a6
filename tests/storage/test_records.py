"""Words, records and their way into a row and back."""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path

import pytest

from storage import words
from storage.codec import column_values, columns, from_row, to_row
from storage.device_records import split
from storage.paths import DataDir
from storage.records import DeviceState, EvalRow, GroupRow, LogRow, RunRow, Span, StepRow
from tests.storage.builders import T0, make_group, make_span, make_step


def test_rollup_columns_are_the_busy_kinds_by_role_then_idle_by_cause() -> None:
    assert len(words.COLUMNS) == 22 == words.COLUMNS_OF_VERSION[words.COLUMNS_VERSION]
    assert words.COLUMNS[words.column_index("train", "auxiliary", None)] == "train_aux"
    assert words.COLUMNS[words.column_index("idle", None, "failure")] == "idle_failure"
    assert words.COLUMNS.index("idle_failure") == len(words.BUSY_COLUMNS) == 13


@pytest.mark.parametrize(
    ("given", "told"),
    [
        pytest.param(("rolout", "primary", None), "kind must be one of rollout, .* got 'rolout'", id="unknown kind"),
        pytest.param(("train", None, None), "role of a train span must be one of primary, auxiliary", id="no role"),
        pytest.param(("train", "main", None), "role must be one of primary, auxiliary, got 'main'", id="unknown role"),
        pytest.param(("idle", None, None), "cause of an idle span must be one of failure, .* got None", id="no cause"),
        pytest.param(
            ("optimizer", None, "paused"), "cause of a span of kind optimizer must be None", id="cause while busy"
        ),
    ],
)
def test_a_span_refuses_words_that_do_not_fit(given: tuple[str, str | None, str | None], told: str) -> None:
    kind, role, cause = given
    with pytest.raises(ValueError, match=told):
        make_span(kind=kind, role=role, cause=cause)


@pytest.mark.parametrize(
    "overrides",
    [
        pytest.param({"t1": T0 - 1}, id="backwards"),
        pytest.param({"t0": 0.0}, id="since 1970"),
        pytest.param({"t1": math.nan}, id="not a number"),
        pytest.param({"device": -1}, id="negative device"),
    ],
)
def test_a_span_refuses_impossible_times_and_devices(overrides: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="of a span must be"):
        make_span(**overrides)


def test_other_records_refuse_unknown_words() -> None:
    for make in (
        lambda: make_group(state="lost"),
        lambda: EvalRow(run_id="r", step=1, name="test", accuracy=1.0, items=1, at=T0),
        lambda: LogRow(run_id="r", at=T0, level="fatal", text=""),
        lambda: RunRow(run_id="r", state="dead"),
        lambda: DeviceState(device=0, kind="rollout", since=T0, seen_at=T0),
    ):
        with pytest.raises(ValueError, match="must be one of"):
            make()


@pytest.mark.parametrize(
    "record",
    [
        pytest.param(make_step(lag={0: 20, 1: 12}, metrics={"by_lag": {"0": {"ess": 0.9}}}), id="step"),
        pytest.param(make_group(responses=[{"text": "é\n", "versions": [[3, 5]], "reward": None}]), id="group"),
        pytest.param(RunRow(run_id="r", excluded={"no_signal": 2}, ledger={"ok": True}, partition="1:1"), id="run"),
        pytest.param(make_span(cpu_s=0.5, version=3, step=2, ref="chunk-1"), id="span"),
    ],
)
def test_a_record_survives_its_row(record: StepRow | GroupRow | RunRow | Span) -> None:
    assert from_row(type(record), to_row(record)) == record


def test_a_diverged_step_is_stored_with_null_and_not_refused() -> None:
    row = dict(zip(columns(StepRow), to_row(make_step(metrics={"ess": math.nan, "deep": [math.inf]})), strict=True))
    assert row["metrics_json"] == '{"ess":null,"deep":[null]}'


def test_fields_of_a_run_become_columns_and_unknown_ones_are_named() -> None:
    assert column_values(RunRow, {"excluded": {"a": 1}, "steps": 3}) == {"excluded_json": '{"a":1}', "steps": 3}
    with pytest.raises(ValueError, match="RunRow has no field 'stat'; it has run_id, name"):
        column_values(RunRow, {"stat": "running"})


@pytest.mark.parametrize(
    ("seconds", "lengths"),
    [
        pytest.param(0.0, [], id="no time, no piece"),
        pytest.param(60.0, [60.0], id="just fits"),
        pytest.param(150.0, [60.0, 60.0, 30.0], id="two and a half"),
    ],
)
def test_a_long_span_is_split_at_sixty_seconds(seconds: float, lengths: list[float]) -> None:
    span = make_span(seconds=seconds, cpu_s=seconds / 2)
    pieces = split(span)
    assert [piece.seconds for piece in pieces] == lengths
    assert [piece.cpu_s for piece in pieces] == [length / 2 for length in lengths]
    assert all(dataclasses.replace(piece, t0=span.t0, t1=span.t1, cpu_s=span.cpu_s) == span for piece in pieces)


def test_the_data_folder_is_the_argument_then_the_environment_then_var(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BIDIRL_DATA_DIR", "/data/b")
    assert DataDir.from_env("/data/a").telemetry_db == Path("/data/a/telemetry.db")
    assert DataDir.from_env(None).control_db == Path("/data/b/control.db")
    monkeypatch.delenv("BIDIRL_DATA_DIR")
    assert DataDir.from_env().root == Path.cwd() / "var"


@pytest.mark.parametrize("run_id", ["", "..", "a/b"])
def test_a_run_id_cannot_leave_the_data_folder(run_id: str) -> None:
    with pytest.raises(ValueError, match="run_id must be a plain name"):
        DataDir(Path("/data")).checkpoints(run_id)
