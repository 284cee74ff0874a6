"""Opening the databases: for writing (creates the folder, migrates) or read-only. It refuses newer schemas.

Every failure to open or read carries the path, so that a page can show it.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sqlite_utils import Database
from sqlite_utils.migrations import Migrations

WRITE_TIMEOUT_S = 5.0
"""With no wait a tenth of the commands failed as locked at 20k rows/s; with 5 s none did."""

READ_TIMEOUT_S = 2.0
"""Readers of a write-ahead log wait only for recovery after a crash; a page that waits longer looks dead."""

WAL_RETRY_S = 0.02
"""Switching to the write-ahead log does not honour SQLite's own busy timeout, so we ask again this often."""


class StorageError(RuntimeError):
    """A database cannot be used; `.path` says which and `.reason` why."""

    def __init__(self, path: Path | str, reason: str) -> None:
        super().__init__(str(path), reason)
        self.path = Path(path)
        self.reason = reason

    def __str__(self) -> str:
        return f"{self.path}: {self.reason}"


class SchemaTooNew(StorageError):
    """A newer program wrote the database; this one would misread it."""


class DatabaseBroken(StorageError):
    """The database is locked, corrupt or not a database."""


class TelemetryMissing(StorageError):
    """No engine has written telemetry in this data folder yet."""


class TelemetryBroken(DatabaseBroken):
    """The telemetry exists but cannot be read now: locked, corrupt, or of an older schema."""


def open_for_writing(path: Path, migrations: Migrations) -> Database:
    """Create the folder and the database if need be, bring its schema up to date, and return a connection.

    Raises SchemaTooNew, or DatabaseBroken when it is not a database or stays locked for `WRITE_TIMEOUT_S`.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with explained(path, DatabaseBroken):
        connection = connect_for_writing(path)
        try:
            _use_write_ahead_log(connection)
            db = Database(connection)
            check_not_newer(path, db, migrations)
            if migrations.pending(db):
                _migrate(db, migrations)
        except BaseException:
            connection.close()
            raise
    return db


def connect_for_writing(path: Path) -> sqlite3.Connection:
    """A connection to a database that `open_for_writing` has prepared; transactions are explicit."""
    connection = sqlite3.connect(path, timeout=WRITE_TIMEOUT_S, isolation_level=None)
    connection.execute("PRAGMA synchronous=NORMAL")
    return connection


def open_read_only(path: Path, migrations: Migrations, *, timeout_s: float = READ_TIMEOUT_S) -> sqlite3.Connection:
    """A connection that cannot write. Raises TelemetryMissing, SchemaTooNew or TelemetryBroken."""
    if not path.is_file() or path.stat().st_size == 0:
        raise TelemetryMissing(path, "no telemetry yet; start an engine on this data folder")
    with explained(path, TelemetryBroken):
        uri = f"{path.absolute().as_uri()}?mode=ro"
        connection = sqlite3.connect(uri, uri=True, timeout=timeout_s, isolation_level=None)
        try:
            connection.execute("PRAGMA query_only=ON")
            db = Database(connection)
            check_not_newer(path, db, migrations)
            if not migrations.applied(db):
                raise TelemetryMissing(path, "no telemetry yet; the database has no tables")
            if pending := migrations.pending(db):
                raise TelemetryBroken(path, f"older than this program (lacks {pending[0].name}); the engine updates it")
        except BaseException:
            connection.close()
            raise
    return connection


def check_not_newer(path: Path, db: Database, migrations: Migrations) -> None:
    """Raise SchemaTooNew if a migration was applied that this program does not know."""
    known = {migration.name for migration in migrations.pending(Database(memory=True))}
    unknown = sorted({migration.name for migration in migrations.applied(db)} - known)
    if unknown:
        raise SchemaTooNew(
            path, f"written by a newer program (knows {unknown[-1]}); update this one or use another folder"
        )


@contextmanager
def explained(path: Path, broken: type[StorageError]) -> Iterator[None]:
    """SQLite's errors as `broken`, with the path."""
    try:
        yield
    except sqlite3.Error as error:
        raise broken(path, str(error)) from error


@contextmanager
def immediate(connection: sqlite3.Connection) -> Iterator[None]:
    """A transaction that holds the write lock from its start; a later upgrade could fail as locked without waiting."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise
    connection.execute("COMMIT")


def _use_write_ahead_log(connection: sqlite3.Connection) -> None:
    if connection.execute("PRAGMA page_count").fetchone()[0] == 0:
        # Only an empty database takes this, and without it a deleted run's pages could be returned only by a VACUUM.
        connection.execute("PRAGMA auto_vacuum=INCREMENTAL")
    deadline = time.monotonic() + WRITE_TIMEOUT_S
    while True:
        try:
            if connection.execute("PRAGMA journal_mode=WAL").fetchone()[0] == "wal":
                return
            raise sqlite3.OperationalError("this file system does not allow a write-ahead log")
        except sqlite3.OperationalError as error:
            if "locked" not in str(error) or time.monotonic() > deadline:
                raise
            time.sleep(WAL_RETRY_S)


def _migrate(db: Database, migrations: Migrations) -> None:
    # Engine and app may open control.db at the same moment: what is pending is asked again under the write lock, and
    # each migration with its record is a savepoint inside, so an upgrade happens wholly and once or not at all.
    with immediate(db.conn):
        migrations.apply(db)
