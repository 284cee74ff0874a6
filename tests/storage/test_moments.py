"""Queries around a moment: what is found, in which order, and where it ends."""

from __future__ import annotations

from pathlib import Path

import pytest

from storage.reader import TelemetryReader
from storage.records import LogRow
from storage.writer import TelemetryWriter
from tests.storage.builders import RUN, T0, make_group, make_lease, make_span


@pytest.fixture
def reader(tmp_path: Path) -> TelemetryReader:
    writer = TelemetryWriter(tmp_path / "telemetry.db", clock=lambda: T0)
    writer.spans([make_span(5.0 * i, 5.0) for i in range(10)])
    writer.spans(
        [
            make_span(0, 1, device=1, kind="idle", cause="no_work"),
            make_span(1, 7, device=1),
            make_span(8, 3, device=1, kind="idle", cause="no_work"),
            make_span(11, 150, device=1, kind="idle", cause="staleness_cap"),
        ]
    )
    writer.leases(
        [
            make_lease(lease=1, granted_at=T0, released_at=T0 + 4),
            make_lease(lease=2, granted_at=T0 + 2, released_at=None),
            make_lease(lease=3, granted_at=T0 + 9, released_at=T0 + 12),
        ]
    )
    writer.groups(
        [
            make_group(group_id=1, device=1, started_at=T0, finished_at=T0 + 2),
            make_group(group_id=2, device=1, started_at=T0 + 1, finished_at=T0 + 6),
            make_group(group_id=3, device=0, started_at=T0 + 1, finished_at=T0 + 6),
        ]
    )
    for at, level in ((0, "info"), (1, "warning"), (2, "error"), (3, "warning")):
        writer.log(LogRow(run_id=RUN, at=T0 + at, level=level, text=f"{level} {at}"))
    writer.close()
    return TelemetryReader(tmp_path / "telemetry.db")


@pytest.mark.parametrize(
    ("at", "expected"),
    [(0.0, [1]), (3.0, [1, 2]), (4.0, [2]), (9.5, [2, 3]), (-1.0, [])],
    ids=["when it is granted", "two at once", "one is home", "an open one goes on", "before any"],
)
def test_leases_at_a_moment_are_those_that_are_out(reader: TelemetryReader, at: float, expected: list[int]) -> None:
    assert [lease.lease for lease in reader.leases_at(RUN, T0 + at)] == expected


def test_of_many_leases_at_a_moment_the_last_granted_are_kept(reader: TelemetryReader) -> None:
    assert [lease.lease for lease in reader.leases_at(RUN, T0 + 3, limit=1)] == [2]


def test_the_longest_idle_pieces_come_first_and_long_ones_in_pieces(reader: TelemetryReader) -> None:
    found = [(round(s.t0 - T0, 3), round(s.seconds, 3)) for s in reader.longest_idle(RUN, T0, T0 + 500, limit=10)]
    assert found == [(11, 60), (71, 60), (131, 30), (8, 3), (0, 1)]
    assert len(reader.longest_idle(RUN, T0, T0 + 500, limit=2)) == 2
    # one that only reaches into the window is found whole
    assert [s.t0 - T0 for s in reader.longest_idle(RUN, T0 + 9, T0 + 10, limit=5)] == [8]


def test_the_spans_next_to_a_moment_are_those_of_one_device_on_both_sides(reader: TelemetryReader) -> None:
    found = reader.spans_near(RUN, 1, T0 + 1)
    assert [(s.device, s.t0 - T0) for s in found][:3] == [(1, 0), (1, 1), (1, 8)]
    assert [s.t0 - T0 for s in reader.spans_near(RUN, 1, T0 + 1.5, count=1)] == [1, 8]


def test_neighbours_of_a_moment_are_the_span_before_it_and_the_one_from_it_on(reader: TelemetryReader) -> None:
    before, after = reader.span_before(RUN, 1, T0 + 8), reader.span_from(RUN, 1, T0 + 8)
    assert before is not None
    assert after is not None
    assert (before.t0 - T0, after.t0 - T0) == (1, 8)
    assert reader.span_before(RUN, 1, T0) is None
    assert reader.span_from(RUN, 1, T0 + 1000) is None


def test_groups_on_a_device_were_being_generated_there_then(reader: TelemetryReader) -> None:
    assert [g.group_id for g in reader.groups_on(RUN, 1, T0 + 3, T0 + 5)] == [2]
    assert [g.group_id for g in reader.groups_on(RUN, 1, T0 + 1.5, T0 + 5)] == [1, 2]
    assert reader.groups_on(RUN, 1, T0 + 6, T0 + 9) == []


def test_lines_of_the_log_are_found_by_time_and_level(reader: TelemetryReader) -> None:
    told = reader.logs_in(RUN, T0, T0 + 3, ("warning", "error"))
    assert [line.text for line in told] == ["warning 1", "error 2"]
    with pytest.raises(ValueError, match="level must be one of"):
        reader.logs_in(RUN, T0, T0 + 3, ("loud",))


def test_where_raw_spans_are_gone_is_told_for_the_part_inside_the_window(tmp_path: Path) -> None:
    writer = TelemetryWriter(tmp_path / "telemetry.db", clock=lambda: T0, max_queue_rows=3, flush_s=60.0)
    with writer.together():  # nothing is written meanwhile, so that the queue overflows
        for number in range(6):
            writer.spans([make_span(number * 10.0, 10.0)])
    writer.close()
    reader = TelemetryReader(tmp_path / "telemetry.db")
    gone = reader.raw_gone(RUN, T0, T0 + 45)
    assert gone is not None
    assert gone[0] >= T0 + 20
    assert gone[1] == T0 + 45
    assert reader.raw_gone(RUN, T0, T0 + 10) is None
