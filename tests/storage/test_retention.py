"""Retention: the old goes in chunks, the sums stay, and the reader is told what is gone."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from storage import retention
from storage.database import connect_for_writing
from storage.reader import TelemetryReader
from storage.retention import Limits, Retention
from storage.writer import TelemetryWriter
from tests.storage.builders import RUN, T0, chain, make_span, seconds_of

HOUR = 3600.0
DAY = 24 * HOUR
SPANS = chain([1.0] * 600) + chain([1.0] * 600, device=1)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Ten minutes of two devices."""
    writer = TelemetryWriter(tmp_path / "telemetry.db", clock=lambda: T0)
    writer.run(RUN, created_at=T0)
    writer.spans(SPANS)
    writer.close()
    return tmp_path / "telemetry.db"


def swept(path: Path, now: float, **limits: float) -> list[int]:
    connection = connect_for_writing(path)
    chunks = list(Retention(connection, Limits(**limits)).sweep(now))  # type: ignore[arg-type]
    connection.close()
    return chunks


@pytest.mark.parametrize(
    ("age", "left"),
    [
        pytest.param(1 * HOUR, (1200, 600, 60, 10), id="fresh: everything stays"),
        pytest.param(6 * HOUR + 300, (600, 600, 60, 10), id="after six hours the older raw spans go"),
        pytest.param(1 * DAY, (0, 600, 60, 10), id="a day: rollups stay"),
        pytest.param(1 * DAY + 300, (0, 320, 60, 10), id="after a day the older 1 s rollups go, by whole minutes"),
        pytest.param(2 * DAY, (0, 0, 60, 10), id="later all 1 s rollups"),
        pytest.param(31 * DAY, (0, 0, 0, 10), id="after a month the 10 s rollups go, 60 s stay"),
    ],
)
def test_what_is_left_after(path: Path, age: float, left: tuple[int, int, int, int]) -> None:
    swept(path, T0 + age)
    reader = TelemetryReader(path)
    window = RUN, T0, T0 + HOUR
    rollups = [len(reader.rollup(RUN, res, *window[1:]).bins) for res in (1, 10, 60)]
    # T0 is 20 s after a full minute, so ten minutes touch eleven 60 s bins.
    assert (reader.count_spans(*window, cap=5000), *rollups[:2], rollups[2] - 1) == left
    # From the bin's edge on: a coarse bin that the window cuts could only be guessed at.
    found, truth = reader.kind_seconds(RUN, T0 - 20, T0 + HOUR), seconds_of(SPANS)
    for device, columns in truth.items():
        assert found[device] == pytest.approx(columns, abs=0.002)


def test_too_many_rows_lose_the_oldest_of_all_runs_in_chunks(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retention, "CHUNK_ROWS", 100)
    writer = TelemetryWriter(path, clock=lambda: T0)
    writer.spans(chain([1.0] * 100, run_id="older", start=-500))
    writer.close()
    chunks = [deleted for deleted in swept(path, T0 + 1000, raw_rows=1000) if deleted]
    assert sum(chunks) == 300
    assert max(chunks) <= 101
    reader = TelemetryReader(path)
    assert reader.count_spans("older", T0 - 1000, T0, cap=5000) == 0
    assert reader.spans(RUN, T0, T0 + HOUR)[0].t0 == T0 + 100


def test_chunks_let_others_write_in_between(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retention, "CHUNK_ROWS", 100)
    connection, other = connect_for_writing(path), connect_for_writing(path)
    other.execute("PRAGMA busy_timeout=0")
    for count, _ in enumerate(Retention(connection, Limits()).sweep(T0 + DAY)):
        other.execute("UPDATE runs SET steps = ?", [count])
    assert TelemetryReader(path).count_spans(RUN, T0, T0 + HOUR, cap=10) == 0


def test_a_deleted_run_gives_its_pages_back(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retention, "VACUUM_PAGES", 5)
    connection = connect_for_writing(path)
    pages = connection.execute("PRAGMA page_count").fetchone()[0]
    sweeper = Retention(connection, Limits())
    sweeper.delete_run(RUN)
    assert sweeper.raw_rows == 0
    list(sweeper.sweep(T0))
    left, free = (connection.execute(f"PRAGMA {name}").fetchone()[0] for name in ("page_count", "freelist_count"))
    assert left < pages
    assert free <= left / retention.FREE_SHARE
    assert TelemetryReader(path).runs() == []


def test_the_writer_sweeps_by_itself(path: Path) -> None:
    writer = TelemetryWriter(path, clock=lambda: T0 + DAY, flush_s=0.01)
    reader = TelemetryReader(path)
    deadline = time.monotonic() + 20
    while reader.count_spans(RUN, T0, T0 + HOUR, cap=10):
        assert time.monotonic() < deadline, "the writer deleted no raw spans within 20 s"
        time.sleep(0.01)
    writer.spans([make_span(DAY)])
    writer.close()
    assert reader.count_spans(RUN, T0 + DAY, T0 + DAY + HOUR, cap=10) == 1
