"""`bidirl runs compare`: the settings in which runs differ, and their key figures against the first of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from rich.markup import escape
from rich.table import Table

from engine import results as run_results
from engine.cli import client
from engine.cli.client import BadInput
from engine.cli.show import console, emulated
from engine.config.differences import Difference, differing, settings_of_run
from planner import side_by_side
from storage.paths import DataDir
from storage.reader import TelemetryReader

SAME = 0.0005
"""Ratios nearer to 1 than this are told as the same: no measurement here is that good."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Runs beside each other, the baseline first."""

    results: Sequence[dict[str, Any]]
    """Their result fields."""
    settings: Sequence[Difference]
    """In what they differ."""
    figures: Sequence[side_by_side.Row]
    """Every figure that at least one of them has."""

    @property
    def ids(self) -> list[str]:
        """Of the runs, in their order."""
        return [result["run_id"] for result in self.results]


def read(data: DataDir, run_ids: Sequence[str]) -> Comparison:
    """The comparison of these runs. Raises BadInput for fewer than two, for one that is named twice or not known."""
    if len(run_ids) < 2:
        raise BadInput(f"RUN: at least two runs are needed to compare, got {len(run_ids)}")
    if twice := next((run_id for run_id in run_ids if run_ids.count(run_id) > 1), None):
        raise BadInput(f"RUN: {twice!r} is named twice; each run once, the baseline first")
    with TelemetryReader(data.telemetry_db) as reader:
        runs = [client.known_run(reader, run_id) for run_id in run_ids]
        results = [run_results.build(reader, run) for run in runs]
    return Comparison(
        results=results,
        settings=differing([settings_of_run(run.job, run.settings) for run in runs]),
        figures=side_by_side.rows(results),
    )


def document(found: Comparison) -> dict[str, Any]:
    """As JSON: `ratios` are over the baseline's figure, null where either is not known or the baseline's is 0."""
    return {
        "runs": found.ids,
        "baseline": found.ids[0],
        "settings": {each.key: dict(zip(found.ids, each.values, strict=True)) for each in found.settings},
        "figures": {row.figure.name: dict(zip(found.ids, row.values, strict=True)) for row in found.figures},
        "ratios": {row.figure.name: dict(zip(found.ids, row.ratios, strict=True)) for row in found.figures},
    }


def show(found: Comparison) -> None:
    """Both tables, on stdout."""
    heads = [_head(result) for result in found.results]
    if found.settings:
        grid = _grid("settings that differ", "setting", heads)
        for each in found.settings:
            grid.add_row(escape(each.key), *map(escape, each.told))
        console().print(grid)
    else:
        print("no setting differs")
    grid = _grid(f"key figures, and their ratio to those of {found.ids[0]}", "figure", heads)
    for row in found.figures:
        cells = [_cell(row.figure.spec, value, ratio) for value, ratio in zip(row.values, row.ratios, strict=True)]
        grid.add_row(row.figure.label, _cell(row.figure.spec, row.values[0], None), *cells[1:])
    console().print(grid)
    if not all(side_by_side.comparable(found.results)):
        print(side_by_side.NOT_COMPARABLE)


def _head(result: dict[str, Any]) -> str:
    scale = result.get("time_scale")
    return f"{result['run_id']}\n{emulated(scale)}" if scale else str(result["run_id"])


def _grid(title: str, first: str, heads: Sequence[str]) -> Table:
    grid = Table(title=title, title_justify="left")
    grid.add_column(first, no_wrap=True)
    for head in heads:
        grid.add_column(escape(head), justify="right", overflow="fold")
    return grid


def _cell(spec: str, value: float | None, ratio: float | None) -> str:
    if value is None:
        return "-"
    told = format(value, spec)
    if ratio is None:
        return told
    return f"{told} (same)" if abs(ratio - 1) < SAME else f"{told} ({ratio:.3f}x)"
