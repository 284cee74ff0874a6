"""Whether two databases hold the same run, whatever it is called in each. Raw spans are left aside: retention
takes them from one installation earlier than from another, and the rollups hold the same time."""

from __future__ import annotations

import sqlite3

COMPARED = {
    "runs": ("name", "kind", "job", "created_at", "started_at", "seed", "arm", "time_scale"),
    "devices": (),
    "steps": (),
    "groups": (),
    "evals": (),
    "decisions": (),
    "leases": (),
    "logs": (),
    "rollups": (),
}
"""Table -> columns that count; none named: all but those of WITHOUT."""

WITHOUT = {"run_id", "id"}
"""What a run is called and how its log lines are numbered here; decisions are told by all their other columns."""

ONLY = {"rollups": " AND res = 60"}
"""Table -> which rows; finer rollups go with time."""


def differing_tables(one: sqlite3.Connection, run_id: str, other: sqlite3.Connection, other_id: str) -> list[str]:
    """Tables in which the run is not the same; none for one run. Rows stream from both, in their order."""
    return [table for table in COMPARED if not _same(table, one, run_id, other, other_id)]


def _same(table: str, one: sqlite3.Connection, run_id: str, other: sqlite3.Connection, other_id: str) -> bool:
    names = COMPARED[table] or tuple(
        row[1] for row in one.execute(f"PRAGMA table_info({table})") if row[1] not in WITHOUT
    )
    picked = ", ".join(f'"{name}"' for name in names)
    sql = f"SELECT {picked} FROM {table} WHERE run_id = ?{ONLY.get(table, '')} ORDER BY {picked}"
    left, right = one.execute(sql, [run_id]), other.execute(sql, [other_id])
    while True:
        rows, others = left.fetchmany(1000), right.fetchmany(1000)
        if rows != others:
            return False
        if not rows:
            return True
