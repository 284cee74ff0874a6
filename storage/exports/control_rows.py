"""Puts the commands, tags and notes of an imported run into the mailbox. A command that was never taken stays undone.

Ids are given anew, in the order of sending: commands of two installations would have the same ones.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

from storage.batch import insert_sql
from storage.database import DatabaseBroken, explained, immediate, open_for_writing
from storage.schema import CONTROL

UNDONE = "It was never taken: its run was exported before."
"""Answer of a command that was open when its run was exported; as it is it would be carried out here."""

OPEN = ("pending", "accepted")


def add_control_rows(control_db: Path, source: Path, *, run_id: str, as_run_id: str) -> None:
    """Copy the rows of `run_id` from `source`, in one transaction. Raises StorageError."""
    with closing(open_for_writing(control_db, CONTROL)) as db, closing(sqlite3.connect(source)) as given:
        given.row_factory = sqlite3.Row
        connection = db.conn
        with explained(control_db, DatabaseBroken), immediate(connection):
            for row in given.execute("SELECT * FROM commands WHERE run_id = ? ORDER BY id", [run_id]):
                values = dict(row) | {"run_id": as_run_id, "idem_key": f"imported:{as_run_id}:{row['id']}"}
                del values["id"]
                if values["state"] in OPEN:
                    values |= {"state": "expired", "answer": UNDONE}
                connection.execute(insert_sql("commands", list(values), "INSERT OR IGNORE"), list(values.values()))
            for table in ("tags", "notes"):
                for row in given.execute(f"SELECT * FROM {table} WHERE run_id = ?", [run_id]):
                    values = dict(row) | {"run_id": as_run_id}
                    connection.execute(insert_sql(table, list(values), "INSERT OR IGNORE"), list(values.values()))
