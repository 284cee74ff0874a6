"""Lost time: what the page counts equals the sum over raw spans, and what cannot be told says why."""

from __future__ import annotations

import sqlite3
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from app.detail import bin_spans
from app.figures.bubbles import causes
from app.lost_time import Structure, bins_inside, coarser, part, steps_in, stored_structure, structure, sums
from app.price import Price
from app.timeline_frame import fine_enough, read_scene
from app.timeline_url import View
from engine import results
from storage.reader import TelemetryReader
from storage.records import DeviceRow, RunRow, Span
from storage.words import COLUMNS, IDLE_CAUSES
from storage.writer import TelemetryWriter
from tests.app.fake_run import write_engine, write_run
from tests.app.test_detail import T0, ledgers, make_plan, make_row
from tests.app.test_figures import make_step

HIDDEN = [HealthCheck.too_slow, HealthCheck.function_scoped_fixture]


def over_spans(spans: list[Span], low: float, high: float) -> dict[str, float]:
    """Column -> device-seconds inside a window, one span after the other."""
    found: dict[str, float] = {}
    for span in spans:
        seconds = min(span.t1, high) - max(span.t0, low)
        if seconds > 0:
            found[span.column] = found.get(span.column, 0.0) + seconds
    return found


@given(ledgers(), st.sampled_from([0.5, 1.0, 5.0]), st.integers(0, 40), st.integers(1, 80))
def test_lost_time_of_a_window_equals_the_sum_over_its_spans(
    spans: list[Span], bin_s: float, first: int, length: int
) -> None:
    plan = make_plan(bin_s, 200)
    seconds = bin_spans(spans, [make_row(0), make_row(1, 2)], plan)
    inside = bins_inside(plan, (plan.t0 + first * bin_s, plan.t0 + (first + length) * bin_s))
    counted = part(plan, inside)
    expected = over_spans(spans, counted.t0, counted.t1)
    found = sums(seconds[:, inside[0] : inside[1]])
    assert sum(found.values()) == pytest.approx(sum(expected.values()), rel=1e-3, abs=1e-4)
    for cause in IDLE_CAUSES:
        column = f"idle_{cause}"
        assert found.get(column, 0.0) == pytest.approx(expected.get(column, 0.0), rel=1e-3, abs=1e-4)


@settings(max_examples=12, deadline=None, suppress_health_check=HIDDEN)
@given(ledgers(), st.booleans(), st.floats(0, 60), st.floats(5, 90))
def test_idle_by_cause_of_a_stored_run_equals_the_sum_over_its_spans_though_they_were_deleted(
    spans: list[Span], deleted: bool, low: float, length: float
) -> None:
    with tempfile.TemporaryDirectory() as root:
        writer = TelemetryWriter(Path(root) / "telemetry.db", clock=lambda: T0)
        writer.run(
            "r", name="r", kind="cpu", state="finished", training_at=T0, ended_at=T0 + 300, measured_until=T0 + 300
        )
        writer.devices("r", [DeviceRow(device=d, node="n", pool="rollout" if d else "train") for d in range(3)])
        writer.spans(spans)
        writer.close()
        if deleted:
            _delete_spans(Path(root) / "telemetry.db")
        view = View(window="all", exact=(round(T0 + low, 3), round(T0 + low + length, 3)))
        with TelemetryReader(Path(root) / "telemetry.db") as reader:
            run = reader.run("r")
            assert run is not None
            scene = read_scene(reader, run, view, now=T0 + 400, last=None)
    counted = scene.counted
    assert counted.t0 <= view.bounds(0, 0)[0] + 1e-6
    assert counted.t1 >= view.bounds(0, 0)[1] - 1e-6
    expected = over_spans(spans, counted.t0, counted.t1)
    # a rollup is right to a millisecond a device and column
    for column in COLUMNS:
        assert scene.lost.get(column, 0.0) == pytest.approx(expected.get(column, 0.0), rel=1e-3, abs=4e-3)
    assert scene.whole is not None
    everywhere = over_spans(spans, T0, T0 + 300)
    whole: dict[str, float] = {}
    for columns in scene.whole.devices.values():
        for column, value in columns.items():
            whole[column] = whole.get(column, 0.0) + value
    for column in COLUMNS:
        assert whole.get(column, 0.0) == pytest.approx(everywhere.get(column, 0.0), rel=1e-3, abs=4e-3)


def _delete_spans(path: Path) -> None:
    """As retention does: the rows, and a note of where they were."""
    connection = sqlite3.connect(path)
    connection.execute("INSERT INTO raw_missing SELECT run_id, 'retention', min(t0), max(t1), count(*) FROM spans")
    connection.execute("DELETE FROM spans")
    connection.commit()
    connection.close()


@given(ledgers(), st.integers(1, 400), st.integers(1, 120))
def test_the_heatmap_has_the_same_seconds_in_fewer_bins(spans: list[Span], bins: int, most: int) -> None:
    plan = make_plan(0.5, bins)
    seconds = bin_spans(spans, [make_row(0), make_row(1, 2)], plan)
    joined, coarse = coarser(seconds, plan, most)
    assert joined.shape[1] == coarse.bins <= most + 1
    np.testing.assert_allclose(joined.sum(axis=1), seconds.sum(axis=1), atol=1e-9)
    assert coarse.t0 <= plan.t0
    assert coarse.t1 >= plan.t1
    assert coarse.first * coarse.bin_s == pytest.approx(coarse.t0)


