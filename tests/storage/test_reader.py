"""The read-only reader: windows, filters, exact sums, and every way a database can be unreadable."""

from __future__ import annotations

import os
import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlite_utils import Database

from storage import words
from storage.database import SchemaTooNew, TelemetryBroken, TelemetryMissing, open_for_writing
from storage.reader import TelemetryReader
from storage.records import LogRow, RunRow
from storage.schema import TELEMETRY
from storage.writer import TelemetryWriter
from tests.storage.builders import RUN, T0, chain, make_group, make_span, make_step, seconds_of

SPANS = chain([0.7, 65.0, 0.02, 3.3, 130.0, 1.0] * 3, device=0) + chain([17.1, 0.4] * 8, device=1, start=2.5)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A database with `SPANS`, three runs, steps, groups and logs."""
    writer = TelemetryWriter(tmp_path / "telemetry.db", clock=lambda: T0)
    writer.spans(SPANS)
    for i in range(3):
        writer.run(f"run-{i}", state="finished" if i else "running", created_at=T0 + i)
    for i in range(1, 5):
        writer.step(make_step(step=i))
    writer.groups(
        [
            make_group(
                group_id=i,
                step=i // 2,
                lag=i % 3,
                state="excluded" if i == 5 else "consumed",
                prompt=f"{i} + {i} = ",
                responses=[{"text": f'so "{2 * i}"\nit is\\ 100%', "reward": 1.0}],
            )
            for i in range(6)
        ]
    )
    for i in range(5):
        writer.log(LogRow(run_id=RUN, at=T0 + i, level="info", text=str(i)))
    writer.close()
    return tmp_path / "telemetry.db"


@pytest.fixture
def reader(path: Path) -> TelemetryReader:
    return TelemetryReader(path)


def test_runs_come_newest_first_and_by_state(reader: TelemetryReader) -> None:
    assert [run.run_id for run in reader.runs()] == ["run-2", "run-1", "run-0"]
    assert [run.run_id for run in reader.runs(limit=1, state="running")] == ["run-0"]
    assert reader.run("run-1") == RunRow(run_id="run-1", state="finished", created_at=T0 + 1)
    assert reader.run("nobody") is None
    assert reader.engine() is None


def test_the_runs_of_a_comparison_come_in_their_order_and_the_comparisons_newest_first(tmp_path: Path) -> None:
    writer = TelemetryWriter(tmp_path / "telemetry.db", clock=lambda: T0)
    plan = {"repeats": 2, "labels": ["no_borrow", "bidirectional"]}
    for i, (comparison, label, state) in enumerate(
        [
            ("first", "no_borrow", "finished"),
            (None, None, "finished"),
            ("first", "bidirectional", "failed"),
            ("second", "no_borrow", "running"),
            ("first", "bidirectional", "finished"),
        ]
    ):
        writer.run(
            f"run-{i}",
            name="demo",
            kind="cpu",
            state=state,
            created_at=T0 + i,
            comparison=comparison,
            comparison_label=label,
            comparison_repeat=1 + i // 3 if comparison else None,
            comparison_plan=plan if comparison else None,
        )
    writer.close()
    with TelemetryReader(tmp_path / "telemetry.db") as reader:
        runs = reader.comparison("first")
        assert [(run.run_id, run.comparison_label, run.comparison_repeat) for run in runs] == [
            ("run-0", "no_borrow", 1),
            ("run-2", "bidirectional", 1),
            ("run-4", "bidirectional", 2),
        ]
        assert runs[0].comparison_plan == plan
        assert reader.comparison("third") == []
        found = reader.comparisons()
        assert [(each.comparison, each.runs, each.finished) for each in found] == [("second", 1, 0), ("first", 3, 2)]
        assert (found[1].name, found[1].kind, found[1].created_at) == ("demo", "cpu", T0)
        assert [each.comparison for each in reader.comparisons(limit=1)] == ["second"]


def test_runs_of_an_older_database_belong_to_no_comparison(tmp_path: Path) -> None:
    old = Database(tmp_path / "telemetry.db")
    TELEMETRY.apply(old, stop_before="m005_comparisons")
    old.table("runs").insert({"run_id": RUN, "name": "demo", "state": "finished", "created_at": T0})
    old.close()
    open_for_writing(tmp_path / "telemetry.db", TELEMETRY).close()
    with TelemetryReader(tmp_path / "telemetry.db") as reader:
        run = reader.run(RUN)
        assert run is not None
        assert (run.name, run.comparison, run.comparison_plan) == ("demo", None, None)
        assert reader.comparisons() == []


def test_steps_from_a_number_on_include_it(reader: TelemetryReader) -> None:
    assert [step.step for step in reader.steps(RUN)] == [1, 2, 3, 4]
    assert [step.step for step in reader.steps(RUN, since=3)] == [3, 4]


@pytest.mark.parametrize(
    ("filters", "expected"),
    [
        pytest.param({}, [5, 4, 3, 2, 1, 0], id="all"),
        pytest.param({"step": 1}, [3, 2], id="step"),
        pytest.param({"state": "excluded"}, [5], id="state"),
        pytest.param({"search": "4 + 4"}, [4], id="in the prompt"),
        pytest.param({"search": 'SO "6"\nit'}, [3], id="in a response, quoted, over lines, any case"),
        pytest.param({"search": "100%"}, [5, 4, 3, 2, 1, 0], id="a percent sign is a percent sign"),
        pytest.param({"search": "reward"}, [], id="not in the names of fields"),
        pytest.param({"limit": 2, "offset": 1}, [4, 3], id="page"),
    ],
)
def test_groups_are_filtered(reader: TelemetryReader, filters: dict[str, object], expected: list[int]) -> None:
    assert [group.group_id for group in reader.groups(RUN, **filters)] == expected  # type: ignore[arg-type]


def test_the_lag_histogram_counts_consumed_groups(reader: TelemetryReader) -> None:
    assert reader.lag_histogram(RUN) == {0: 2, 1: 2, 2: 1}


def test_logs_are_the_last_ones_or_those_after_an_id(reader: TelemetryReader) -> None:
    last = reader.logs(RUN, limit=2)
    assert [row.text for row in last] == ["3", "4"]
    first = reader.logs(RUN)[0].id
    assert [row.text for row in reader.logs(RUN, limit=2, after_id=first)] == ["1", "2"]


def test_a_window_finds_the_spans_that_reach_into_it(reader: TelemetryReader) -> None:
    window = T0 + 30.0, T0 + 61.0
    found = reader.spans(RUN, *window)
    assert all(span.t0 < window[1] and span.t1 > window[0] for span in found)
    assert sum(s for c in seconds_of(found, *window).values() for s in c.values()) == pytest.approx(2 * 31.0)
    assert reader.count_spans(RUN, *window, cap=100) == len(found)
    assert reader.count_spans(RUN, *window, cap=2) == 2
    assert reader.spans(RUN, *window, limit=1) == found[:1]


def test_a_rollup_window_has_only_bins_that_exist(reader: TelemetryReader) -> None:
    window = reader.rollup(RUN, 10, T0 - 1000, T0 + 20)
    assert window.starts.tolist() == [T0, T0 + 10]
    assert window.ms.shape == (2, 2, len(words.COLUMNS))
    assert window.ms.sum(axis=2).tolist() == [[10_000, 7_500], [10_000, 10_000]]
    assert reader.rollup("nobody", 1, T0, T0 + 10).ms.shape == (0, 0, len(words.COLUMNS))
    with pytest.raises(ValueError, match="res must be one of 1, 10, 60, got 5"):
        reader.rollup(RUN, 5, T0, T0 + 10)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(start=st.floats(-10, 700), length=st.floats(0.001, 700))
def test_kind_seconds_are_the_spans_clipped_to_the_window(reader: TelemetryReader, start: float, length: float) -> None:
    window = T0 + start, T0 + start + length
    expected = seconds_of(SPANS, *window)
    exact, quick = reader.kind_seconds(RUN, *window), reader.kind_seconds(RUN, *window, quick=True)
    for device in expected.keys() | exact.keys() | quick.keys():
        columns = expected.get(device, {})
        assert exact.get(device, {}) == pytest.approx(columns, abs=1e-5)
        for column in columns.keys() | quick.get(device, {}).keys():
            assert abs(quick.get(device, {}).get(column, 0.0) - columns.get(column, 0.0)) <= 0.00101


@pytest.mark.parametrize("deleted", [(), (1,), (1, 10)], ids=["all rollups", "no 1 s", "only 60 s"])
def test_where_raw_spans_are_gone_rollups_stand_in(path: Path, deleted: tuple[int, ...]) -> None:
    gone_until = T0 + 200.0
    with sqlite3.connect(path) as connection:
        connection.execute("DELETE FROM spans WHERE t0 < ?", [gone_until - 60])
        connection.execute("INSERT INTO raw_missing VALUES (?, 'retention', ?, ?, 1)", [RUN, T0, gone_until])
        for res in deleted:
            connection.execute("DELETE FROM rollups WHERE res = ? AND bin < ?", [res, int(T0 + 1000) // res])
    reader = TelemetryReader(path)
    for window in ((T0, T0 + 1000), (T0 + 40, T0 + 400), (T0 + 220 + 20, T0 + 300)):
        aligned = window[0] if window[0] % 60 == 0 or not deleted else window[0] // 60 * 60
        found = reader.kind_seconds(RUN, aligned, window[1])
        expected = seconds_of(SPANS, aligned, window[1])
        for device, columns in expected.items():
            assert found[device] == pytest.approx(columns, abs=0.002)


def test_an_open_database_that_was_deleted_and_made_anew_is_opened_again(path: Path, reader: TelemetryReader) -> None:
    for file in path.parent.glob("telemetry.db*"):
        file.unlink()
    with pytest.raises(TelemetryMissing, match="was deleted"):
        reader.runs()
    writer = TelemetryWriter(path)
    writer.run("fresh", created_at=T0)
    writer.close()
    assert [run.run_id for run in reader.runs()] == ["fresh"]


def test_the_reader_cannot_write(reader: TelemetryReader) -> None:
    with pytest.raises(sqlite3.OperationalError, match="readonly"):
        reader._connection.execute("DELETE FROM runs")


def add_migration(path: Path) -> None:
    with sqlite3.connect(path) as connection:
        connection.execute("INSERT INTO _sqlite_migrations (migration_set, name) VALUES ('telemetry', 'm999_later')")


def remove_migration(path: Path) -> None:
    with sqlite3.connect(path) as connection:
        connection.execute("DELETE FROM _sqlite_migrations WHERE name LIKE 'm003%'")


def overwrite_middle(path: Path) -> None:
    with open(path, "r+b") as file:
        file.write(os.urandom(4096))


def only_header(path: Path) -> None:
    path.unlink()
    sqlite3.connect(path).execute("PRAGMA journal_mode=WAL")


@pytest.mark.parametrize(
    ("spoil", "error", "told"),
    [
        pytest.param(lambda path: path.unlink(), TelemetryMissing, "start an engine", id="missing"),
        pytest.param(lambda path: shutil.rmtree(path.parent), TelemetryMissing, "start an engine", id="no folder"),
        pytest.param(lambda path: path.write_bytes(b""), TelemetryMissing, "start an engine", id="empty"),
        pytest.param(only_header, TelemetryMissing, "no tables", id="being made"),
        pytest.param(add_migration, SchemaTooNew, "newer program .knows m999_later", id="newer"),
        pytest.param(remove_migration, TelemetryBroken, "older than this program .lacks m003", id="older"),
        pytest.param(overwrite_middle, TelemetryBroken, "not a database", id="corrupt"),
    ],
)
def test_an_unreadable_database_says_what_it_is_and_where(
    path: Path, spoil: Callable[[Path], None], error: type[Exception], told: str
) -> None:
    spoil(path)
    with pytest.raises(error, match=told) as caught:
        TelemetryReader(path)
    assert caught.value.path == path  # type: ignore[attr-defined]


def test_a_database_locked_for_longer_than_the_timeout_is_broken_and_later_fine(path: Path) -> None:
    locker = sqlite3.connect(path, isolation_level=None)
    locker.execute("PRAGMA locking_mode=EXCLUSIVE")
    locker.execute("BEGIN EXCLUSIVE")
    with pytest.raises(TelemetryBroken, match="locked"):
        TelemetryReader(path, timeout_s=0.02)
    locker.execute("ROLLBACK")
    locker.close()
    assert len(TelemetryReader(path).runs()) == 3


def test_a_database_that_breaks_while_it_is_open_is_reported_and_not_raised_as_sqlite(path: Path) -> None:
    reader = TelemetryReader(path)
    open_for_writing(path, TELEMETRY).execute("DROP TABLE steps")
    with pytest.raises(TelemetryBroken, match="no such table: steps"):
        reader.steps(RUN)


def test_rollups_and_spans_agree_on_idle_time(reader: TelemetryReader) -> None:
    idle = [words.COLUMNS.index(column) for column in words.IDLE_COLUMNS]
    truth = sum(span.seconds for span in SPANS if span.kind == "idle")
    for res in words.RESOLUTIONS_S:
        ms = reader.rollup(RUN, res, T0, T0 + 1000).ms[:, :, idle]
        assert ms.dtype == np.int32
        assert ms.sum() / 1000 == pytest.approx(truth, abs=0.005)


def test_a_span_without_length_is_not_stored(tmp_path: Path) -> None:
    writer = TelemetryWriter(tmp_path / "t.db", clock=lambda: T0)
    writer.spans([make_span(seconds=0.0), make_span(seconds=1.0)])
    writer.close()
    assert TelemetryReader(tmp_path / "t.db").spans(RUN, T0, T0 + 2) == [make_span(seconds=1.0)]
