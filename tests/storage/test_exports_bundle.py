"""One-file bundles: out of one data folder and into another with every row equal, and everything that is refused."""

from __future__ import annotations

import hashlib
import io
import json
import sqlite3
import time
import zipfile
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from storage.database import connect_for_writing
from storage.exports.bundle import CONTROL_MEMBER, DATABASES, RUN_TABLES, TELEMETRY_MEMBER
from storage.exports.control_rows import UNDONE, add_control_rows
from storage.exports.export import export
from storage.exports.same_run import differing_tables
from storage.exports.unpack import BundleRefused, Unpacked, unpack
from storage.mailbox import Mailbox
from storage.paths import DataDir
from storage.reader import TelemetryReader
from storage.retention import Limits, Retention
from storage.run_copy import CUT_OFF, RunCopy
from storage.schema import TELEMETRY
from storage.writer import TelemetryWriter
from tests.app.fake_emulated import write_emulated
from tests.app.fake_run import NOW, open_writer, write_engine, write_run
from tests.storage.builders import RUN, T0, make_span, make_state

LATER = NOW + 365 * 24 * 3600.0
"""A year after the run, when nothing of it would be left by age."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> DataDir:
    data = DataDir(tmp_path_factory.mktemp("data"))
    writer = open_writer(data, NOW)
    write_engine(writer)
    write_run(writer, "real", state="finished", lending=True, pools=(2, 2), steps=12, error='<b>"x"</b>')
    writer.states([make_state(run_id="real", seq=n, data=bytes(range(n % 250))) for n in range(40)])
    write_run(writer, "other", state="finished", steps=2)
    write_run(writer, "live", state="running", steps=3)
    write_emulated(writer, "modelled", state="finished", steps=4)
    writer.close()
    with Mailbox(data.control_db, clock=lambda: NOW) as mailbox:
        for kind in ("staleness", "pause"):
            sent = mailbox.send(kind, {"staleness": 2.0} if kind == "staleness" else {}, "real", who="ana")
            mailbox.accept(sent)
        mailbox.apply(1, "From step 7 on.", effective_step=7, result={"changes": {"staleness": 2.0}})
        mailbox.add_tag("real", "good", who="ana")
        mailbox.set_note("real", "kept", who="ana")
        mailbox.set_note("other", "not its own", who="ana")
    return data


def bundle_of(data: DataDir, run_id: str, out: Path) -> Path:
    return export(data, run_id, "bundle", out).path


def taken_in(
    data: DataDir, found: Unpacked, *, as_run_id: str | None = None, clock: Callable[[], float] = lambda: LATER
) -> RunCopy:
    """Through a writer of the data folder, as the engine does it."""
    writer = TelemetryWriter(data.telemetry_db, clock=clock, flush_s=0.01)
    name = as_run_id or found.run_id
    copy = RunCopy(found.telemetry, run_id=found.run_id, as_run_id=name, imported_at=clock())
    writer.take_in(copy)
    deadline = time.monotonic() + 60
    while not copy.done and time.monotonic() < deadline:
        writer.flush()
        time.sleep(0.005)
    writer.close()
    assert copy.done, "the writer did not take the run in"
    if copy.error is None:
        add_control_rows(data.control_db, found.control, run_id=found.run_id, as_run_id=name)
    return copy


def rows(path: Path, table: str, run_id: str, without: tuple[str, ...] = ()) -> list[tuple[Any, ...]]:
    with closing(sqlite3.connect(path)) as connection:
        names = [row[1] for row in connection.execute(f"PRAGMA table_info({table})") if row[1] not in without]
        picked = ", ".join(names)
        return sorted(
            connection.execute(f"SELECT {picked} FROM {table} WHERE run_id = ?", [run_id]).fetchall(), key=repr
        )


# -- there and back ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("run_id", ["real", "modelled"])
def test_every_row_of_a_run_is_the_same_in_another_installation(folder: DataDir, tmp_path: Path, run_id: str) -> None:
    found = unpack(bundle_of(folder, run_id, tmp_path / "b.zip"), _made(tmp_path / "unpacked"))
    assert found.label == ("EMULATED" if run_id == "modelled" else "")
    there = DataDir(_made(tmp_path / "there"))
    assert taken_in(there, found).error is None
    for table in RUN_TABLES[TELEMETRY_MEMBER]:
        without = {"logs": ("id",), "runs": ("imported_at",)}.get(table, ())
        mine, theirs = (rows(data.telemetry_db, table, run_id, without) for data in (folder, there))
        assert mine == theirs, table
        assert mine or table in ("raw_missing", "device_state") or run_id == "modelled"
    for table in ("tags", "notes"):
        assert rows(folder.control_db, table, run_id) == rows(there.control_db, table, run_id)
    with TelemetryReader(there.telemetry_db) as reader, TelemetryReader(folder.telemetry_db) as before:
        assert [run.run_id for run in reader.runs()] == [run_id]
        assert reader.kind_seconds(run_id, 0, LATER) == before.kind_seconds(run_id, 0, LATER)
        assert reader.lease_outcomes(run_id) == before.lease_outcomes(run_id)
        assert [log.text for log in reader.logs(run_id)] == [log.text for log in before.logs(run_id)]
        run = reader.run(run_id)
        assert run is not None
        assert run.imported_at == LATER


def test_commands_keep_their_order_and_one_that_was_open_is_never_carried_out(folder: DataDir, tmp_path: Path) -> None:
    found = unpack(bundle_of(folder, "real", tmp_path / "b.zip"), _made(tmp_path / "unpacked"))
    there = DataDir(_made(tmp_path / "there"))
    with Mailbox(there.control_db) as mailbox:
        mine = mailbox.send("pause", {}, "mine", who="ben")
    taken_in(there, found)
    with Mailbox(there.control_db) as mailbox:
        brought = mailbox.list("real")[::-1]
        assert [(command.kind, command.state) for command in brought] == [
            ("staleness", "applied"),
            ("pause", "expired"),
        ]
        assert brought[0].answer == "From step 7 on."
        assert brought[0].result == {"changes": {"staleness": 2.0}}
        assert brought[1].answer == UNDONE
        assert [command.id for command in mailbox.pending()] == [mine]
        assert [command.kind for command in mailbox.list(state="accepted")] == []


def test_a_run_takes_another_name_beside_the_one_that_is_there(folder: DataDir, tmp_path: Path) -> None:
    found = unpack(bundle_of(folder, "real", tmp_path / "b.zip"), _made(tmp_path / "unpacked"))
    there = DataDir(_made(tmp_path / "there"))
    taken_in(there, found)
    assert "is here already" in (taken_in(there, found).error or "")
    assert taken_in(there, found, as_run_id="again").error is None
    with TelemetryReader(there.telemetry_db) as reader:
        assert {run.run_id for run in reader.runs()} == {"real", "again"}
        assert reader.kind_seconds("again", 0, LATER) == reader.kind_seconds("real", 0, LATER)
    with closing(sqlite3.connect(there.telemetry_db)) as one:
        assert differing_tables(one, "real", one, "again") == []
        one.execute("UPDATE steps SET loss = loss + 1 WHERE run_id = 'again' AND step = 3")
        one.execute("DELETE FROM spans WHERE run_id = 'again'")
        assert differing_tables(one, "real", one, "again") == ["steps"]


def test_what_was_imported_is_kept_as_long_as_if_it_were_new(folder: DataDir, tmp_path: Path) -> None:
    """By its own age everything but the 60 s rollups would go with the first sweep."""
    found = unpack(bundle_of(folder, "real", tmp_path / "b.zip"), _made(tmp_path / "unpacked"))
    there = DataDir(_made(tmp_path / "there"))
    taken_in(there, found)
    kept = {table: len(rows(folder.telemetry_db, table, "real")) for table in ("spans", "rollups", "states")}
    for hours, left in ((5, {"spans", "rollups", "states"}), (7, {"rollups"}), (25, set())):
        with closing(connect_for_writing(there.telemetry_db)) as connection:
            list(Retention(connection, Limits()).sweep(LATER + hours * 3600))
        found_rows = {table: len(rows(there.telemetry_db, table, "real")) for table in kept}
        assert {table for table in kept if found_rows[table] == kept[table]} == left


def test_a_run_that_went_on_when_it_was_exported_is_interrupted_here(folder: DataDir, tmp_path: Path) -> None:
    """As it was it would be taken for a run of this installation: a queued one would even be started."""
    found = unpack(bundle_of(folder, "live", tmp_path / "b.zip"), _made(tmp_path / "unpacked"))
    there = DataDir(_made(tmp_path / "there"))
    taken_in(there, found)
    with TelemetryReader(there.telemetry_db) as reader:
        run = reader.run("live")
    assert run is not None
    assert (run.state, run.error) == ("interrupted", CUT_OFF)
    # the last that was heard of it: the newest open span was seen 0.2 s before NOW
    assert run.ended_at == NOW - 0.2


def test_the_manifest_says_what_is_in_it_and_what_is_not(folder: DataDir, tmp_path: Path) -> None:
    with zipfile.ZipFile(bundle_of(folder, "modelled", tmp_path / "b.zip")) as archive:
        manifest = json.loads(archive.read("manifest.json"))
    assert (manifest["label"], manifest["time_scale"]) == ("EMULATED", 0.02)
    assert manifest["rows"]["spans"] == len(rows(folder.telemetry_db, "spans", "modelled"))
    assert any("checkpoints" in text for text in manifest["left_out"])
    assert manifest["schema"]["telemetry.db"][0] == "m001_runs_and_engines"


def test_the_telemetry_stays_writable_while_a_run_is_taken_in(folder: DataDir, tmp_path: Path) -> None:
    found = unpack(bundle_of(folder, "real", tmp_path / "b.zip"), _made(tmp_path / "unpacked"))
    there = DataDir(_made(tmp_path / "there"))
    writer = TelemetryWriter(there.telemetry_db, clock=lambda: T0)
    writer.run(RUN, created_at=T0)
    copy = RunCopy(found.telemetry, run_id="real", as_run_id="real", imported_at=T0)
    writer.take_in(copy)
    for n in range(200):
        writer.spans([make_span(n, 1.0)])
    writer.flush()
    assert len(rows(there.telemetry_db, "spans", RUN)) == 200
    deadline = time.monotonic() + 30
    while not copy.done and time.monotonic() < deadline:
        time.sleep(0.01)
    writer.close()
    assert copy.error is None
    assert len(rows(there.telemetry_db, "spans", "real")) == len(rows(folder.telemetry_db, "spans", "real"))


def test_a_writer_that_ends_takes_back_what_had_come_in(
    folder: DataDir, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("storage.run_copy.CHUNK_ROWS", 5)
    found = unpack(bundle_of(folder, "real", tmp_path / "b.zip"), _made(tmp_path / "unpacked"))
    there = DataDir(_made(tmp_path / "there"))
    writer = TelemetryWriter(there.telemetry_db, clock=lambda: T0)
    copy = RunCopy(found.telemetry, run_id="real", as_run_id="real", imported_at=T0)
    writer.take_in(copy)
    while copy.rows < 20:
        time.sleep(0.001)
    writer.close()
    assert copy.error == "the engine ended before all of it was taken in"
    assert rows(there.telemetry_db, "spans", "real") == []


def test_what_a_crash_left_of_an_import_is_cleared_by_the_next_one(folder: DataDir, tmp_path: Path) -> None:
    found = unpack(bundle_of(folder, "real", tmp_path / "b.zip"), _made(tmp_path / "unpacked"))
    there = DataDir(_made(tmp_path / "there"))
    writer = TelemetryWriter(there.telemetry_db, clock=lambda: LATER)
    writer.spans([make_span(n, 1.0, run_id="real") for n in range(50)])
    writer.close()
    assert taken_in(there, found).error is None
    assert rows(there.telemetry_db, "spans", "real") == rows(folder.telemetry_db, "spans", "real")


# -- refusals ---------------------------------------------------------------------------------------------------------


def _made(path: Path) -> Path:
    path.mkdir()
    return path


def repacked(
    bundle: Path,
    out: Path,
    *,
    manifest: Callable[[dict[str, Any]], None] = lambda document: None,
    database: dict[str, Callable[[sqlite3.Connection], None]] | None = None,
    extra: dict[str, bytes] | None = None,
    drop: tuple[str, ...] = (),
    honest: bool = True,
) -> Path:
    """The bundle with changes. honest: the manifest's hashes and sizes fit them."""
    with zipfile.ZipFile(bundle) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    for name, change in (database or {}).items():
        path = out.with_suffix(f".{name}")
        path.write_bytes(members[name])
        with closing(sqlite3.connect(path)) as connection:
            change(connection)
            connection.commit()
        members[name] = path.read_bytes()
    document = json.loads(members["manifest.json"])
    if honest:
        for name in DATABASES:
            document["members"][name] = {
                "sha256": hashlib.sha256(members[name]).hexdigest(),
                "bytes": len(members[name]),
            }
    manifest(document)
    members["manifest.json"] = json.dumps(document).encode()
    with zipfile.ZipFile(out, "w") as archive:
        for name, body in members.items():
            if name not in drop:
                archive.writestr(name, body)
        for name, body in (extra or {}).items():
            archive.writestr(name, body)
    return out


