"""Opening and migrating: once, wholly, from every older schema, whoever comes first."""

from __future__ import annotations

import pickle
import sqlite3
import threading
from pathlib import Path

import pytest
from sqlite_utils import Database
from sqlite_utils.migrations import Migrations

from storage.database import DatabaseBroken, SchemaTooNew, TelemetryMissing, open_for_writing
from storage.schema import CONTROL, TELEMETRY


def schema_of(db: Database) -> dict[str, str]:
    return {row[0]: row[1] for row in db.execute("SELECT name, sql FROM sqlite_master WHERE sql IS NOT NULL")}


def names_of(migrations: Migrations) -> list[str]:
    return [migration.name for migration in migrations.pending(Database(memory=True))]


OLDER = [
    pytest.param(migrations, name, id=f"{migrations.name} before {name}")
    for migrations in (TELEMETRY, CONTROL)
    for name in names_of(migrations)
]


@pytest.mark.parametrize(("migrations", "stop_before"), OLDER)
def test_every_older_schema_becomes_the_present_one(tmp_path: Path, migrations: Migrations, stop_before: str) -> None:
    old = Database(tmp_path / "old.db")
    migrations.apply(old, stop_before=stop_before)
    old.close()
    assert schema_of(open_for_writing(tmp_path / "old.db", migrations)) == schema_of(
        open_for_writing(tmp_path / "new.db", migrations)
    )


def two_versions(*, second_fails: bool) -> tuple[Migrations, Migrations]:
    older, newer = Migrations("thing"), Migrations("thing")

    def m001(db: Database) -> None:
        db.table("things").insert({"id": 1, "name": "kept"}, pk="id")

    def m002(db: Database) -> None:
        db.table("things").add_column("size", int)
        db.execute("UPDATE things SET size = length(name)")
        if second_fails:
            raise RuntimeError("power cut")

    older()(m001)
    newer()(m001)
    newer()(m002)
    return older, newer


def test_a_migration_keeps_the_rows_of_the_older_schema(tmp_path: Path) -> None:
    older, newer = two_versions(second_fails=False)
    open_for_writing(tmp_path / "t.db", older).close()
    db = open_for_writing(tmp_path / "t.db", newer)
    assert list(db.table("things").rows) == [{"id": 1, "name": "kept", "size": 4}]
    assert [applied.name for applied in newer.applied(db)] == ["m001", "m002"]


def test_a_migration_that_fails_leaves_neither_changes_nor_its_record(tmp_path: Path) -> None:
    older, newer = two_versions(second_fails=True)
    open_for_writing(tmp_path / "t.db", older).close()
    with pytest.raises(RuntimeError, match="power cut"):
        open_for_writing(tmp_path / "t.db", newer)
    db = open_for_writing(tmp_path / "t.db", older)
    assert list(db.table("things").rows) == [{"id": 1, "name": "kept"}]
    assert [applied.name for applied in older.applied(db)] == ["m001"]


def test_threads_that_open_a_new_database_at_once_migrate_it_once(tmp_path: Path) -> None:
    failures: list[BaseException] = []
    barrier = threading.Barrier(8)

    def open_it() -> None:
        try:
            barrier.wait(10)
            open_for_writing(tmp_path / "t.db", CONTROL).close()
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=open_it) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert failures == []
    db = open_for_writing(tmp_path / "t.db", CONTROL)
    assert [applied.name for applied in CONTROL.applied(db)] == names_of(CONTROL)


def test_a_new_database_has_a_write_ahead_log_and_gives_pages_back(tmp_path: Path) -> None:
    db = open_for_writing(tmp_path / "deep" / "folder" / "t.db", TELEMETRY)
    assert db.execute("PRAGMA journal_mode").fetchone()[0] == "wal"
    incremental = 2
    assert db.execute("PRAGMA auto_vacuum").fetchone()[0] == incremental


def test_a_newer_database_is_not_touched(tmp_path: Path) -> None:
    older, newer = two_versions(second_fails=False)
    open_for_writing(tmp_path / "t.db", newer).close()
    before = (tmp_path / "t.db").read_bytes()
    with pytest.raises(SchemaTooNew, match=r"t\.db: written by a newer program \(knows m002\)"):
        open_for_writing(tmp_path / "t.db", older)
    assert (tmp_path / "t.db").read_bytes() == before


def test_a_folder_in_the_database_s_place_is_named(tmp_path: Path) -> None:
    (tmp_path / "t.db").mkdir()
    with pytest.raises(DatabaseBroken, match=r"t\.db: unable to open"):
        open_for_writing(tmp_path / "t.db", CONTROL)


def test_errors_survive_pickling() -> None:
    error = pickle.loads(pickle.dumps(TelemetryMissing(Path("/data/t.db"), "gone")))
    assert (type(error), error.path, error.reason, str(error)) == (
        TelemetryMissing,
        Path("/data/t.db"),
        "gone",
        "/data/t.db: gone",
    )
    assert not isinstance(error, sqlite3.Error)
