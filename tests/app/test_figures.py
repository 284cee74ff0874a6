"""Figures as specs: records in, what Plotly is told out."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from app import palette
from app.clock import PageClock
from app.detail import NO_DATA, Plan, Row
from app.figures.bubbles import bubble_heatmap, causes
from app.figures.learning import MAX_POINTS, learning, smooth, thin
from app.figures.timeline import CODES, timeline
from app.modelled import Pace
from storage.records import EvalRow, StepRow
from storage.words import COLUMNS

T0 = 1_790_000_000.0
CLOCK = PageClock(offset_s=3600.0)
PLAN = Plan(source="raw", resolution_s=None, bin_s=2.0, first=round(T0 / 2), bins=4)
ROWS = [
    Row(label="device 0 · rollout", devices=(0,), key="device:0"),
    Row(label="device 1 · train", devices=(1,), key="device:1"),
]
ROLLOUT, CAP = COLUMNS.index("rollout") + 1, COLUMNS.index("idle_staleness_cap") + 1


def make_step(step: int, **fields: Any) -> StepRow:
    values: dict[str, Any] = {
        "run_id": "r",
        "step": step,
        "t_start": T0,
        "t_end": T0 + step,
        "groups": 8,
        "prompt_tokens": 1,
        "response_tokens": 1,
        "reward_mean": 0.5,
        "lag": {0: 4, 1: 4},
        "lag_max": 1,
        "staleness": 1.0,
        "metrics": {"mismatch_kl": 0.01},
    }
    return StepRow(**{**values, **fields})


def drawn(codes: list[list[int]], **more: Any) -> dict[str, Any]:
    figure = timeline(np.array(codes, np.uint8), ROWS, PLAN, window=(T0, T0 + 8), clock=CLOCK, **more)
    spec: dict[str, Any] = json.loads(figure.to_json())
    return spec


def test_the_raster_lies_on_the_readers_clock_and_has_a_discrete_colour_for_each_code() -> None:
    heatmap = drawn([[ROLLOUT] * 4, [CAP] * 4])["data"][0]
    assert (heatmap["x0"], heatmap["dx"]) == ((T0 + 3600 + 1) * 1000, 2000)
    assert heatmap["z"]["dtype"] == "u1"
    edges = {colour: [e for e, c in heatmap["colorscale"] if c == colour] for colour in (palette.COLOURS["rollout"],)}
    assert edges[palette.COLOURS["rollout"]] == pytest.approx([ROLLOUT / len(CODES), (ROLLOUT + 1) / len(CODES)])
    assert heatmap["meta"]["labels"][CAP] == "idle · staleness cap"


@pytest.mark.parametrize(("rows", "px"), [(2, 2), (32, 2), (64, 1), (256, 0)])
def test_room_between_rows_is_drawn_over_a_raster_that_has_none_of_its_own(rows: int, px: int) -> None:
    many = [Row(label=str(i), devices=(i,), key=f"device:{i}") for i in range(rows)]
    figure = timeline(np.ones((rows, 4), np.uint8), many, PLAN, window=(T0, T0 + 8), clock=CLOCK)
    # with a gap of its own Plotly paints each cell by itself, at forty times the cost
    assert (figure.data[0].xgap, figure.data[0].ygap) == (None, None)
    lines = [trace for trace in figure.data if trace.type == "scatter"]
    assert [line.line.width for line in lines] == ([px] if px else [])
    for line in lines:
        assert sorted(y for y in line.y if y is not None) == [i + 0.5 for i in range(rows - 1) for _ in range(2)]
        assert set(line.x) == {CLOCK.axis(PLAN.t0), CLOCK.axis(PLAN.t1), None}
        assert line.hoverinfo == "skip"


def test_missing_telemetry_is_hatched_and_has_no_colour_of_idle() -> None:
    spec = drawn([[ROLLOUT, NO_DATA, NO_DATA, CAP], [ROLLOUT] * 4])
    assert spec["data"][0]["colorscale"][0][1] == "rgba(0,0,0,0)"
    hatch = spec["data"][1]
    assert hatch["marker"]["pattern"]["shape"] == "/"
    assert (hatch["y"], hatch["base"], hatch["x"]) == ([0], [(T0 + 3600 + 2) * 1000], [4000])
    assert palette.IDLE_COLOUR not in json.dumps(hatch)


def test_the_legend_names_only_what_is_in_the_picture() -> None:
    legend = drawn([[ROLLOUT, CAP, NO_DATA, CAP], [ROLLOUT] * 4])["layout"]["meta"]["legend"]
    assert [item["name"] for item in legend] == ["rollout", "idle", "no data"]
    assert [i["name"] for i in drawn([[ROLLOUT] * 4] * 2)["layout"]["meta"]["legend"]] == ["rollout"]


def test_ends_of_steps_are_marked_inside_the_window_only() -> None:
    spec = drawn([[ROLLOUT] * 4] * 2, steps=[make_step(3), make_step(5), make_step(99)])
    marks = {trace["name"]: trace for trace in spec["data"] if trace["type"] == "scatter"}
    assert marks["step"]["x"] == [(T0 + 3600 + s) * 1000 for s in (3, 5)]
    assert marks["step"]["text"][0].startswith("step 3 · ")


def test_an_unchanged_window_gives_an_identical_figure() -> None:
    assert drawn([[ROLLOUT] * 4, [CAP] * 4]) == drawn([[ROLLOUT] * 4, [CAP] * 4])


def pool_rows(rollout: int, train: int) -> list[Row]:
    return [
        Row(label=f"device {d}", devices=(d,), key=f"device:{d}", pool="rollout" if d < rollout else "train")
        for d in range(rollout + train)
    ]


@pytest.mark.parametrize(("rollout", "train"), [(1, 1), (8, 8), (16, 16), (45, 19), (128, 128), (253, 3)])
def test_no_two_labels_of_rows_touch_and_each_pool_is_named_beside_its_rows(rollout: int, train: int) -> None:
    rows = pool_rows(rollout, train)
    codes = np.full((len(rows), 4), ROLLOUT, np.uint8)
    for figure, around_px in (
        (timeline(codes, rows, PLAN, window=(T0, T0 + 8), clock=CLOCK), 58),
        (bubble_heatmap(np.zeros((len(rows), 4)), rows, PLAN, clock=CLOCK), 44),
    ):
        layout = figure.layout
        row_px = (layout.height - around_px) / len(rows)
        ticks = list(layout.yaxis.tickvals)
        assert ticks[0] == 0
        assert min(np.diff(ticks), default=99) * row_px >= 12
        assert [(a.text, a.y) for a in layout.annotations] == [
            ("<b>rollout</b>", (rollout - 1) / 2),
            ("<b>train</b>", rollout + (train - 1) / 2),
        ]
        assert [s.y0 for s in layout.shapes] == [rollout - 0.5]


def test_without_pools_nothing_is_named_beside_the_rows() -> None:
    rows = [Row(label=f"device {d}", devices=(d,), key=f"device:{d}") for d in range(4)]
    layout = timeline(np.ones((4, 4), np.uint8), rows, PLAN, window=(T0, T0 + 8), clock=CLOCK).layout
    assert (len(layout.annotations), len(layout.shapes)) == (0, 0)


def test_a_step_of_emulated_devices_tells_its_modelled_time() -> None:
    spec = drawn([[ROLLOUT] * 4] * 2, steps=[make_step(3)], pace=Pace(scale=0.02))
    marks = next(trace for trace in spec["data"] if trace["name"] == "step")
    # 3 s here, 50 times as many there
    assert marks["text"][0].startswith("step 3 · 150.0 s, modelled")
    assert marks["text"][0].endswith("EMULATED")


@pytest.mark.parametrize("rows", [2, 32, 64, 256])
def test_rows_stay_visible_and_the_chart_stays_on_the_screen(rows: int) -> None:
    many = [Row(label=str(i), devices=(i,), key=f"device:{i}") for i in range(rows)]
    figure = timeline(np.ones((rows, 4), np.uint8), many, PLAN, window=(T0, T0 + 8), clock=CLOCK)
    assert 100 < figure.layout.height < 700


def test_the_bubble_heatmap_shows_exact_shares_and_blanks_what_is_unknown() -> None:
    figure = bubble_heatmap(np.array([[0.0, 0.25, np.nan, 1.0], [0.5] * 4]), ROWS, PLAN, clock=CLOCK)
    heatmap = figure.data[0]
    np.testing.assert_allclose(heatmap.z[0], [0.0, 0.25, np.nan, 1.0])
    assert (heatmap.zmin, heatmap.zmax, heatmap.hoverongaps) == (0, 1, False)
    assert [c for _, c in heatmap.colorscale] == list(palette.HEAT_LIGHT)


def test_causes_are_ordered_by_what_they_cost_and_overhead_is_named() -> None:
    figure = causes({"rollout": 70.0, "idle_staleness_cap": 10.0, "idle_waiting_for_groups": 15.0, "optimizer": 5.0})
    bars = figure.data[0]
    assert list(bars.y) == ["waiting for groups", "staleness cap", "optimizer"]
    assert list(bars.x) == pytest.approx([0.15, 0.10, 0.05])
    assert bars.text[0] == "15.0% · 15 s"


def by_name(figure: Any) -> dict[str, Any]:
    return {trace.name: trace for trace in figure.data}


def test_learning_draws_what_a_step_reported_and_leaves_gaps() -> None:
    steps = [make_step(1, loss=0.2), make_step(2, loss=None, metrics={}), make_step(3, loss=0.1)]
    evals = [EvalRow(run_id="r", step=0, name=name, accuracy=0.1, items=8, at=T0) for name in ("control", "held_out")]
    lines = by_name(learning(steps, evals))
    assert list(lines["loss"].y) == [0.2, None, 0.1]
    assert list(lines["mismatch KL"].y) == [0.01, None, 0.01]
    assert list(lines["held-out"].y) == [0.1]
    assert list(lines["mean lag"].y) == [0.5, 0.5, 0.5]


def test_lag_is_drawn_against_the_cap_that_was_in_force() -> None:
    lines = by_name(learning([make_step(1, staleness=1.5), make_step(2, staleness=0.0, lag={0: 8}, lag_max=0)], []))
    assert list(lines["cap"].y) == [2, 0]
    assert list(lines["largest lag"].y) == [1, 0]


def test_learning_without_evaluations_has_no_accuracy() -> None:
    assert "held-out" not in by_name(learning([make_step(1)], []))


def test_zooming_one_panel_zooms_all() -> None:
    layout = learning([make_step(1)], []).layout
    assert {layout[f"xaxis{i}"].matches for i in range(2, 7)} == {"x"}


def test_a_mean_skips_unknown_values() -> None:
    assert smooth([None, 1.0, None, 3.0], width=2) == [None, 1.0, 1.0, 2.0]


def test_long_runs_are_thinned_and_keep_their_newest_step() -> None:
    kept = thin([make_step(i) for i in range(1, 5 * MAX_POINTS)])
    assert len(kept) <= MAX_POINTS
    assert kept[-1].step == 5 * MAX_POINTS - 1
    assert thin([]) == []


def test_a_long_label_of_a_row_is_cut_in_the_middle_and_whole_in_the_hover_text() -> None:
    rows = [Row(label="a-cluster-of-nodes-07 (24)", devices=tuple(range(24)), key="node:a-cluster-of-nodes-07")]
    figure = bubble_heatmap(np.zeros((1, 4)), rows, PLAN, clock=CLOCK)
    assert len(figure.layout.yaxis.ticktext[0]) == 19
    assert figure.layout.yaxis.ticktext[0].endswith("-07 (24)")
    assert figure.data[0].meta["rows"] == ["a-cluster-of-nodes-07 (24)"]


def test_every_state_has_a_colour_and_a_label_and_kinds_differ() -> None:
    busy = [palette.COLOURS[c] for c in COLUMNS if not c.startswith("idle")]
    assert len(set(busy)) == len(busy)
    assert palette.IDLE_COLOUR not in busy
    assert len(palette.LABELS) == len(COLUMNS)
