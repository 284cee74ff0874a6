"""Whether rows that somebody brings may stand among ours: of one run, with words that pages know, and JSON that parses.

Rows that our own writer made always pass: it refuses the same words. Nothing is corrected.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from typing import Any

from storage import words
from storage.exports.columns import JSON

SLACK_S = 0.001
"""Pieces of spans are cut in floats."""

Check = Callable[..., Any]


def _one_of(what: str, allowed: Sequence[str]) -> Check:
    def check(value: Any) -> None:
        if value is not None:
            words.require(what, value, allowed)

    return check


def _layout(layout: Any, res: Any) -> None:
    words.require("layout of a rollup", str(layout), map(str, words.COLUMNS_OF_VERSION))
    words.require("resolution of a rollup", str(res), map(str, words.RESOLUTIONS_S))


WORDS: dict[str, tuple[tuple[tuple[str, ...], Check], ...]] = {
    "runs": ((("state",), _one_of("state of a run", words.RUN_STATES)),),
    "devices": ((("pool",), _one_of("pool", words.POOLS)),),
    "device_state": ((("kind", "role", "cause"), words.column_index),),
    "spans": ((("kind", "role", "cause"), words.column_index),),
    "rollups": ((("layout", "res"), _layout),),
    "groups": ((("state",), _one_of("state of a group", words.GROUP_STATES)),),
    "evals": ((("name",), _one_of("name of an evaluation", words.EVAL_NAMES)),),
    "logs": ((("level",), _one_of("level", words.LOG_LEVELS)),),
    "decisions": (
        (("action",), _one_of("action of a decision", words.DECISIONS)),
        (("direction",), _one_of("direction of a decision", words.DIRECTIONS)),
    ),
    "leases": (
        (("direction",), _one_of("direction of a lease", words.DIRECTIONS)),
        (("state",), _one_of("state of a lease", words.LEASE_STATES)),
        (("ended_by",), _one_of("end of a lease", words.LEASE_ENDS)),
    ),
    "commands": (
        (("kind",), _one_of("kind of a command", words.COMMAND_KINDS)),
        (("state",), _one_of("state of a command", words.COMMAND_STATES)),
    ),
}
"""Table -> columns whose distinct values are checked together, and the check; each raises ValueError."""


def check_rows(connection: sqlite3.Connection, tables: Sequence[str], run_id: str) -> dict[str, int]:
    """Table -> rows. Raises ValueError for a row of another run, an unknown word, a span that is none, broken JSON."""
    counts: dict[str, int] = {}
    for table in tables:
        counts[table] = _one(connection, f"SELECT count(*) FROM {table}")
        if others := _one(connection, f"SELECT count(*) FROM {table} WHERE run_id IS NOT ?", run_id):
            raise ValueError(f"{table} has {others:,} rows that are not of run {run_id!r}")
        for names, check in WORDS.get(table, ()):
            for values in connection.execute(f"SELECT DISTINCT {', '.join(names)} FROM {table}"):
                check(*values)
        for column in (row[1] for row in connection.execute(f"PRAGMA table_info({table})")):
            broken = f"SELECT count(*) FROM {table} WHERE {column} IS NOT NULL AND NOT json_valid({column})"
            if (column in JSON or column.endswith("_json")) and _one(connection, broken):
                raise ValueError(f"{column} of {table} must be JSON")
    if "rollups" in tables:
        for layout, length in connection.execute("SELECT DISTINCT layout, length(data) FROM rollups"):
            if length % (2 * words.COLUMNS_OF_VERSION[layout]):
                raise ValueError(f"a rollup of {length} bytes is not one of layout {layout}")
    if "spans" in tables:
        wrong = "SELECT count(*) FROM spans WHERE device < 0 OR t1 < t0 OR t1 > t0 + ?"
        if count := _one(connection, wrong, words.MAX_SPAN_S + SLACK_S):
            raise ValueError(f"{count:,} spans run backwards or are longer than {words.MAX_SPAN_S:g} s")
    return counts


def _one(connection: sqlite3.Connection, sql: str, *parameters: Any) -> int:
    return int(connection.execute(sql, parameters).fetchone()[0])
