"""Windows of rollups that are kept between refreshes: the same numbers as read afresh, and only new bins unpacked."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from app import detail, folded
from app.binned import binned
from app.folded import FoldedWindows
from app.live_frame import View, read_frame
from storage.paths import DataDir
from storage.reader import TelemetryReader
from storage.writer import TelemetryWriter
from tests.e2e.generated import Recipe, sized, write_live
from tests.e2e.generated_live import FakeEngine, Report

NOW = 1_790_000_000.0
RECIPE = sized("GENERATED-24", 24, 9000, hours=0.1, now=NOW)


@pytest.fixture
def folder(tmp_path: Path) -> DataDir:
    made = DataDir(tmp_path)
    write_live(made, RECIPE, NOW, leases=5, commands=1)
    return made


def go_on(folder: DataDir, recipe: Recipe, *moments: float) -> None:
    """The run goes on until the last of these moments."""
    writer = TelemetryWriter(folder.telemetry_db, clock=lambda: NOW)
    engine = FakeEngine(writer, recipe, NOW)
    for at in moments:
        engine.advance(at)
    engine.beat(Report())
    writer.close()


@pytest.mark.parametrize("size", [1, 5], ids=["a row a device", "five devices a row"])
def test_a_kept_window_gives_the_numbers_of_a_fresh_one_and_unpacks_only_what_changed(
    folder: DataDir, monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    unpacked: list[int] = []
    decode = folded.decode
    monkeypatch.setattr(folded, "decode", lambda blobs, *how: unpacked.append(len(blobs)) or decode(blobs, *how))
    rows = [
        detail.Row(label=f"{d}", devices=tuple(range(d, min(d + size, 24))), key=f"row:{d}") for d in range(0, 24, size)
    ]
    kept = FoldedWindows()

    def read(windows: FoldedWindows, t1: float) -> tuple[np.ndarray, np.ndarray]:
        with TelemetryReader(folder.telemetry_db) as reader:
            return windows.read(reader, RECIPE.run_id, 1, rows, t1 - 120, t1)

    read(kept, NOW)
    go_on(folder, RECIPE, NOW + 3.0)
    bins, ms = read(kept, NOW + 3.0)
    fresh_bins, fresh = read(FoldedWindows(), NOW + 3.0)
    np.testing.assert_array_equal(bins, fresh_bins)
    np.testing.assert_array_equal(ms, fresh)
    # 120 bins, then those of three seconds and of what was open (a span lasts a second), then all of them again
    assert unpacked[0] == unpacked[2] == 120
    assert 3 <= unpacked[1] < 12
    read(kept, NOW + 3.0)
    assert unpacked[3] == 0


def test_only_the_windows_that_are_looked_at_are_kept(folder: DataDir, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folded, "KEPT_WINDOWS", 2)
    kept = FoldedWindows()
    with TelemetryReader(folder.telemetry_db) as reader:
        for device in range(5):
            row = detail.Row(label="", devices=(device,), key=f"device:{device}")
            kept.read(reader, RECIPE.run_id, 1, [row], NOW - 60, NOW)
    assert len(kept._windows) == 2


def test_a_live_run_read_again_and_again_has_the_sums_of_one_read_at_once(
    folder: DataDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    # few spans are too many here, so that all of it comes from rollups
    monkeypatch.setattr("app.device_time.EXACT_SPANS", 10)
    monkeypatch.setattr("app.detail.MAX_RAW_SPANS", 10)
    last = None
    writer = TelemetryWriter(folder.telemetry_db, clock=lambda: NOW)
    engine = FakeEngine(writer, RECIPE, NOW)
    for at in (NOW, NOW + 61.3, NOW + 200.0, NOW + 400.7):
        engine.advance(at)
        engine.beat(Report())
        writer.flush()
        with TelemetryReader(folder.telemetry_db) as reader:
            run = reader.run(RECIPE.run_id)
            assert run is not None
            last = read_frame(reader, run, View(window_s=300.0), now=at, last=last)
            fresh = read_frame(reader, run, View(window_s=300.0), now=at, last=None)
        for device, sums in fresh.whole.items():
            assert last.whole[device] == pytest.approx(sums, abs=1e-6)
        np.testing.assert_array_equal(last.seconds, fresh.seconds)
    writer.close()
    assert last is not None
    assert last.settled is not None
    assert last.settled.until % 60 == 0


def test_a_window_from_rollups_holds_the_time_of_its_spans(folder: DataDir, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [detail.Row(label=f"{d}", devices=(d,), key=f"device:{d}") for d in range(24)]
    window = (NOW - 100.0, NOW - 10.0)
    with TelemetryReader(folder.telemetry_db) as reader:
        raw, by_spans = binned(reader, RECIPE.run_id, rows, window, [], NOW)
        monkeypatch.setattr("app.detail.MAX_RAW_SPANS", 10)
        rolled, by_rollups = binned(reader, RECIPE.run_id, rows, window, [], NOW)
    assert (raw.source, rolled.source) == ("raw", "rollup")
    assert (raw.t0, raw.t1) == (rolled.t0, rolled.t1) == window
    # a millisecond a device and column
    np.testing.assert_allclose(by_rollups.sum(axis=1), by_spans.sum(axis=1), atol=0.0011)


def test_what_is_read_at_one_moment_does_not_see_what_comes_meanwhile(folder: DataDir) -> None:
    with TelemetryReader(folder.telemetry_db) as reader:
        with reader.one_moment():
            before = reader.count_spans(RECIPE.run_id, RECIPE.start, NOW + 600, 10**6)
            go_on(folder, RECIPE, NOW + 20.0)
            assert reader.count_spans(RECIPE.run_id, RECIPE.start, NOW + 600, 10**6) == before
        assert reader.count_spans(RECIPE.run_id, RECIPE.start, NOW + 600, 10**6) > before
