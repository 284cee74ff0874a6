"""Generated telemetry is what the writer would have stored: its rollups equal its spans, and a fake engine goes on with
it without a gap. Timings are not tested; `tests.e2e.page_load` measures them.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from storage import words
from storage.paths import DataDir
from storage.reader import TelemetryReader
from storage.writer import TelemetryWriter
from tests.e2e.generated import Recipe, device_rows, open_states, sized, span_rows, write_finished, write_live
from tests.e2e.generated_live import FakeEngine, Report

NOW = 1_790_000_000.0
RECIPE = sized("GENERATED-8", 8, 3000, hours=0.05, now=NOW)


def summed(folder: DataDir, recipe: Recipe, res: int) -> np.ndarray:
    """Seconds [devices, COLUMNS] of all rollups of a resolution."""
    with TelemetryReader(folder.telemetry_db) as reader:
        return reader.rollup(recipe.run_id, res, recipe.start - 60, NOW + 600).ms.sum(axis=0) / 1000.0


def of_spans(folder: DataDir, recipe: Recipe) -> np.ndarray:
    """Seconds [devices, COLUMNS] of all raw spans."""
    total = np.zeros((recipe.devices, len(words.COLUMNS)))
    with TelemetryReader(folder.telemetry_db) as reader:
        for span in reader.spans(recipe.run_id, recipe.start, NOW + 600, 10**6):
            total[span.device, words.column_index(span.kind, span.role, span.cause)] += span.seconds
    return total


@pytest.fixture
def folder(tmp_path: Path) -> DataDir:
    made = DataDir(tmp_path)
    assert write_live(made, RECIPE, NOW, leases=9, commands=2) == pytest.approx(3000, rel=0.05)
    return made


@pytest.mark.parametrize("res", words.RESOLUTIONS_S)
def test_generated_rollups_equal_the_generated_spans(folder: DataDir, res: int) -> None:
    # cumulative rounding: half a millisecond a device and column, however many spans
    np.testing.assert_allclose(summed(folder, RECIPE, res), of_spans(folder, RECIPE), atol=0.00051)


def test_generated_time_has_no_gap_and_ends_now(folder: DataDir) -> None:
    states = {state.device: state for state in open_states(RECIPE, NOW)}
    closed = of_spans(folder, RECIPE).sum(axis=1)
    for device, seconds in enumerate(closed):
        assert RECIPE.start + seconds == pytest.approx(states[device].since, abs=1e-4)
        assert states[device].since <= NOW == states[device].seen_at


def test_the_same_seed_generates_the_same_spans_and_another_one_others() -> None:
    rows = list(span_rows(RECIPE, NOW))
    assert list(span_rows(replace(RECIPE), NOW)) == rows
    assert list(span_rows(replace(RECIPE, seed=1), NOW)) != rows


def test_generated_names_say_so_and_nodes_hold_16_to_32_devices(folder: DataDir) -> None:
    with TelemetryReader(folder.telemetry_db) as reader:
        run = reader.run(RECIPE.run_id)
    assert run is not None
    assert (run.kind, run.name.split()[0]) == ("simulated", "GENERATED")
    nodes: dict[str, int] = {}
    for row in device_rows(replace(RECIPE, devices=256)):
        assert row.node.startswith("GENERATED")
        nodes[row.node] = nodes.get(row.node, 0) + 1
    assert all(16 <= count <= 32 for count in list(nodes.values())[:-1])


def test_a_fake_engine_goes_on_where_the_stored_spans_end(folder: DataDir) -> None:
    writer, report = TelemetryWriter(folder.telemetry_db, clock=lambda: NOW), Report()
    engine = FakeEngine(writer, RECIPE, NOW)
    handed_in = sum(engine.advance(NOW + after) for after in (0.5, 7.0, 7.1, 30.0))
    engine.beat(report)
    writer.close()
    whole = list(span_rows(RECIPE, NOW + 30.0))
    with TelemetryReader(folder.telemetry_db) as reader:
        stored = reader.spans(RECIPE.run_id, RECIPE.start, NOW + 600, 10**6)
        states = reader.device_states(RECIPE.run_id)
        steps = reader.steps(RECIPE.run_id)
    found = sorted((s.device, s.t0, s.t1, s.kind) for s in stored)
    wanted = sorted((device, t0, t1, kind) for _, device, t0, t1, kind, *_ in whole)
    assert [(device, kind) for device, _, _, kind in found] == [(device, kind) for device, _, _, kind in wanted]
    np.testing.assert_allclose([row[1:3] for row in found], [row[1:3] for row in wanted], rtol=0, atol=1e-4)
    assert handed_in == len(whole) - len(list(span_rows(RECIPE, NOW)))
    expected = [s.since for s in open_states(RECIPE, NOW + 30.0)]
    assert [s.since for s in states] == pytest.approx(expected, abs=1e-4)
    assert [s.step for s in steps] == list(range(1, RECIPE.step_at(NOW + 30.0)))
    # two builders rounded, the generator's and the writer's
    np.testing.assert_allclose(summed(folder, RECIPE, 1), of_spans(folder, RECIPE), atol=0.0011)


def test_finished_runs_have_their_result_and_only_coarse_rollups(tmp_path: Path) -> None:
    made = DataDir(tmp_path)
    write_finished(made, 5, NOW, steps=4)
    with TelemetryReader(made.telemetry_db) as reader:
        runs = reader.runs()
        idle = [run.result["idle"]["fraction"] for run in runs if run.result is not None]
        assert reader.count_spans(runs[0].run_id, 0.0, NOW, 10) == 0
        told = reader.kind_seconds(runs[0].run_id, runs[0].training_at or 0.0, runs[0].measured_until or NOW)
    assert len(runs) == len(idle) == 5
    assert all(0 < share < 1 for share in idle)
    assert sum(told[0].values()) == pytest.approx(900.0, abs=45.0)  # less what was open
