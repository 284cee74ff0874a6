"""The telemetry writer: what is reported is stored, what is dropped is counted, and no failure is silent."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from storage.reader import TelemetryReader
from storage.records import DeviceRow, DeviceState, EvalRow, LogRow
from storage.writer import TelemetryWriter, WriterFailed
from tests.storage.builders import RUN, T0, chain, make_group, make_span, make_step, seconds_of

NEVER_S = 3600.0
"""A flush interval that leaves flushing to the test."""

Open = Callable[..., TelemetryWriter]


@pytest.fixture
def open_writer(tmp_path: Path) -> Iterator[Open]:
    writers: list[TelemetryWriter] = []

    def open_it(**options: Any) -> TelemetryWriter:
        options = {"flush_s": NEVER_S, "flush_rows": 10**9, "clock": lambda: T0 + 100} | options
        writers.append(TelemetryWriter(tmp_path / "data" / "telemetry.db", **options))
        return writers[-1]

    yield open_it
    for writer in writers:
        if writer._failure is None:
            writer.close()


def close_to(given: dict[int, dict[str, float]], expected: dict[int, dict[str, float]], within_s: float) -> None:
    assert {d: c.keys() for d, c in given.items()} == {d: c.keys() for d, c in expected.items()}
    for device, columns in expected.items():
        assert given[device] == pytest.approx(columns, abs=within_s)


def test_everything_reported_can_be_read_after_a_flush(open_writer: Open) -> None:
    writer = open_writer()
    writer.engine("e1", pid=1, state="ready", started_at=T0, beat_at=T0)
    writer.run(RUN, name="demo", state="running", created_at=T0, staleness=1.0, partition="1:1", engine_id="e1")
    writer.devices(RUN, [DeviceRow(device=i, node="n", pool=pool) for i, pool in enumerate(("rollout", "train"))])
    writer.step(make_step(lag={0: 3, 1: 1}))
    writer.groups([make_group(group_id=i, responses=[{"text": "4", "reward": 1.0}]) for i in range(2)])
    writer.eval(EvalRow(run_id=RUN, step=0, name="held_out", accuracy=0.25, items=4, at=T0))
    writer.log(LogRow(run_id=RUN, at=T0, level="info", text="Step 1 took 2.0 s."))
    state = DeviceState(device=0, kind="idle", cause="no_work", since=T0, seen_at=T0 + 1)
    writer.device_states(RUN, [state])
    writer.spans([make_span()])
    writer.flush()
    with TelemetryReader(writer.path) as reader:
        engine, run = reader.engine(), reader.run(RUN)
        assert engine is not None
        assert run is not None
        assert (engine.engine_id, engine.state, engine.cpu_s) == ("e1", "ready", None)
        assert (run.name, run.state, run.partition, run.excluded, run.result) == ("demo", "running", "1:1", {}, None)
        assert [device.pool for device in reader.devices(RUN)] == ["rollout", "train"]
        assert reader.steps(RUN) == [make_step(lag={0: 3, 1: 1})]
        assert [group.group_id for group in reader.groups(RUN)] == [1, 0]
        assert [row.accuracy for row in reader.evals(RUN)] == [0.25]
        assert [row.text for row in reader.logs(RUN)] == ["Step 1 took 2.0 s."]
        assert reader.device_states(RUN) == [state]
        assert reader.spans(RUN, T0, T0 + 10) == [make_span()]


def test_a_receipt_says_without_waiting_when_what_came_before_it_is_stored(open_writer: Open) -> None:
    writer = open_writer()
    assert writer.stored(writer.receipt()), "nothing was reported"
    writer.step(make_step())
    receipt = writer.receipt()
    deadline = time.monotonic() + 30
    while not writer.stored(receipt):
        assert time.monotonic() < deadline
        time.sleep(0.001)
    assert TelemetryReader(writer.path).steps(RUN) == [make_step()]


def test_a_run_is_updated_field_by_field_and_wrong_fields_are_refused(open_writer: Open) -> None:
    writer = open_writer()
    writer.run(RUN, name="demo", state="queued", created_at=T0)
    writer.run(RUN, state="running", excluded={"no_signal": 2})
    writer.run(RUN, steps=3)
    writer.flush()
    run = TelemetryReader(writer.path).run(RUN)
    assert run is not None
    assert (run.name, run.state, run.steps, run.excluded) == ("demo", "running", 3, {"no_signal": 2})
    for wrong in ({"stat": "running"}, {"state": "dead"}):
        with pytest.raises(ValueError, match=r"no field 'stat'|must be one of queued"):
            writer.run(RUN, **wrong)
    with pytest.raises(ValueError, match="arm, excluded of a run must not be None"):
        writer.run(RUN, arm=None, excluded=None, error=None)
    with pytest.raises(ValueError, match="state of an engine must be one of starting"):
        writer.engine("e1", state="up")


def test_a_long_span_is_stored_in_pieces_and_a_late_one_lands_in_its_old_bins(open_writer: Open) -> None:
    writer = open_writer()
    spans = chain([150.0, 30.0, 400.0, 0.25])
    for batch in (spans[1:], spans[:1]):
        writer.spans(batch)
        writer.flush()
    late = make_span(0.5, 0.25, device=1)
    writer.close()
    writer = open_writer()
    writer.spans([late])
    writer.flush()
    with TelemetryReader(writer.path) as reader:
        stored = reader.spans(RUN, T0, T0 + 1000)
        assert max(span.seconds for span in stored) <= 60.0
        close_to(seconds_of(stored), seconds_of([*spans, late]), 1e-6)
        for res in (1, 10, 60):
            ms = reader.rollup(RUN, res, T0, T0 + 1000).ms.sum(axis=(0, 2))
            assert ms.tolist() == [580_250, 250]


def test_only_the_newest_open_span_of_a_device_is_kept(open_writer: Open) -> None:
    writer = open_writer()
    for i in range(3):
        writer.device_states(RUN, [DeviceState(device=0, kind="optimizer", since=T0 + i, seen_at=T0 + i)])
        writer.flush()
    assert [state.since for state in TelemetryReader(writer.path).device_states(RUN)] == [T0 + 2]


def test_on_overflow_raw_spans_are_dropped_and_counted_but_no_time_is_lost(open_writer: Open) -> None:
    writer = open_writer(max_queue_rows=10)
    spans = chain([0.5] * 25)
    writer.spans(spans)
    writer.step(make_step())
    assert writer.stats.spans_dropped == 15
    assert writer.stats.queue_depth == 11
    assert writer.stats.flush_lag_s > 0
    writer.flush()
    assert (writer.stats.queue_depth, writer.stats.flush_lag_s) == (0, 0.0)
    with TelemetryReader(writer.path) as reader:
        assert reader.count_spans(RUN, T0, T0 + 100, cap=1000) == 10
        assert reader.steps(RUN) == [make_step()]
        assert reader.rollup(RUN, 1, T0, T0 + 100).ms.sum() == 12_500
        close_to(reader.kind_seconds(RUN, T0, T0 + 100), seconds_of(spans), 0.001)


def test_rows_that_must_not_be_lost_are_admitted_a_while_and_then_refused_loudly(open_writer: Open) -> None:
    writer = open_writer(max_queue_rows=5)
    writer.spans(chain([0.5] * 9))
    for i in range(5):
        writer.step(make_step(step=i))
    with pytest.raises(RuntimeError, match="10 telemetry rows wait, at most 10 may"):
        writer.step(make_step(step=5))


def test_a_flush_that_cannot_commit_ends_at_its_deadline(open_writer: Open) -> None:
    writer = open_writer()
    blocker = sqlite3.connect(writer.path, isolation_level=None)
    blocker.execute("BEGIN IMMEDIATE")
    writer.step(make_step())
    with pytest.raises(TimeoutError, match=r"did not commit within 0\.05 s; 1 rows wait"):
        writer.flush(0.05)
    blocker.execute("ROLLBACK")
    writer.flush()
    assert TelemetryReader(writer.path).steps(RUN) == [make_step()]


def test_a_failure_of_the_thread_is_raised_at_every_later_call(open_writer: Open) -> None:
    writer = open_writer()
    writer.spans([make_span(), make_span(seconds=2.0)])
    for call in (writer.flush, writer.close, lambda: writer.step(make_step()), lambda: writer.spans([])):
        with pytest.raises(WriterFailed, match="UNIQUE constraint failed: spans") as caught:
            call()
        assert caught.value.path == writer.path
    assert writer.stats.queue_depth == 2


def test_values_that_sqlite_cannot_store_are_refused_where_they_are_reported(open_writer: Open) -> None:
    writer = open_writer()
    for report in (
        lambda: writer.step(make_step(loss=np.float32(0.5))),
        lambda: writer.spans([make_span(step=np.int64(3))]),
        lambda: writer.run(RUN, base_dir=Path("/jobs")),
    ):
        with pytest.raises(TypeError, match="stored can be int, float, str, bytes, None"):
            report()
    writer.step(make_step(loss=np.float64(0.5)))
    writer.flush()
    assert TelemetryReader(writer.path).steps(RUN) == [make_step(loss=0.5)]


KILLED = """
import os, sys
from pathlib import Path
from storage.writer import TelemetryWriter
from tests.storage.builders import T0, chain, make_step
writer = TelemetryWriter(Path(sys.argv[1]), clock=lambda: T0, flush_s=3600, flush_rows=10**9)
writer.spans(chain([0.5] * 10))
writer.step(make_step())
writer.flush()
writer.spans(chain([0.5] * 10, device=1))
os.kill(os.getpid(), 9)
"""


def test_a_killed_engine_loses_only_what_was_not_flushed_and_the_next_one_goes_on(open_writer: Open) -> None:
    path = open_writer().path
    assert subprocess.run([sys.executable, "-c", KILLED, str(path)], timeout=60, check=False).returncode == -9
    with TelemetryReader(path) as reader:
        assert reader.count_spans(RUN, T0, T0 + 100, cap=100) == 10
        assert reader.steps(RUN) == [make_step()]
        writer = open_writer()
        writer.spans(chain([0.5] * 10, start=5))
        writer.flush()
        assert reader.rollup(RUN, 60, T0, T0 + 100).ms.sum() == 10_000


def test_rows_are_committed_without_a_flush_after_the_interval_or_enough_rows(open_writer: Open) -> None:
    writers: list[TelemetryWriter] = []
    for options in ({"flush_s": 0.01}, {"flush_rows": 3}):
        writers.append(writer := open_writer(**options))
        writer.groups([make_group(group_id=i) for i in range(3)])
        with writer._changed:
            assert writer._changed.wait_for(lambda: writers[-1].stats.rows_written == 3, 10)
        writer.close()


def test_closing_writes_what_waits_and_then_refuses(open_writer: Open) -> None:
    writer = open_writer()
    writer.step(make_step())
    writer.close()
    writer.close()
    assert TelemetryReader(writer.path).steps(RUN) == [make_step()]
    assert writer.stats.rows_written == 1
    with pytest.raises(RuntimeError, match="writer is closed"):
        writer.step(make_step())


def test_what_is_reported_together_is_committed_together(open_writer: Open) -> None:
    writer = open_writer(flush_s=0.0005)
    reader = sqlite3.connect(f"file:{writer.path}?mode=ro", uri=True)
    for i in range(200):
        with writer.together():
            writer.spans([make_span(i)])
            writer.device_states(RUN, [DeviceState(device=0, kind="optimizer", since=T0 + i + 1, seen_at=T0 + i + 1)])
        closed, opened = reader.execute("SELECT max(t1), (SELECT since FROM device_state) FROM spans").fetchone()
        assert closed == opened
    reader.close()


def test_deleting_a_run_leaves_nothing_of_it_and_everything_of_others(open_writer: Open) -> None:
    writer = open_writer()
    for run_id in (RUN, "run-2"):
        writer.run(run_id, name=run_id, created_at=T0)
        writer.spans(chain([0.5] * 10, run_id=run_id))
        writer.step(make_step(run_id=run_id))
        writer.groups([make_group(run_id=run_id)])
        writer.log(LogRow(run_id=run_id, at=T0, level="info", text="x"))
        writer.devices(run_id, [DeviceRow(device=0, node="n")])
        writer.device_states(run_id, [DeviceState(device=0, kind="optimizer", since=T0, seen_at=T0)])
    writer.flush()
    writer.spans([make_span(20)])
    writer.delete_run(RUN)
    writer.spans([make_span(20, run_id="run-2")])
    writer.flush()
    with sqlite3.connect(writer.path) as connection:
        for table in ("runs", "spans", "rollups", "steps", "groups", "logs", "devices", "device_state"):
            assert connection.execute(f"SELECT DISTINCT run_id FROM {table}").fetchall() == [("run-2",)], table
    with TelemetryReader(writer.path) as reader:
        assert reader.rollup("run-2", 60, T0, T0 + 100).ms.sum() == 6000
        assert reader.run(RUN) is None


def test_writing_survives_a_reader_in_the_middle_of_a_query(open_writer: Open) -> None:
    writer = open_writer()
    writer.spans(chain([0.5] * 100))
    writer.flush()
    reader = sqlite3.connect(f"file:{writer.path}?mode=ro", uri=True)
    cursor = reader.execute("SELECT * FROM spans")
    cursor.fetchone()
    writer.spans(chain([0.5] * 100, device=1))
    writer.flush()
    assert len(cursor.fetchall()) == 99
    reader.close()
