"""The worst bubbles: joined, ranked, whole, and the same as a look at every span finds."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from app import timeline_worst
from app.timeline_worst import EVERY_S, Worst, read_worst, stretches, together
from storage.reader import TelemetryReader
from storage.records import RunRow, Span
from storage.writer import TelemetryWriter
from tests.app.test_detail import T0, ledgers, make_span

RUN = RunRow(run_id="r", state="finished")
ALL = frozenset(range(8))


def idle(t0: float, t1: float, device: int = 0, cause: str = "no_work") -> Span:
    return make_span(t0, t1, "idle", device, cause)


def test_pieces_of_one_wait_are_joined_and_another_cause_or_work_ends_it() -> None:
    pieces = [idle(0, 60), idle(60, 65), idle(65, 70, cause="paused"), make_span(70, 80), idle(80, 81, cause="paused")]
    found = [(s.cause, s.t0 - T0, s.t1 - T0) for s in stretches(pieces[::-1])]
    assert found == [("no_work", 0, 65), ("paused", 65, 70), ("paused", 80, 81)]


def test_devices_that_wait_together_are_one_bubble_ranked_by_their_time_together() -> None:
    pieces = [idle(0, 9, device=0), *(idle(20.01 * 1, 25 + 0.01 * d, device=d) for d in range(1, 4))]
    found = together(stretches(pieces))
    assert [b.devices for b in found] == [(1, 2, 3), (0,)]
    assert found[0].device_s == pytest.approx(3 * 4.99 + 0.06)


def test_devices_that_wait_for_different_things_are_different_bubbles() -> None:
    found = together(stretches([idle(0, 9, device=0), idle(0, 9, device=1, cause="paused")]))
    assert sorted(b.devices for b in found) == [(0,), (1,)]


def find(spans: list[Span], window: tuple[float, float], opened: list[Span] | None = None) -> Worst:
    with tempfile.TemporaryDirectory() as root:
        writer = TelemetryWriter(Path(root) / "telemetry.db", clock=lambda: T0)
        writer.spans(spans)
        writer.close()
        with TelemetryReader(Path(root) / "telemetry.db") as reader:
            return read_worst(
                reader, RUN, (T0 + window[0], T0 + window[1]), opened or [], ALL, sliding=False, now=T0, last=None
            )


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(ledgers(), st.integers(0, 60), st.integers(5, 90), st.sampled_from([3, 800]))
def test_the_list_is_what_a_look_at_every_span_finds(spans: list[Span], low: int, length: int, pieces: int) -> None:
    window = (T0 + low, T0 + low + length)
    touched = [s for s in stretches(spans) if s.t1 > window[0] and s.t0 < window[1]]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(timeline_worst, "PIECES", pieces)
        found = find(spans, (low, low + length)).bubbles
    if pieces == 800:
        assert found == together(touched[: timeline_worst.CANDIDATES])
        return
    # with few pieces read, each that is listed is whole all the same, and the longest one is there
    whole = {(s.device, s.cause, s.t0, s.t1) for s in touched}
    for bubble in found:
        assert any((d, bubble.cause, bubble.t0, bubble.t1) in whole for d in bubble.devices) or len(bubble.devices) > 1
    if touched:
        assert max(b.t1 - b.t0 for b in found) >= max(s.seconds for s in touched) - 1e-6


def test_a_wait_of_an_hour_is_told_in_its_whole_length(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timeline_worst, "PIECES", 5)
    found = find([make_span(0, 10), idle(10, 3613.5), make_span(3613.5, 3700)], (100, 200)).bubbles
    assert [(b.t0 - T0, b.t1 - T0) for b in found] == [(10, 3613.5)]


def test_a_wait_that_goes_on_is_joined_with_what_is_stored_of_it() -> None:
    spans = [idle(0, 30), make_span(30, 31), idle(31, 40)]
    found = find(spans, (0, 100), opened=[idle(40, 75)]).bubbles
    assert [(b.t0 - T0, b.t1 - T0) for b in found] == [(31, 75), (0, 30)]


def test_a_wait_counts_from_the_first_possible_rollout_to_the_last_step(tmp_path: Path) -> None:
    writer = TelemetryWriter(tmp_path / "telemetry.db")
    writer.spans([*(idle(t, t + 10) for t in range(0, 40, 10)), make_span(40, 45), idle(45, 60)])
    writer.close()
    run = RunRow(run_id="r", state="finished", training_at=T0 + 33, measured_until=T0 + 50)
    with TelemetryReader(tmp_path / "telemetry.db") as reader:
        worst = read_worst(reader, run, (T0 + 33, T0 + 50), [], ALL, sliding=False, now=T0, last=None)
    assert [(b.t0 - T0, b.t1 - T0, b.device_s) for b in worst.bubbles] == [(33, 40, 7), (45, 50, 5)]


def test_only_devices_that_are_shown_are_listed() -> None:
    with tempfile.TemporaryDirectory() as root:
        writer = TelemetryWriter(Path(root) / "telemetry.db", clock=lambda: T0)
        writer.spans([idle(0, 9, device=0), idle(0, 5, device=1)])
        writer.close()
        with TelemetryReader(Path(root) / "telemetry.db") as reader:
            found = read_worst(reader, RUN, (T0, T0 + 10), [], frozenset({1}), sliding=False, now=T0, last=None).bubbles
    assert [b.devices for b in found] == [(1,)]


@pytest.mark.parametrize(
    ("moved", "sliding", "later", "again"),
    [(0.0, False, 1e6, False), (1.0, True, 1.0, False), (1.0, False, 1.0, True), (1.0, True, EVERY_S + 1, True)],
    ids=["the same window", "slid on a little", "another window", "a while later"],
)
def test_the_list_is_searched_again_only_when_it_could_be_another(
    moved: float, sliding: bool, later: float, again: bool
) -> None:
    with tempfile.TemporaryDirectory() as root:
        writer = TelemetryWriter(Path(root) / "telemetry.db", clock=lambda: T0)
        writer.spans([idle(0, 9)])
        writer.close()
        with TelemetryReader(Path(root) / "telemetry.db") as reader:
            one = read_worst(reader, RUN, (T0, T0 + 10), [], ALL, sliding=sliding, now=T0, last=None)
            window = (T0 + moved, T0 + 10 + moved)
            other = read_worst(reader, RUN, window, [], ALL, sliding=sliding, now=T0 + later, last=one)
    assert (other is not one) == again
