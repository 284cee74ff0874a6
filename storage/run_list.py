"""The runs in short, for a table of thousands: one narrow query, never whole jobs, results or profiles.

What a run came to is in its stored result, which never changes once it is there; of it only the figures of a row are
taken out, inside the database. Whoever keeps them names the runs that need not be read again.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from storage.codec import columns, from_row
from storage.records import RunRow
from storage.words import TERMINAL

LONG = frozenset({"job", "profile_json", "model_error_json", "result_json", "comparison_plan_json", "ledger_json"})
"""Columns of kilobytes that no row of a table shows."""

SHORT = tuple(column for column in columns(RunRow) if column not in LONG)

FIGURES = (
    "$.idle.fraction",
    "$.idle.by_cause",
    "$.idle.device_s",
    "$.idle.structural_fraction",
    "$.idle.residual_fraction",
    "$.tokens",
    "$.throughput_tokens_per_s",
    "$.wall_s",
    "$.reward.per_step",
)
"""Places in a stored result, in the order of the fields of `FinalFigures`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FinalFigures:
    """Of a run's stored result; times of an emulated run are modelled, as they are there. None: not known."""

    idle_fraction: float | None
    """Share of device time, 0 to 1."""
    by_cause: dict[str, float]
    """Cause -> share of device time."""
    device_s: float | None
    """Device-seconds that the shares are of; None in a result of an older version."""
    structural_fraction: float | None
    """Share of device time that a better split would have saved."""
    residual_fraction: float | None
    """The rest of the idle share."""
    tokens: int | None
    """Consumed."""
    tokens_per_s: float | None
    """Steady throughput."""
    wall_s: float | None
    """From its devices to its end, seconds."""
    rewards: tuple[float | None, ...]
    """Mean reward of each step."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedRun:
    """A run as a row of a table."""

    run: RunRow
    """Without its job, profile, ledger, plan and result, which are empty here whatever is stored."""
    has_result: bool
    """Whether a result is stored, which is then final."""


def listed_runs(connection: sqlite3.Connection, limit: int) -> list[ListedRun]:
    """Newest first."""
    names = ", ".join(f'"{name}"' for name in SHORT)
    rows = connection.execute(
        f"SELECT result_json IS NOT NULL, {names} FROM runs ORDER BY created_at DESC, rowid DESC LIMIT ?", [limit]
    )
    return [ListedRun(run=_run(row[1:]), has_result=bool(row[0])) for row in rows]


def _run(values: tuple[Any, ...]) -> RunRow:
    """A record from the short columns; the long ones as if nothing were stored."""
    known = dict(zip(SHORT, values, strict=True))
    return from_row(RunRow, [known.get(name, "" if name == "job" else None) for name in columns(RunRow)])


def final_figures(connection: sqlite3.Connection, run_ids: Collection[str]) -> dict[str, FinalFigures]:
    """Run id -> the figures of its stored result; runs without one are left out."""
    if not run_ids:
        return {}
    places = ", ".join(f"'{place}'" for place in FIGURES)
    rows = connection.execute(
        f"SELECT run_id, json_extract(result_json, {places}) FROM runs"
        " WHERE result_json IS NOT NULL AND run_id IN (SELECT value FROM json_each(?))",
        [json.dumps(list(run_ids))],
    )
    return {run_id: _figures(json.loads(found)) for run_id, found in rows}


def _figures(found: list[Any]) -> FinalFigures:
    fraction, by_cause, device_s, structural, residual, tokens, rate, wall_s, rewards = found
    return FinalFigures(
        idle_fraction=fraction,
        by_cause=by_cause or {},
        device_s=device_s,
        structural_fraction=structural,
        residual_fraction=residual,
        tokens=tokens,
        tokens_per_s=rate,
        wall_s=wall_s,
        rewards=tuple(rewards or ()),
    )


def list_stamp(connection: sqlite3.Connection) -> tuple[Any, ...]:
    """Another value as soon as a run came, went, ended or moved on; cheap enough to be asked for every second."""
    marks = ", ".join("?" * len(TERMINAL))
    count, newest = connection.execute("SELECT count(*), max(rowid) FROM runs").fetchone()
    live = connection.execute(
        f"SELECT run_id, state, steps, config_version FROM runs WHERE state NOT IN ({marks}) ORDER BY rowid", TERMINAL
    ).fetchall()
    return count, newest, tuple(live)
