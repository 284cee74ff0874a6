"""The command mailbox in `control.db`: what operators ask for, what the engine answers; settings, notes and tags.

Sender and engine share nothing but this file, so a command survives the death of either and the rows are the audit log.
It refuses unknown kinds and illegal changes of state; whether a command makes sense is the engine's to judge.

    pending -> accepted -> applied
    pending | accepted -> rejected | superseded        pending -> expired          owner of every arrow: the engine

An accepted command does not expire: its effect may already be under way. A restarted engine finds those of its
predecessor with `list(state="accepted")` and answers them.
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from storage import words
from storage.codec import columns, encode, from_row
from storage.database import DatabaseBroken, explained, immediate, open_for_writing
from storage.records import Command
from storage.schema import CONTROL

TRANSITIONS: dict[str, tuple[str, ...]] = {
    "pending": ("accepted", "rejected", "superseded", "expired"),
    "accepted": ("applied", "rejected", "superseded"),
    "applied": (),
    "rejected": (),
    "superseded": (),
    "expired": (),
}
"""State -> the states that may follow it."""

EXPIRED_ANSWER = "expired before the engine took it"

Commands = list[Command]
"""Named here because inside the class `list` is a method."""

_COMMAND = ", ".join(f'"{column}"' for column in columns(Command))


class Mailbox:
    """One connection to the mailbox, used by the thread that made it. Creates and migrates `control.db`.

    Raises SchemaTooNew or DatabaseBroken (both with `.path`) when the database cannot be used.
    """

    def __init__(self, path: Path, *, clock: Callable[[], float] = time.time) -> None:
        self.path = Path(path)
        self._clock = clock
        self._db = open_for_writing(self.path, CONTROL)

    def __enter__(self) -> Mailbox:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self._db.close()

    # Sending

    def send(
        self,
        kind: str,
        payload: dict[str, Any],
        run_id: str | None = None,
        *,
        who: str,
        idem_key: str | None = None,
        expires_in_s: float | None = None,
        expected_config_version: int | None = None,
        expected_effect: str | None = None,
    ) -> int:
        """Put a command into the mailbox and return its id.

        A second send with the same `idem_key` returns the first one's id and changes nothing. Raises ValueError for an
        unknown kind, for a command to a run that names no run, and for an expiry that is not in the future.
        """
        words.require("kind of a command", kind, words.COMMAND_KINDS)
        if kind in words.RUN_COMMAND_KINDS and not run_id:
            raise ValueError(f"run_id of a {kind} command must name a run, got {run_id!r}")
        if expires_in_s is not None and not expires_in_s > 0:
            raise ValueError(f"expires_in_s must be greater than 0, got {expires_in_s!r}")
        now = self._clock()
        key = idem_key or uuid.uuid4().hex
        with explained(self.path, DatabaseBroken), immediate(self._db.conn):
            self._db.table("commands").insert(
                {
                    "run_id": run_id,
                    "kind": kind,
                    "payload": encode(payload),
                    "who": who,
                    "created_at": now,
                    "expires_at": None if expires_in_s is None else now + expires_in_s,
                    "idem_key": key,
                    "expected_config_version": expected_config_version,
                    "expected_effect": expected_effect,
                    "state": "pending",
                },
                ignore=True,
            )
            return int(self._db.execute("SELECT id FROM commands WHERE idem_key = ?", [key]).fetchone()[0])

    # The engine's side

    def pending(self) -> Commands:
        """Commands that wait for the engine, oldest first; those whose time is over are expired on the way."""
        self.expire(self._clock())
        return self._select("WHERE state = 'pending' ORDER BY id", [])

    def expire(self, now: float) -> list[int]:
        """Mark pending commands whose `expires_at` is not after `now` as expired; returns their ids."""
        due = "state = 'pending' AND expires_at <= ?"
        with explained(self.path, DatabaseBroken):
            # Asked without the write lock first: the engine comes here four times a second and rarely finds one.
            if not self._db.execute(f"SELECT 1 FROM commands WHERE {due} LIMIT 1", [now]).fetchone():
                return []
            rows = self._db.execute(
                f"UPDATE commands SET state = 'expired', answer = ? WHERE {due} RETURNING id", [EXPIRED_ANSWER, now]
            ).fetchall()
        return sorted(row[0] for row in rows)

    def accept(self, command_id: int, answer: str | None = None) -> None:
        """The engine has taken it; `answer` says what will happen. Raises RuntimeError unless it is pending."""
        self._move(command_id, "accepted", accepted_at=self._clock(), answer=answer)

    def apply(
        self,
        command_id: int,
        answer: str,
        *,
        effective_step: int | None = None,
        effective_version: int | None = None,
        result: dict[str, Any] | None = None,
    ) -> None:
        """It has been done; `answer` says what and from when. Raises RuntimeError unless it is accepted."""
        self._move(
            command_id,
            "applied",
            answer=answer,
            effective_step=effective_step,
            effective_version=effective_version,
            applied_at=self._clock(),
            result=encode(result),
        )

    def reject(self, command_id: int, answer: str) -> None:
        """It will not be done, and `answer` says why. Raises RuntimeError if it already has a final state."""
        self._move(command_id, "rejected", answer=answer)

    def supersede(self, command_id: int, answer: str) -> None:
        """A later command took its place. Raises RuntimeError if it already has a final state."""
        self._move(command_id, "superseded", answer=answer)

    # Reading

    def get(self, command_id: int) -> Command:
        """Raises ValueError if there is no such command."""
        found = self._select("WHERE id = ?", [command_id])
        if not found:
            raise ValueError(f"{self.path}: there is no command {command_id}")
        return found[0]

    def list(self, run_id: str | None = None, *, state: str | None = None, limit: int = 100) -> Commands:
        """Newest first; of one run and in one state if given."""
        if state is not None:
            words.require("state of a command", state, words.COMMAND_STATES)
        return self._select(
            "WHERE (?1 IS NULL OR run_id = ?1) AND (?2 IS NULL OR state = ?2) ORDER BY id DESC LIMIT ?3",
            [run_id, state, limit],
        )

    # Settings, notes, tags

    def get_setting(self, key: str) -> Any:
        """The value last set, or None."""
        row = self._one("SELECT value FROM settings WHERE key = ?", [key])
        return None if row is None else json.loads(row[0])

    def settings(self) -> dict[str, Any]:
        """Every setting."""
        with explained(self.path, DatabaseBroken):
            return {key: json.loads(value) for key, value in self._db.execute("SELECT key, value FROM settings")}

    def set_setting(self, key: str, value: Any, *, who: str) -> None:
        """Keep a JSON value under `key`."""
        self._upsert("settings", {"key": key, "value": json.dumps(value), "who": who, "at": self._clock()})

    def note(self, run_id: str) -> str:
        """The run's note, "" without one."""
        row = self._one("SELECT text FROM notes WHERE run_id = ?", [run_id])
        return "" if row is None else row[0]

    def set_note(self, run_id: str, text: str, *, who: str) -> None:
        """Replace the run's note."""
        self._upsert("notes", {"run_id": run_id, "text": text, "who": who, "at": self._clock()})

    def tags(self, run_id: str) -> tuple[str, ...]:
        """The run's tags in alphabetical order."""
        with explained(self.path, DatabaseBroken):
            rows = self._db.execute("SELECT tag FROM tags WHERE run_id = ? ORDER BY tag", [run_id])
            return tuple(row[0] for row in rows)

    def all_tags(self) -> dict[str, tuple[str, ...]]:
        """Run id -> its tags in alphabetical order, of every run that has any."""
        found: dict[str, tuple[str, ...]] = {}
        with explained(self.path, DatabaseBroken):
            for run_id, tag in self._db.execute("SELECT run_id, tag FROM tags ORDER BY run_id, tag"):
                found[run_id] = (*found.get(run_id, ()), tag)
        return found

    def all_notes(self) -> dict[str, str]:
        """Run id -> its note, of every run that has one."""
        with explained(self.path, DatabaseBroken):
            return dict(self._db.execute("SELECT run_id, text FROM notes WHERE text <> ''").fetchall())

    def add_tag(self, run_id: str, tag: str, *, who: str) -> None:
        self._upsert("tags", {"run_id": run_id, "tag": tag, "who": who, "at": self._clock()})

    def remove_tag(self, run_id: str, tag: str) -> None:
        """Does nothing if the run has no such tag."""
        with explained(self.path, DatabaseBroken), immediate(self._db.conn):
            self._db.execute("DELETE FROM tags WHERE run_id = ? AND tag = ?", [run_id, tag])

    def forget_marks(self, run_id: str) -> None:
        """Remove the tags and the note of a run that is deleted: another run of its name would show them."""
        with explained(self.path, DatabaseBroken), immediate(self._db.conn):
            for table in ("tags", "notes"):
                self._db.execute(f"DELETE FROM {table} WHERE run_id = ?", [run_id])

    # Inside

    def _move(self, command_id: int, state: str, **values: Any) -> None:
        before = tuple(name for name, following in TRANSITIONS.items() if state in following)
        assignments = ", ".join(f"{column} = ?" for column in ("state", *values))
        # The states it may come from are part of the update, so two movers cannot both succeed.
        marks = ", ".join("?" * len(before))
        with explained(self.path, DatabaseBroken):
            cursor = self._db.execute(
                f"UPDATE commands SET {assignments} WHERE id = ? AND state IN ({marks})",
                [state, *values.values(), command_id, *before],
            )
        if cursor.rowcount != 1:
            now = self.get(command_id).state
            allowed = " or ".join(TRANSITIONS[now]) or "nothing, that is final"
            raise RuntimeError(f"command {command_id} is {now} and cannot become {state}; it can become {allowed}")

    def _select(self, where: str, parameters: Sequence[Any]) -> Commands:
        with explained(self.path, DatabaseBroken):
            rows = self._db.execute(f"SELECT {_COMMAND} FROM commands {where}", parameters).fetchall()
        return [from_row(Command, row) for row in rows]

    def _one(self, sql: str, parameters: Sequence[Any]) -> Any:
        with explained(self.path, DatabaseBroken):
            return self._db.execute(sql, parameters).fetchone()

    def _upsert(self, table: str, row: dict[str, Any]) -> None:
        with explained(self.path, DatabaseBroken), immediate(self._db.conn):
            self._db.table(table).upsert(row)
