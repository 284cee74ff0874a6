"""Level of detail: bins, plans, majorities, and that nothing gets lost between spans and pictures."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app import detail
from storage.records import DeviceRow, DeviceState, Span
from storage.rollups import FINEST_S, RollupBuilder
from storage.words import COLUMNS, IDLE_CAUSES, SPAN_KINDS

T0 = 1_790_000_000.0
START = COLUMNS.index("rollout") + 1
IDLE_CAP = COLUMNS.index("idle_staleness_cap") + 1


def make_span(t0: float, t1: float, kind: str = "rollout", device: int = 0, cause: str | None = None) -> Span:
    role = "primary" if kind in ("rollout", "train") else None
    cause = cause or ("staleness_cap" if kind == "idle" else None)
    return Span(run_id="r", device=device, t0=T0 + t0, t1=T0 + t1, kind=kind, role=role, cause=cause)


def make_row(*devices: int) -> detail.Row:
    return detail.Row(label="row", devices=devices, key="device:0")


def make_plan(bin_s: float, bins: int, source: str = "raw", resolution_s: int | None = None) -> detail.Plan:
    return detail.Plan(source=source, resolution_s=resolution_s, bin_s=bin_s, first=round(T0 / bin_s), bins=bins)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("seconds", "snapped"),
    [
        (0.25, 0.5),
        (0.2, 0.2),
        (0.21, 0.5),
        (1.0, 1.0),
        (1.01, 2.0),
        (3.0, 5.0),
        (5.1, 10.0),
        (61.0, 100.0),
        (0.03, 0.05),
    ],
    ids=str,
)
def test_bins_are_snapped_up_to_the_series_1_2_5(seconds: float, snapped: float) -> None:
    assert detail.snap(seconds) == snapped


@pytest.mark.parametrize("seconds", [0.0, -1.0, float("inf"), float("nan")], ids=str)
def test_a_bin_that_is_no_length_is_refused(seconds: float) -> None:
    with pytest.raises(ValueError, match="positive and finite"):
        detail.snap(seconds)


@pytest.mark.parametrize(("devices", "seconds"), [(1, 1.0), (32, 1.0), (33, 2.0), (256, 2.0), (257, 5.0), (4096, 5.0)])
def test_bigger_runs_are_refreshed_less_often(devices: int, seconds: float) -> None:
    assert detail.refresh_interval_s(devices) == seconds


@pytest.mark.parametrize(
    ("window_s", "rows", "spans", "source", "resolution", "bin_s"),
    [
        # 300 s in at most 1199 bins is 0.2502 s, snapped to 0.5
        (300.0, 2, 12_000, "raw", None, 0.5),
        # one span more and rollups are read; the finest with rows x bins <= 60k is 1 s
        (300.0, 2, 12_001, "rollup", 1, 1.0),
        # an hour of 32 rows: 115k cells of 1 s, 11.5k of 10 s
        (3600.0, 32, 12_001, "rollup", 10, 10.0),
        # a day of 64 rows: 553k cells of 10 s, 92k of 60 s, which is the coarsest there is; 937 bins at most
        (86_400.0, 64, 12_001, "rollup", 60, 120.0),
        # raw spans on 64 rows: 60,000 / 64 = 937 bins at most
        (900.0, 64, 100, "raw", None, 1.0),
    ],
    ids=["raw", "finest rollup", "ten seconds", "coarsest", "many rows"],
)
def test_the_window_decides_what_is_read(
    window_s: float, rows: int, spans: int, source: str, resolution: int | None, bin_s: float
) -> None:
    plan = detail.plan_window(T0, T0 + window_s, rows=rows, spans=spans)
    assert (plan.source, plan.resolution_s, plan.bin_s) == (source, resolution, bin_s)
    assert plan.bins <= detail.max_bins(rows) + 1


def test_a_window_moved_by_less_than_a_bin_is_the_same_picture() -> None:
    one = detail.plan_window(T0 + 0.11, T0 + 300.11, rows=2, spans=10)
    other = detail.plan_window(T0 + 0.38, T0 + 300.38, rows=2, spans=10)
    assert one == other


@given(st.floats(0.5, 1e6), st.integers(1, 64), st.sampled_from([0, 10**6]), st.floats(0, 1e4))
def test_a_plan_covers_its_window_with_few_enough_bins(window: float, rows: int, spans: int, offset: float) -> None:
    t0 = T0 + offset
    plan = detail.plan_window(t0, t0 + window, rows=rows, spans=spans)
    assert plan.t0 <= t0 + 1e-4 * plan.bin_s
    assert plan.t1 >= t0 + window - 1e-4 * plan.bin_s
    assert plan.bins <= detail.max_bins(rows) + 1


kinds = st.sampled_from([k for k in SPAN_KINDS if k != "idle"] + [f"idle:{c}" for c in IDLE_CAUSES])


@st.composite
def ledgers(draw: st.DrawFn) -> list[Span]:
    """Gapless spans of up to three devices in a minute or two, in whole milliseconds."""
    spans = []
    for device in range(draw(st.integers(1, 3))):
        at = draw(st.integers(0, 5000))
        for _ in range(draw(st.integers(1, 25))):
            length = draw(st.integers(1, 9000))
            kind, _, cause = draw(kinds).partition(":")
            spans.append(make_span(at / 1000, (at + length) / 1000, kind, device, cause or None))
            at += length
    return spans


@given(ledgers(), st.sampled_from([0.5, 1.0, 2.0, 5.0, 20.0]))
def test_binned_seconds_add_up_to_the_spans(spans: list[Span], bin_s: float) -> None:
    rows = [make_row(0), make_row(1, 2)]
    plan = make_plan(bin_s, 600)
    binned = detail.bin_spans(spans, rows, plan)
    expected = np.zeros((2, len(COLUMNS)))
    for span in spans:
        inside = min(span.t1, plan.t1) - max(span.t0, plan.t0)
        expected[0 if span.device == 0 else 1, COLUMNS.index(span.column)] += max(0.0, inside)
    np.testing.assert_allclose(binned.sum(axis=1), expected, atol=1e-4)
    assert binned.max() <= bin_s * 2 + 1e-6


@given(ledgers(), st.sampled_from([0.05, 0.5, 3.0, 40.0]), st.integers(-40, 40))
def test_every_bin_holds_what_each_span_has_in_it(spans: list[Span], bin_s: float, first: int) -> None:
    """Bin by bin, with windows that begin before and after the spans."""
    rows = [make_row(0), make_row(1, 2)]
    plan = make_plan(bin_s, 30)
    plan = replace(plan, first=plan.first + first)
    expected = np.zeros((2, plan.bins, len(COLUMNS)))
    for span in spans:
        for index in range(plan.bins):
            begin = (plan.first + index) * bin_s
            inside = min(span.t1, begin + bin_s) - max(span.t0, begin)
            expected[0 if span.device == 0 else 1, index, COLUMNS.index(span.column)] += max(0.0, inside)
    binned = detail.bin_spans(spans, rows, plan)
    # a unix time in a float64 is good to a quarter of a microsecond
    np.testing.assert_allclose(binned, expected, atol=2e-6)
    assert (binned >= 0).all()


@given(ledgers(), st.sampled_from([1, 2, 10]))
def test_sums_of_a_rollup_equal_sums_of_its_spans(spans: list[Span], rollup_bins: int) -> None:
    builder = RollupBuilder()
    builder.add(spans)
    additions = builder.take()["r"]
    devices = 3
    bins = np.unique(additions.bins)
    ms = np.zeros((len(bins), devices * len(COLUMNS)), np.int64)
    np.add.at(ms, (np.searchsorted(bins, additions.bins), additions.cells), additions.ms)
    rows = [make_row(d) for d in range(devices)]
    plan = make_plan(float(FINEST_S * rollup_bins), 600 // rollup_bins, "rollup", FINEST_S)
    rolled = detail.bin_rollups(bins, ms.reshape(len(bins), devices, len(COLUMNS)), rows, plan)
    raw = detail.bin_spans(spans, rows, plan)
    # rounding is cumulative: half a millisecond at either end of a device's column
    np.testing.assert_allclose(rolled.sum(axis=1), raw.sum(axis=1), atol=1.001e-3)


def test_rollups_that_do_not_fit_the_drawn_bins_are_refused() -> None:
    plan = make_plan(15.0, 4, "rollup", 10)
    with pytest.raises(ValueError, match="whole rollup bins"):
        detail.bin_rollups(np.zeros(0, np.int64), np.zeros((0, 1, len(COLUMNS))), [make_row(0)], plan)


def test_a_bin_has_the_colour_of_its_majority_and_no_data_is_not_idle() -> None:
    spans = [make_span(0, 1.4), make_span(1.4, 2.0, "idle"), make_span(2.0, 2.3), make_span(2.3, 3.0, "idle")]
    codes = detail.majority(detail.bin_spans(spans, [make_row(0)], make_plan(1.0, 5)))
    # second bin: 0.4 s rollout, 0.6 s idle; the last two bins have no span
    assert codes.tolist() == [[START, IDLE_CAP, IDLE_CAP, detail.NO_DATA, detail.NO_DATA]]
    assert detail.gaps(codes) == [(0, 3, 2)]


def test_idle_share_is_exact_where_the_majority_hides_it() -> None:
    spans = [make_span(0, 0.7), make_span(0.7, 1.0, "idle")]
    seconds = detail.bin_spans(spans, [make_row(0)], make_plan(1.0, 2))
    share = detail.idle_share(seconds, slice(COLUMNS.index("idle_failure"), len(COLUMNS)))
    assert share[0, 0] == pytest.approx(0.3)
    assert np.isnan(share[0, 1])
    assert detail.majority(seconds)[0, 0] == START


def test_an_open_span_ends_where_its_worker_was_last_heard() -> None:
    state = DeviceState(device=1, kind="train", role="primary", since=T0, seen_at=T0 + 4)
    assert [(s.t0, s.t1) for s in detail.open_spans("r", [state], T0 + 10)] == [(T0, T0 + 4)]
    assert [(s.t0, s.t1) for s in detail.open_spans("r", [state], T0 + 3)] == [(T0, T0 + 3)]
    assert detail.open_spans("r", [state], T0 - 1) == []


def make_devices(rollout: int, train: int, per_node: int = 8) -> list[DeviceRow]:
    return [
        DeviceRow(device=d, node=f"node{d // per_node}", pool="rollout" if d < rollout else "train")
        for d in range(rollout + train)
    ]


def test_up_to_256_devices_have_a_row_each_rollout_first() -> None:
    rows = detail.chart_rows(make_devices(192, 64)[::-1])
    assert len(rows) == 256
    assert (rows[0].label, rows[-1].label) == ("device 0 · rollout", "device 255 · train")
    assert [row.pool for row in rows] == ["rollout"] * 192 + ["train"] * 64
    assert (rows[0].tick, rows[-1].tick) == ("device 0", "device 255")


def test_the_row_of_an_emulated_device_says_so() -> None:
    assert detail.chart_rows(make_devices(1, 1), emulated=True)[0].label == "EMULATED device 0 · rollout"


def test_more_devices_are_grouped_by_node_and_a_group_opens() -> None:
    devices = make_devices(200, 72)
    rows = detail.chart_rows(devices)
    assert [r.label for r in rows][:2] == ["node0 (8)", "node1 (8)"]
    assert sorted(d for r in rows for d in r.devices) == list(range(272))
    assert [r.devices for r in detail.chart_rows(devices, opened="node:node0")] == [(d,) for d in range(8)]


def test_more_than_64_nodes_are_grouped_by_pool() -> None:
    rows = detail.chart_rows(make_devices(200, 72, per_node=1))
    assert [(r.label, len(r.devices)) for r in rows] == [("rollout (200)", 200), ("train (72)", 72)]
