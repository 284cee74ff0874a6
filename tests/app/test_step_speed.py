"""How fast each step was: tokens over its own time, idle shares that equal the spans', and the axes of steps."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from app import step_speed
from app.modelled import REAL, Pace
from app.step_speed import axis, edges, idle_shares, so_far, tokens_per_s
from storage.reader import TelemetryReader
from storage.records import RunRow, Span, StepRow
from storage.writer import TelemetryWriter

T0 = 1_700_000_000.0
RUN = "run-1"


def make_step(step: int, end: float, **fields: Any) -> StepRow:
    values: dict[str, Any] = {
        "run_id": RUN, "step": step, "t_start": T0 + end - 1, "t_end": T0 + end, "groups": 4, "prompt_tokens": 30,
        "response_tokens": 70,
    }  # fmt: skip
    return StepRow(**(values | fields))


STEPS = [make_step(1, 2.0), make_step(2, 4.0), make_step(3, 8.0)]


def test_a_steps_time_is_from_the_end_of_the_one_before() -> None:
    ends = edges(RunRow(run_id=RUN, training_at=T0), STEPS)
    assert [end - T0 for end in ends] == [0.0, 2.0, 4.0, 8.0]
    assert tokens_per_s(STEPS, ends, REAL) == [50.0, 50.0, 25.0]
    assert tokens_per_s(STEPS, ends, Pace(scale=0.5)) == [25.0, 25.0, 12.5]


def test_times_that_run_backwards_give_no_speed_and_never_a_negative_one() -> None:
    steps = [make_step(1, 2.0), make_step(2, 1.0)]
    ends = edges(RunRow(run_id=RUN, training_at=T0), steps)
    assert tokens_per_s(steps, ends, REAL) == [50.0, None]
    assert edges(RunRow(run_id=RUN), []) == []


@pytest.mark.parametrize(
    ("kind", "x", "title"),
    [
        ("step", [1.0, 2.0, 3.0], "step"),
        ("wall", [2.0, 4.0, 8.0], "seconds since training began"),
        ("tokens", [100.0, 200.0, 300.0], "tokens of the steps so far"),
        ("device_hours", [2 * 4 / 3600, 4 * 4 / 3600, 8 * 4 / 3600], "device-hours since training began"),
    ],
)
def test_steps_lie_on_each_axis(kind: str, x: list[float], title: str) -> None:
    found = axis(kind, STEPS, edges(RunRow(run_id=RUN, training_at=T0), STEPS), 4, REAL)
    assert found.x == pytest.approx(x)
    assert (found.title, found.zero) == (title, 0.0)


def test_long_runs_are_told_in_hours_and_emulated_ones_in_modelled_time() -> None:
    steps = [make_step(1, 3600.0)]
    ends = edges(RunRow(run_id=RUN, training_at=T0), steps)
    found = axis("wall", steps, ends, 1, Pace(scale=0.1))
    assert (found.x, found.title) == ([10.0], "hours since training began, modelled")
    with pytest.raises(ValueError, match="axis must be one of step"):
        axis("weeks", steps, ends, 1, REAL)


intervals = st.lists(st.tuples(st.floats(-50, 50), st.floats(0, 20)), max_size=30)


@given(intervals, st.lists(st.floats(-60, 60), min_size=1, max_size=12))
def test_time_so_far_is_the_sum_of_what_lies_between(found: list[tuple[float, float]], moments: list[float]) -> None:
    at = np.array(sorted(moments))
    begins, ends = np.array([a for a, _ in found]), np.array([a + length for a, length in found])
    for moment, total in zip(at, so_far(begins, ends, at), strict=True):
        expected = sum(max(0.0, min(moment, a + length) - max(at[0], a)) for a, length in found)
        assert total == pytest.approx(expected, abs=1e-6)


def write(folder: Path, ledgers: list[list[tuple[float, bool]]]) -> Path:
    """A device a ledger: (seconds, idle) one after the other from T0 on."""
    writer = TelemetryWriter(folder / "telemetry.db", clock=lambda: T0)
    writer.run(RUN, training_at=T0)
    for device, pieces in enumerate(ledgers):
        t0 = T0
        spans = []
        for seconds, idle in pieces:
            kind: dict[str, Any] = {"kind": "idle", "cause": "no_work"} if idle else {"kind": "optimizer"}
            spans.append(Span(run_id=RUN, device=device, t0=t0, t1=t0 + seconds, **kind))
            t0 = spans[-1].t1
        writer.spans(spans)
    writer.close()
    return folder / "telemetry.db"


ledgers = st.lists(
    st.lists(st.tuples(st.floats(0.25, 9.0), st.booleans()), min_size=1, max_size=12), min_size=1, max_size=3
)


@given(ledgers, st.lists(st.floats(0.1, 6.0), min_size=1, max_size=8))
@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_idle_shares_equal_the_spans_between_two_steps(
    tmp_path_factory: pytest.TempPathFactory, found: list[list[tuple[float, bool]]], lengths: list[float]
) -> None:
    path = write(tmp_path_factory.mktemp("ledger"), found)
    ends = [T0, *(T0 + np.cumsum(lengths))]
    with TelemetryReader(path) as reader:
        shares = idle_shares(reader, RUN, ends)
        for share, begin, end in zip(shares, ends, ends[1:], strict=False):
            sums = reader.kind_seconds(RUN, begin, end)
            known = sum(sum(columns.values()) for columns in sums.values())
            idle = sum(columns.get("idle_no_work", 0.0) for columns in sums.values())
            if known > 1e-4:
                assert share == pytest.approx(idle / known, abs=1e-3)


def test_shares_come_from_rollups_where_raw_spans_are_too_many(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # two seconds of work, then two idle; the other device idles the other way round
    path = write(tmp_path, [[(2.0, False), (2.0, True)] * 5, [(2.0, True), (2.0, False)] * 5])
    monkeypatch.setattr(step_speed, "MAX_RAW_SPANS", 3)
    with TelemetryReader(path) as reader:
        shares = idle_shares(reader, RUN, [T0, T0 + 4.0, T0 + 20.0, T0 + 40.0])
    assert shares[:2] == pytest.approx([0.5, 0.5], abs=1e-3)
    assert shares[2] is None, "missing telemetry is not idle time"


def test_a_run_without_telemetry_has_no_shares(tmp_path: Path) -> None:
    with TelemetryReader(write(tmp_path, [])) as reader:
        assert idle_shares(reader, RUN, [T0, T0 + 1.0]) == [None]
        assert idle_shares(reader, RUN, []) == []
        assert idle_shares(reader, RUN, [T0, T0]) == [None]
