"""What a comparison shows, from the compared runs: names, differences, lines on every axis, amounts in every unit."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from app import compare_rows
from app.compare_read import AXES, Compared, read_compared
from app.figures import compare as figures
from app.figures.compare import Bar, Dot, Drawn, Interval
from app.price import Price
from app.runs_sums import Kept, read_listing
from app.runs_table import Figures, Listed
from planner import side_by_side
from storage.paths import DataDir
from storage.words import IDLE_CAUSES
from tests.app.fake_emulated import write_emulated
from tests.app.fake_run import NOW, open_writer, write_engine, write_run

FIGURE = side_by_side.FIGURES[0]


@pytest.fixture
def listed(tmp_path: Path) -> list[Listed]:
    """A live run, one that was interrupted, and an emulated one, newest first."""
    folder = DataDir(tmp_path)
    writer = open_writer(folder, NOW)
    write_engine(writer, now=NOW)
    write_emulated(writer, "emulated", now=NOW - 900, steps=10, state="stopped")
    write_run(writer, "cut", now=NOW - 400, state="interrupted", steps=20, seed=1, staleness=0.5)
    write_run(writer, "live", now=NOW, steps=30)
    writer.close()
    return read_listing(folder, Kept(), NOW).runs


@pytest.fixture
def runs(listed: list[Listed], tmp_path: Path) -> list[Compared]:
    return read_compared(DataDir(tmp_path), listed, NOW)


def test_runs_are_read_in_the_order_asked_for_and_one_that_vanished_is_left_out(
    listed: list[Listed], tmp_path: Path
) -> None:
    gone = dataclasses.replace(listed[0], run=dataclasses.replace(listed[0].run, run_id="gone"))
    found = read_compared(DataDir(tmp_path), [listed[1], gone, listed[0]], NOW)
    assert [run.run_id for run in found] == [listed[1].run.run_id, listed[0].run.run_id]


def test_reward_ends_on_each_axis_where_the_run_ended(runs: list[Compared]) -> None:
    live = next(run for run in runs if run.run_id == "live")
    # 30 steps of 4 s on two devices, each of 8 groups of 4 answers of 20 tokens
    ends = {axis: live.reward.over(axis)[-1] for axis in AXES}
    assert ends == pytest.approx({"step": 30, "wall_s": 120.0, "tokens": 30 * 640, "device_s": 240.0})
    assert len(live.reward.values) == 30
    assert all(line == tuple(sorted(line)) for axis in AXES for line in [live.reward.over(axis)])


def test_the_windows_of_idle_time_have_the_run_s_idle_share_as_their_mean(runs: list[Compared]) -> None:
    for run in runs:
        values = [value for value in run.idle.values if value is not None]
        assert values
        assert run.figures.idle is not None
        # windows of the same length, but for the last one
        assert sum(values) / len(values) == pytest.approx(run.figures.idle, abs=0.02)


def test_an_emulated_run_lies_on_modelled_axes_and_has_no_rewards(runs: list[Compared]) -> None:
    emulated = next(run for run in runs if run.run_id == "emulated")
    assert emulated.reward.values == ()
    # 10 steps of 2.4 s here are 1200 s of sixteen devices that are 50 times slower
    assert emulated.idle.over("wall_s")[-1] == pytest.approx(1200.0, rel=0.1)
    assert emulated.idle.over("device_s")[-1] == pytest.approx(16 * emulated.idle.over("wall_s")[-1])
    assert emulated.result["idle"]["device_s"] == pytest.approx(emulated.device_s)


@pytest.mark.parametrize("axis", list(AXES))
def test_every_axis_has_a_title_and_says_what_is_modelled(runs: list[Compared], axis: str) -> None:
    lines, title = compare_rows.drawn(runs, "idle", axis)
    assert [line.name for line in lines] == compare_rows.names(runs)
    assert ("modelled where EMULATED" in title) == (axis in ("wall_s", "device_s"))
    figure = figures.lines(lines, x_title=title, y_format=".0%", key="k")
    assert [trace.name for trace in figure.data] == [line.name for line in lines]
    assert figure.layout.xaxis.title.text == title
    table = compare_rows.lines_table(lines, title, "idle share")
    assert table["columns"] == ["run", title, "idle share"]
    assert {row[0] for row in table["rows"]} == {line.name for line in lines}


@pytest.mark.parametrize(
    ("most", "unit", "divisor"), [(90.0, "s", 1.0), (3000.0, "min", 60.0), (90_000.0, "h", 3600.0)]
)
def test_time_is_told_in_a_unit_that_can_be_read(most: float, unit: str, divisor: float) -> None:
    title, found = compare_rows.scaled("wall_s", most)
    assert (title.rsplit(", ", 1)[1], found) == (unit, divisor)


def test_parts_of_one_bench_comparison_are_called_by_what_they_stand_for(runs: list[Compared]) -> None:
    one: dict[str, Any] = {"kind": "cpu", "comparison": "b", "comparison_label": "no_borrow", "staleness": 1.0}
    parts = [
        dataclasses.replace(run, run=dataclasses.replace(run.run, **one, comparison_repeat=number))
        for number, run in enumerate(runs)
    ]
    assert compare_rows.names(parts) == ["no_borrow #0 s=1", "no_borrow #1 s=1", "no_borrow #2 s=1"]
    # two of the same name would be one row
    assert compare_rows.names([parts[0], parts[0]]) == [parts[0].run_id] * 2
    assert "emulated · EMULATED" in compare_rows.names(runs)


@pytest.mark.parametrize(
    ("value", "ratio", "told"),
    [
        (None, None, "–"),
        (150.0, None, "150"),
        (150.0, 1.5, "150 (+50.0 %, better)"),
        (50.0, 0.5, "50 (-50.0 %, worse)"),
        (100.0, 1.0, "100 (same)"),
    ],
)
def test_a_difference_says_by_how_much_and_whether_that_is_better(
    value: float | None, ratio: float | None, told: str
) -> None:
    assert compare_rows.told(FIGURE, value, ratio) == told


def test_the_first_run_of_the_tables_is_the_baseline(runs: list[Compared]) -> None:
    rows = {row["figure"]: row for row in compare_rows.figures_table(runs)}
    first, other = runs[0].run_id, runs[1].run_id
    assert "(" not in rows["throughput, tokens/s"][first]
    assert "(" in rows["idle share of device time"][other]
    settings = {row["setting"]: row for row in compare_rows.settings_table(runs)}
    emulated = "emulated"
    assert (settings["devices.kind"][emulated], settings["devices.kind"]["live"]) == ("emulated", "cpu")
    assert compare_rows.settings_table([runs[0], runs[0]]) == []


FIGURES = Figures(idle=0.5, by_cause={"no_work": 0.2, "staleness_cap": 0.3}, device_s=7200.0)


@pytest.mark.parametrize(
    ("unit", "price", "device_s", "parts"),
    [
        ("share", None, None, {"no_work": 0.2, "staleness_cap": 0.3}),
        ("device-hours", None, 7200.0, {"no_work": 0.4, "staleness_cap": 0.6}),
        ("device-hours", None, None, {}),
        ("money", Price(amount=2.5, currency="EUR"), 7200.0, {"no_work": 1.0, "staleness_cap": 1.5}),
        ("money", None, 7200.0, {}),
    ],
)
def test_lost_time_is_told_in_each_unit(
    unit: str, price: Price | None, device_s: float | None, parts: dict[str, float]
) -> None:
    (bar,) = compare_rows.loss_bars([("a", FIGURES, device_s)], unit, price)
    assert bar.parts == pytest.approx(parts)
    axis = compare_rows.unit_format(unit, 1.0, price)
    figure = figures.lost_by_cause([bar], **axis)
    assert {trace.name: trace.x[0] for trace in figure.data} == pytest.approx(
        {{"no_work": "no work", "staleness_cap": "staleness cap"}[cause]: amount for cause, amount in parts.items()}
    )
    table = compare_rows.loss_table([bar], unit)
    assert len(table["columns"]) == 2 + len(IDLE_CAUSES)
    (row,) = table["rows"]
    assert (row[1] is None) == (not parts), "an amount that is not known is a gap and no zero"


def test_two_names_that_are_cut_to_the_same_are_two_bars() -> None:
    bars = [Bar(name="x" * 50 + "1" + "y" * 50, parts={"no_work": 1.0}), Bar(name="x" * 50 + "2" + "y" * 50, parts={})]
    figure = figures.lost_by_cause(bars, x_format=".1%", x_title="share")
    assert list(figure.data[0].y) == [0, 1]
    assert len(set(figure.layout.yaxis.ticktext)) == 1


def test_a_ninth_run_has_another_dash() -> None:
    runs = [Drawn(name=str(i), x=[0.0, 1.0], y=[0.0, 1.0]) for i in range(9)]
    figure = figures.lines(runs, x_title="step", y_format=".2f", key="k")
    drawn = {(trace.line.color, trace.line.dash) for trace in figure.data}
    assert len(drawn) == 9


def test_names_in_the_scatter_never_touch() -> None:
    crowd = [Dot(name=f"run-{i}", staleness=1.0, idle=0.2 + i / 1000, arm="no_borrow") for i in range(20)]
    alone = Dot(name="alone", staleness=3.0, idle=0.3, arm="bidirectional")
    shown = figures.labelled([*crowd, alone], wide=4.0, high=0.5)
    assert 20 in shown
    assert len(shown) <= 2
    figure = figures.idle_against_staleness([*crowd, alone], named=True)
    assert [trace.name for trace in figure.data] == ["no_borrow", "bidirectional"]
    assert sum(len(trace.x) for trace in figure.data) == 21
    assert figure.data[0].marker.symbol != figure.data[1].marker.symbol


def test_runs_without_a_measured_share_have_no_dot(listed: list[Listed]) -> None:
    bare = dataclasses.replace(listed[0], figures=None)
    assert compare_rows.dots([bare], {}) == []
    assert [dot.name for dot in compare_rows.dots(listed[:1], {listed[0].run.run_id: "first"})] == ["first"]


def test_an_interval_without_enough_repeats_is_a_dot() -> None:
    figure = figures.ratios([Interval(name="a", mean=1.2, low=1.1, high=1.4), Interval(name="b", mean=0.9)], of="base")
    (trace,) = figure.data
    assert list(trace.error_x.array) == pytest.approx([0.2, 0.0])
    assert list(trace.error_x.arrayminus) == pytest.approx([0.1, 0.0])


def test_a_run_without_anything_has_an_empty_comparison(tmp_path: Path) -> None:
    folder = DataDir(tmp_path)
    writer = open_writer(folder, NOW)
    write_engine(writer, now=NOW)
    writer.run("queued", state="queued", created_at=NOW, job="name: [")
    writer.close()
    (run,) = read_compared(folder, read_listing(folder, Kept(), NOW).runs, NOW)
    empty: list[Any] = [run.reward.values, run.idle.values]
    assert empty == [(), ()]
    assert compare_rows.bubble_bars([run]) == []
    assert compare_rows.figures_table([run]) == [
        {"figure": "steps", "queued": "0"},
        {"figure": "workers that died", "queued": "0"},
    ]
