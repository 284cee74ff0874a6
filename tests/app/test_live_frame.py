"""One frame of the Live page, read from a written data folder."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from app.key_figures import total
from app.lending import SHOWN_DECISIONS
from app.live_frame import Frame, View, read_frame
from storage.paths import DataDir
from storage.reader import TelemetryReader
from storage.retention import record_missing
from tests.app.fake_lending import make_decision
from tests.app.fake_run import NOW, open_writer, write_engine, write_folder, write_run


def frame_of(folder: DataDir, *, now: float = NOW, view: View | None = None, run_id: str = "demo-0001") -> Frame:
    with TelemetryReader(folder.telemetry_db) as reader:
        run = reader.run(run_id)
        assert run is not None
        view = view or View(window_s=300.0)
        return read_frame(reader, run, view, now=now, last=None)


def test_whole_run_sums_equal_the_spans_and_the_open_ones(tmp_path: Path) -> None:
    frame = frame_of(write_folder(tmp_path, steps=30))
    # both devices are known from the first rollout until 0.2 s ago, when their workers were last heard
    wall = NOW - 0.2 - (NOW - 30 * 4.0 - 1.0)
    assert [sum(frame.whole[d].values()) for d in (0, 1)] == pytest.approx([wall, wall], abs=1e-3)
    assert "startup" not in total(frame.whole)


def test_a_second_frame_reads_only_the_new_steps_and_agrees_with_the_first(tmp_path: Path) -> None:
    folder = write_folder(tmp_path, steps=100)
    with TelemetryReader(folder.telemetry_db) as reader:
        run = reader.run("demo-0001")
        assert run is not None
        first = read_frame(reader, run, View(window_s=300.0), now=NOW, last=None)
        second = read_frame(reader, run, View(window_s=300.0), now=NOW, last=first)
    assert first.whole == second.whole
    assert second.bubbles is first.bubbles
    assert [s.step for s in second.steps] == [s.step for s in first.steps] == list(range(1, 101))


def test_recent_sums_cover_the_last_five_minutes_only(tmp_path: Path) -> None:
    frame = frame_of(write_folder(tmp_path, steps=100))
    assert sum(frame.recent[0].values()) == pytest.approx(300.0 - 0.2, abs=1e-3)
    assert sum(frame.whole[0].values()) > 390


def test_zooming_in_asks_for_finer_bins_and_a_margin(tmp_path: Path) -> None:
    folder = write_folder(tmp_path, steps=60)
    wide = frame_of(folder, view=View(window_s=None))
    close = frame_of(folder, view=View(window_s=None, viewport=(NOW - 20, NOW - 10)))
    assert close.plan.bin_s < wide.plan.bin_s
    assert close.plan.t0 <= NOW - 25
    assert close.plan.t1 >= NOW - 5
    assert close.window == wide.window


@pytest.mark.parametrize(
    ("state", "beat_age_s", "effective"),
    [
        ("running", 0.5, "running"),
        ("running", 43.0, "interrupted"),
        ("finished", 43.0, "finished"),
        ("paused", 2.0, "paused"),
    ],
)
def test_the_state_is_what_it_means_now(tmp_path: Path, state: str, beat_age_s: float, effective: str) -> None:
    frame = frame_of(write_folder(tmp_path, beat_age_s=beat_age_s, state=state))
    assert frame.state == effective
    assert frame.engine_silent == (effective == "interrupted")


def test_a_run_of_another_engine_life_is_interrupted(tmp_path: Path) -> None:
    assert frame_of(write_folder(tmp_path, engine_id="engine-0")).state == "interrupted"


def test_late_telemetry_is_noticed_while_the_engine_beats(tmp_path: Path) -> None:
    folder = DataDir(tmp_path)
    writer = open_writer(folder, NOW)
    write_engine(writer, now=NOW + 12)
    write_run(writer, now=NOW)
    writer.close()
    frame = frame_of(folder, now=NOW + 12)
    assert frame.telemetry_late_s == pytest.approx(12.2)
    assert frame_of(folder, now=NOW + 2).telemetry_late_s is None


def test_a_run_that_waits_has_a_frame_without_device_time(tmp_path: Path) -> None:
    frame = frame_of(
        write_folder(tmp_path, steps=0, state="queued", spans=False, training_at=None, measured_until=None)
    )
    assert (frame.whole, frame.recent, frame.as_of, frame.bubbles) == ({}, {}, None, None)


def test_many_devices_are_read_as_groups_and_sums_stay_exact(tmp_path: Path) -> None:
    frame = frame_of(write_folder(tmp_path, steps=12, pools=(200, 72)))
    assert len(frame.rows) == 34
    one = frame_of(
        write_folder(tmp_path / "one", steps=12, pools=(200, 72)), view=View(window_s=300.0, opened="node:node3")
    )
    assert [r.devices for r in one.rows] == [(d,) for d in range(24, 32)]
    # 38 s of start-up and 12 steps of 4 s
    assert one.seconds.sum(axis=(1, 2)) == pytest.approx(38.0 + 48.0 + 0.8, abs=1e-3)


def test_raw_spans_that_are_too_many_are_read_as_rollups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = write_folder(tmp_path, steps=60)
    raw = frame_of(folder, view=View(window_s=None))
    monkeypatch.setattr("app.detail.MAX_RAW_SPANS", 50)
    rolled = frame_of(folder, view=View(window_s=None))
    assert (raw.plan.source, rolled.plan.source) == ("raw", "rollup")
    assert rolled.seconds.sum() == pytest.approx(raw.seconds.sum(), abs=2.5)


def test_raw_spans_that_retention_deleted_are_read_as_rollups(tmp_path: Path) -> None:
    folder = write_folder(tmp_path, state="finished", steps=40)
    with sqlite3.connect(folder.telemetry_db) as connection:
        gone = connection.execute("SELECT run_id, min(t0), max(t1), count(*) FROM spans").fetchone()
        record_missing(connection, gone[0], "retention", *gone[1:])
        connection.execute("DELETE FROM spans")
    frame = frame_of(folder, view=View(window_s=None))
    assert frame.plan.source == "rollup"
    assert frame.seconds.sum() == pytest.approx(2 * 160.0, abs=4.0)


def test_leases_are_marked_in_the_window_that_is_drawn_and_counted_over_the_run(tmp_path: Path) -> None:
    folder = write_folder(tmp_path, steps=100, lending=True, arm="bidirectional")
    whole = frame_of(folder, view=View(window_s=None)).lending
    last = frame_of(folder, view=View(window_s=60.0)).lending
    with TelemetryReader(folder.telemetry_db) as reader:
        stored = reader.leases("demo-0001")
    assert len(whole.marked) == len(stored) > 2 * len(last.marked) > 0
    assert all(lease.released_at is not None and lease.released_at >= NOW - 61 for lease in last.marked)
    assert last.counts == whole.counts
    assert sum(counts["admitted"] for counts in last.counts.values()) == len(stored)
    assert len(last.decisions) == SHOWN_DECISIONS
    assert {d.lease for d in last.decisions if d.lease} == set(last.leases)


@pytest.mark.parametrize(
    ("state", "later_s", "counted"),
    [("running", 1.0, 0), ("running", 4.0, 1), ("finished", 1.0, 1)],
    ids=["young sums are kept", "old ones are read again", "a run that is over is counted for good"],
)
def test_sums_over_leases_are_not_counted_every_second(
    tmp_path: Path, state: str, later_s: float, counted: int
) -> None:
    folder = write_folder(tmp_path, arm="bidirectional")
    first = frame_of(folder)
    writer = open_writer(folder, NOW)
    writer.decisions([make_decision()])
    writer.run("demo-0001", state=state)
    writer.close()
    with TelemetryReader(folder.telemetry_db) as reader:
        run = reader.run("demo-0001")
        assert run is not None
        lending = read_frame(reader, run, View(window_s=300.0), now=NOW + later_s, last=first).lending
    assert lending.counts["rollout_on_train"]["refused"] == counted
    assert len(lending.decisions) == 1