@pytest.mark.parametrize(
    ("window", "inside"),
    [((2.0, 4.0), (2, 4)), ((2.1, 3.9), (2, 4)), ((-5.0, 100.0), (0, 10)), ((50.0, 60.0), (9, 10))],
    ids=["whole bins", "cut bins count whole", "beyond both ends", "never none"],
)
def test_the_bins_of_a_window_are_those_that_it_touches(window: tuple[float, float], inside: tuple[int, int]) -> None:
    assert bins_inside(make_plan(1.0, 10), (T0 + window[0], T0 + window[1])) == inside


@pytest.mark.parametrize(
    ("devices", "length_s", "res"), [(2, 3600, 1), (256, 300, 1), (256, 1800, 10), (1024, 3600, 60), (4096, 86_400, 60)]
)
def test_a_window_is_read_as_finely_as_its_devices_allow(devices: int, length_s: float, res: int) -> None:
    assert fine_enough(devices, length_s) == res


# -- structural against residual ---------------------------------------------------------------------------------------

POOLS = {0: "rollout", 1: "rollout", 2: "train", 3: "train"}
DEVICES = {
    0: {"rollout": 40.0, "idle_staleness_cap": 60.0},
    1: {"rollout": 40.0, "idle_staleness_cap": 60.0},
    2: {"train": 70.0, "optimizer": 10.0, "idle_waiting_for_groups": 20.0},
    3: {"train": 70.0, "optimizer": 10.0, "idle_waiting_for_groups": 20.0},
}
STEPS = [make_step(i, t_start=T0 + 10 * i, t_end=T0 + 10 * i + 9) for i in range(8)]
WINDOW = (T0, T0 + 100)


def told(**changes: Any) -> Structure:
    given: dict[str, Any] = {"devices": DEVICES, "pools": POOLS, "steps": STEPS, "window": WINDOW, "moved_at": None}
    return structure(**(given | changes))


def test_the_structural_part_is_what_the_slower_pool_leaves_of_the_faster_one() -> None:
    # the RollPool works 40 of 100 s and the TrainPool 80: at the pace of its busy time the RollPool is twice as fast,
    # so half of its time is lost to the split: 2 of 4 devices * (1 - 1/2) = 0.25 of 0.40 idle
    found = told()
    assert found.structural == pytest.approx(0.25)
    assert found.residual == pytest.approx(0.15)
    assert found.told == ""


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"pools": dict.fromkeys(range(4))}, "Without pools"),
        ({"steps": STEPS[:2]}, "fewer than 3 whole steps; 2 lie in it"),
        ({"window": (T0 + 1, T0 + 38)}, "2 lie in it"),
        ({"moved_at": T0 + 500.0}, "The partition changed later"),
        ({"devices": {}}, "No device time is known"),
        ({"devices": {**DEVICES, 2: {"idle_no_work": 100.0}, 3: {"idle_no_work": 100.0}}}, "none of its own work"),
    ],
    ids=["no pools", "few steps", "short window", "moved since", "nothing known", "idle pool"],
)
def test_what_cannot_be_told_has_a_reason_and_no_number(changes: dict[str, Any], why: str) -> None:
    found = told(**changes)
    assert (found.structural, found.residual) == (None, None)
    assert why in found.told


def test_a_partition_that_changed_before_the_window_is_the_one_that_counts() -> None:
    assert told(moved_at=T0 - 5).structural is not None


def test_a_step_that_only_reaches_into_the_window_is_not_counted() -> None:
    assert [s.step for s in steps_in(STEPS, (T0 + 5, T0 + 35))] == [1, 2]


def test_a_run_that_is_over_has_the_parts_of_its_result_and_says_when_pools_moved() -> None:
    run = RunRow(run_id="r", state="finished", result={"idle": {"structural_fraction": 0.1, "residual_fraction": 0.2}})
    assert stored_structure(run, None) == Structure(structural=0.1, residual=0.2)
    moved = stored_structure(run, T0)
    assert moved is not None
    assert "partition changed" in moved.told
    unknown = RunRow(run_id="r", state="finished", result={"idle": {"structural_fraction": None}})
    assert stored_structure(unknown, None) is None
    assert stored_structure(RunRow(run_id="r", state="running", result=run.result), None) is None


def test_the_page_and_the_result_of_a_run_agree(tmp_path: Path) -> None:
    writer = TelemetryWriter(tmp_path / "telemetry.db", clock=lambda: T0)
    write_engine(writer, now=T0)
    write_run(writer, "r", now=T0, state="finished", steps=20, pools=(3, 1))
    writer.close()
    with TelemetryReader(tmp_path / "telemetry.db") as reader:
        run = reader.run("r")
        assert run is not None
        scene = read_scene(reader, run, View(window="all"), now=T0 + 5, last=None)
        built = results.build(reader, run, now=T0 + 5)["idle"]
    assert scene.whole is not None
    pools = {device.device: device.pool for device in scene.devices}
    found = structure(scene.whole.devices, pools, scene.steps, scene.whole.window, None)
    assert found.structural == pytest.approx(built["structural_fraction"], abs=1e-3)
    assert found.residual == pytest.approx(built["residual_fraction"], abs=1e-3)


def test_bars_tell_money_only_with_a_price() -> None:
    seconds = {"rollout": 5400.0, "idle_no_work": 1800.0}
    assert causes(seconds).data[0].text == ("25.0% · 30.0 min",)
    priced = causes(seconds, price=Price(amount=3.0, currency="EUR"))
    assert priced.data[0].text == ("25.0% · 30.0 min · EUR 1.50",)
    assert priced.layout.margin.r > causes(seconds).layout.margin.r