def sql(text: str) -> dict[str, Callable[[sqlite3.Connection], None]]:
    """A change of the telemetry."""
    return {TELEMETRY_MEMBER: lambda connection: connection.executescript(text) and None}


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "a newer format": ({"manifest": lambda d: d.update(format_version=2)}, "format 2, this program reads up to 1"),
    "a format that is no number": ({"manifest": lambda d: d.update(format_version="1")}, "must be a number"),
    "another program's zip": ({"manifest": lambda d: d.update(format="x")}, "is not a bundle"),
    "no manifest": ({"drop": ("manifest.json",)}, "no manifest.json"),
    "no telemetry": ({"drop": (TELEMETRY_MEMBER,)}, "each of"),
    "a path out of the folder": (
        {"extra": {"../../etc/cron.d/x": b"x"}},
        r"it holds '../../etc/cron.d/x'; allowed are",
    ),
    "an absolute path": ({"extra": {"/tmp/x": b"x"}}, "it holds '/tmp/x'"),
    "a second member of a name": ({"extra": {TELEMETRY_MEMBER: b"x"}}, "once"),
    "a newer schema": (
        {"database": sql("UPDATE _sqlite_migrations SET name = 'm999_future' WHERE name LIKE 'm004%'")},
        "written by a newer program .knows m999_future",
    ),
    "a trigger": (
        {"database": sql("CREATE TRIGGER t AFTER INSERT ON runs BEGIN DELETE FROM runs; END")},
        "the trigger 't'; only plain tables",
    ),
    "a view in place of a table": (
        {"database": sql("DROP TABLE evals; CREATE VIEW evals AS SELECT 1 AS run_id")},
        "the view 'evals'",
    ),
    "a virtual table": (
        {"database": sql("CREATE VIRTUAL TABLE v USING fts5(x)")},
        "only plain tables",
    ),
    "a table that lacks a column": (
        {"database": sql("ALTER TABLE steps DROP COLUMN loss")},
        "does not have the tables of its schema",
    ),
    "rows of another run": (
        {"database": sql("UPDATE steps SET run_id = 'victim' WHERE step = 1")},
        "steps has 1 rows that are not of run 'real'",
    ),
    "a kind of time that nobody knows": (
        {"database": sql("UPDATE spans SET kind = 'gardening' WHERE kind = 'optimizer'")},
        "kind must be one of .* got 'gardening'",
    ),
    "a state that no run has": (
        {"database": sql("UPDATE runs SET state = 'asleep'")},
        "state of a run must be one of",
    ),
    "JSON that is none": ({"database": sql("UPDATE steps SET lag_json = '{'")}, "lag_json of steps must be JSON"),
    "a rollup of another layout": (
        {"database": sql("UPDATE rollups SET layout = 9")},
        "layout of a rollup must be one of 1, got '9'",
    ),
    "a rollup that is cut off": (
        {"database": sql("UPDATE rollups SET data = substr(data, 1, 7)")},
        "a rollup of 7 bytes is not one of layout 1",
    ),
    "a span that runs backwards": (
        {"database": sql("UPDATE spans SET t1 = t0 - 1 WHERE kind = 'optimizer'")},
        "run backwards or are longer than 60 s",
    ),
    "rows that the manifest does not count": (
        {"database": sql("DELETE FROM steps WHERE step = 1")},
        "counts steps as 12, it has 11",
    ),
    "two runs": (
        {"database": sql("INSERT INTO runs (run_id, name, kind, arm, job) VALUES ('b', '', '', '', '')")},
        "runs has 1 rows that are not of run 'real'",
    ),
    "something else in place of a database": (
        {"database": {}, "manifest": lambda d: d["members"]["telemetry.db"].update(bytes=3)},
        "does not fit telemetry.db",
    ),
    "a hash that is not the member's": (
        {"manifest": lambda d: d["members"]["control.db"].update(sha256="0" * 64)},
        "control.db is not what was bundled",
    ),
    "a manifest without a run": ({"manifest": lambda d: d["run"].pop("run_id")}, "does not name a run"),
    "a manifest with lists": ({"manifest": lambda d: d.update(rows=[])}, "rows of its manifest must be a mapping"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused_is(folder: DataDir, tmp_path: Path, name: str) -> None:
    changes, says = REFUSED[name]
    bundle = repacked(bundle_of(folder, "real", tmp_path / "b.zip"), tmp_path / "changed.zip", **changes)
    with pytest.raises(BundleRefused, match=says):
        unpack(bundle, _made(tmp_path / "unpacked"))
    assert {path.name for path in (tmp_path / "unpacked").iterdir()} <= {
        *DATABASES,
        *(f"{name}-{part}" for name in DATABASES for part in ("wal", "shm", "journal")),
    }


def test_the_same_change_without_any_is_taken(folder: DataDir, tmp_path: Path) -> None:
    """Or the refusals above might be of the repacking."""
    bundle = repacked(bundle_of(folder, "real", tmp_path / "b.zip"), tmp_path / "changed.zip", database=sql("SELECT 1"))
    assert unpack(bundle, _made(tmp_path / "unpacked")).rows["steps"] == 12


@pytest.mark.parametrize("cut", [0, 1, 100, 5000])
def test_a_file_that_is_cut_off_is_refused(folder: DataDir, tmp_path: Path, cut: int) -> None:
    whole = bundle_of(folder, "real", tmp_path / "b.zip").read_bytes()
    (tmp_path / "cut.zip").write_bytes(whole[:cut])
    with pytest.raises(BundleRefused, match="not a bundle"):
        unpack(tmp_path / "cut.zip", _made(tmp_path / "unpacked"))


def test_no_flipped_byte_of_a_bundle_gets_in_unnoticed(folder: DataDir, tmp_path: Path) -> None:
    """What is taken in despite one (in a zip's own dates, say) is what was bundled, to the byte."""
    whole = bundle_of(folder, "other", tmp_path / "b.zip").read_bytes()
    with zipfile.ZipFile(io.BytesIO(whole)) as archive:
        sound = {name: archive.read(name) for name in DATABASES}
    for number, at in enumerate(range(0, len(whole), max(1, len(whole) // 60))):
        flipped = bytearray(whole)
        flipped[at] ^= 0x10
        (tmp_path / "f.zip").write_bytes(flipped)
        try:
            unpack(tmp_path / "f.zip", _made(tmp_path / f"u{number}"))
        except BundleRefused:
            continue
        with zipfile.ZipFile(tmp_path / "f.zip") as archive:
            assert {name: archive.read(name) for name in DATABASES} == sound


def test_a_bundle_that_does_not_fit_the_disk_is_refused_before_it_is_unpacked(
    folder: DataDir, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bundle = bundle_of(folder, "real", tmp_path / "b.zip")
    usage = type("Usage", (), {"free": 1000})
    monkeypatch.setattr("storage.exports.unpack.shutil.disk_usage", lambda path: usage)
    with pytest.raises(BundleRefused, match="GB of disk, and less is free"):
        unpack(bundle, _made(tmp_path / "unpacked"))
    assert list((tmp_path / "unpacked").iterdir()) == []


def test_an_older_bundle_is_brought_up_by_our_migrations(folder: DataDir, tmp_path: Path) -> None:
    from sqlite_utils import Database

    old = tmp_path / "old.db"
    names = [migration.name for migration in TELEMETRY.pending(Database(memory=True))]
    with closing(sqlite3.connect(old)) as connection:
        TELEMETRY.apply(Database(connection), stop_before="m007_settings")
        values = ("real", "n", "cpu", "no_borrow", "", "finished")
        connection.execute("INSERT INTO runs (run_id, name, kind, arm, job, state) VALUES (?, ?, ?, ?, ?, ?)", values)
        connection.commit()

    def older(document: dict[str, Any]) -> None:
        body = old.read_bytes()
        document["members"][TELEMETRY_MEMBER] = {"sha256": hashlib.sha256(body).hexdigest(), "bytes": len(body)}
        document["rows"] = {"runs": 1, **dict.fromkeys(RUN_TABLES[CONTROL_MEMBER], 0)} | {
            name: count for name, count in document["rows"].items() if name in RUN_TABLES[CONTROL_MEMBER]
        }

    assert len(names) > 6
    bundle = repacked(bundle_of(folder, "real", tmp_path / "b.zip"), tmp_path / "x.zip", manifest=older)
    with zipfile.ZipFile(bundle) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    with zipfile.ZipFile(tmp_path / "older.zip", "w") as archive:
        for name, body in (members | {TELEMETRY_MEMBER: old.read_bytes()}).items():
            archive.writestr(name, body)
    found = unpack(tmp_path / "older.zip", _made(tmp_path / "unpacked"))
    there = DataDir(_made(tmp_path / "there"))
    assert taken_in(there, found).error is None
    with TelemetryReader(there.telemetry_db) as reader:
        run = reader.run("real")
    assert run is not None
    assert run.settings is None
