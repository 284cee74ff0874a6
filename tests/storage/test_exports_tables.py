"""Parquet and CSV: the rows of the database with types, units and both ways of telling time; what is gone is said."""

from __future__ import annotations

import csv
import json
import sqlite3
import zipfile
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from storage import words
from storage.exports.columns import Column, column
from storage.exports.export import FORMATS, export, file_name
from storage.exports.source import UnknownRun
from storage.mailbox import Mailbox
from storage.paths import DataDir
from storage.reader import TelemetryReader
from storage.writer import TelemetryWriter
from tests.app.fake_emulated import write_emulated
from tests.app.fake_run import NOW, open_writer, write_engine, write_run
from tests.storage.builders import RUN, T0, chain, make_group, make_lease, make_step


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> DataDir:
    data = DataDir(tmp_path_factory.mktemp("data"))
    writer = open_writer(data, NOW)
    write_engine(writer)
    write_run(writer, "real", state="finished", lending=True, steps=10)
    write_run(writer, "other", state="finished", steps=2)
    write_emulated(writer, "modelled", state="finished", steps=4)
    writer.close()
    with Mailbox(data.control_db, clock=lambda: NOW) as mailbox:
        mailbox.send("pause", {}, "real", who="ana")
        mailbox.add_tag("real", "good", who="ana")
        mailbox.set_note("real", 'A "note", with\nlines', who="ana")
    return data


def rows_of(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def test_every_table_with_rows_of_a_run_is_exported(folder: DataDir, tmp_path: Path) -> None:
    """A table that a later migration adds must be exported, or left out on purpose."""
    with sqlite3.connect(folder.telemetry_db) as telemetry, sqlite3.connect(folder.control_db) as control:
        stored = {
            name
            for connection in (telemetry, control)
            for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
            if any(row[1] == "run_id" for row in connection.execute(f"PRAGMA table_info({name})"))
        }
    written = {file.stem for file in export(folder, "real", "parquet", tmp_path / "out").path.glob("*.parquet")}
    rollups = {f"rollups_{res}s" for res in words.RESOLUTIONS_S}
    assert written == stored - {"rollups", "states"} | rollups


def test_parquet_has_the_rows_types_and_units_of_the_database(folder: DataDir, tmp_path: Path) -> None:
    report = export(folder, "real", "parquet", tmp_path / "out")
    spans = pq.read_table(tmp_path / "out" / "spans.parquet")
    with TelemetryReader(folder.telemetry_db) as reader:
        stored = reader.spans("real", 0, NOW * 2)
    assert len(spans) == report.rows["spans"] == len(stored)
    assert spans["t0_unix_s"].to_pylist() == [span.t0 for span in stored]
    assert spans["kind"].to_pylist() == [span.kind for span in stored]
    assert spans["cause"].to_pylist() == [span.cause for span in stored]
    assert spans.schema.field("t0_utc").type == pa.timestamp("us", tz="UTC")
    assert spans["t0_utc"][0].as_py().timestamp() == pytest.approx(stored[0].t0, abs=1e-6)
    assert spans.schema.field("cpu_s").metadata == {b"unit": b"seconds of wall time"}
    assert spans.schema.metadata[b"bidirl.run_id"] == b"real"
    assert spans.schema.metadata[b"bidirl.label"] == b""
    steps = pq.read_table(tmp_path / "out" / "steps.parquet")
    assert steps.schema.field("groups").type == pa.int64()
    assert json.loads(steps["lag_json"][1].as_py()) == {"0": 3, "1": 5}
    run = pq.read_table(tmp_path / "out" / "runs.parquet").to_pylist()[0]
    assert (run["run_id"], run["ended_at_unix_s"], run["time_scale"]) == ("real", NOW, None)


def test_rollups_in_long_form_are_the_exact_sums(folder: DataDir, tmp_path: Path) -> None:
    export(folder, "real", "parquet", tmp_path / "out")
    with TelemetryReader(folder.telemetry_db) as reader:
        exact = reader.kind_seconds("real", 0, NOW * 2)
    for res in words.RESOLUTIONS_S:
        found: dict[tuple[int, str], float] = {}
        for row in pq.read_table(tmp_path / "out" / f"rollups_{res}s.parquet").to_pylist():
            cell = row["device"], row["column"]
            found[cell] = found.get(cell, 0.0) + row["ms"] / 1000
        assert found == pytest.approx(
            {(device, name): s for device, columns in exact.items() for name, s in columns.items()}, abs=0.002
        )


def test_csv_tells_time_twice_and_keeps_texts_whole(folder: DataDir, tmp_path: Path) -> None:
    export(folder, "real", "csv", tmp_path / "out")
    rows = rows_of(tmp_path / "out" / "steps.csv")
    with TelemetryReader(folder.telemetry_db) as reader:
        stored = reader.steps("real")
    assert [float(row["t_end_unix_s"]) for row in rows] == [step.t_end for step in stored]
    said = datetime.fromisoformat(rows[0]["t_end_utc"])
    assert said.tzinfo is not None
    assert said == datetime.fromtimestamp(round(stored[0].t_end, 6), UTC)
    assert rows[0]["t_end_utc"].endswith("Z")
    run = rows_of(tmp_path / "out" / "runs.csv")[0]
    assert (run["imported_at_unix_s"], run["imported_at_utc"], run["error"]) == ("", "", "")
    assert rows_of(tmp_path / "out" / "notes.csv")[0]["text"] == 'A "note", with\nlines'
    assert [row["kind"] for row in rows_of(tmp_path / "out" / "commands.csv")] == ["pause"]
    assert json.loads(rows_of(tmp_path / "out" / "groups.csv")[0]["responses"])[0]["reward"] == 1.0
    assert "label" not in rows[0]


@pytest.mark.parametrize("form", ["parquet", "csv"])
def test_every_row_of_an_emulated_run_says_so(folder: DataDir, tmp_path: Path, form: str) -> None:
    report = export(folder, "modelled", form, tmp_path / "out")
    for file in sorted((tmp_path / "out").glob(f"*.{form}")):
        labels = (
            pq.read_table(file)["label"].to_pylist() if form == "parquet" else [row["label"] for row in rows_of(file)]
        )
        assert labels == ["EMULATED"] * report.rows[file.stem]
    text = (tmp_path / "out" / "README.md").read_text(encoding="utf-8")
    assert "# Run modelled (EMULATED)" in text
    assert "divide by time_scale 0.02" in text
    assert file_name("modelled", form, "EMULATED") == f"modelled-EMULATED.{form}.zip"


def test_a_zip_holds_the_same_files_as_the_folder(folder: DataDir, tmp_path: Path) -> None:
    export(folder, "real", "csv", tmp_path / "out")
    report = export(folder, "real", "csv", tmp_path / "out.zip")
    with zipfile.ZipFile(tmp_path / "out.zip") as archive:
        assert set(archive.namelist()) == {file.name for file in (tmp_path / "out").iterdir()}
        assert archive.read("spans.csv") == (tmp_path / "out" / "spans.csv").read_bytes()
    assert report.size_bytes == (tmp_path / "out.zip").stat().st_size
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out", "out.zip"]


def test_the_readme_says_units_counts_and_what_is_gone(tmp_path: Path) -> None:
    from storage.database import connect_for_writing
    from storage.retention import Limits, Retention

    writer = TelemetryWriter(tmp_path / "telemetry.db", clock=lambda: T0)
    writer.run(RUN, created_at=T0)
    writer.spans(chain([1.0] * 100))
    writer.close()
    connection = connect_for_writing(tmp_path / "telemetry.db")
    list(Retention(connection, Limits()).sweep(T0 + 7 * 3600))
    connection.close()
    report = export(DataDir(tmp_path), RUN, "csv", tmp_path / "out")
    text = (tmp_path / "out" / "README.md").read_text(encoding="utf-8")
    assert report.rows["spans"] == 0
    assert "100 raw spans between 1700000000.000" in text
    assert "100 raw spans between 1700000000.000" in report.notes[0]
    assert "## spans.csv: 0 rows" in text
    assert "- `gain_s`: real, seconds of wall time" in text
    assert report.rows["rollups_60s"] > 0
    # nobody ever sent a command: there is no such file, and none is made up
    assert "commands" not in report.rows


def test_a_window_keeps_what_lies_in_it(tmp_path: Path) -> None:
    writer = TelemetryWriter(tmp_path / "telemetry.db", clock=lambda: T0)
    writer.run(RUN, created_at=T0)
    writer.spans(chain([10.0] * 10))
    for step in (1, 2, 3):
        writer.step(make_step(step=step, t_end=T0 + 20 * step))
        writer.groups([make_group(group_id=step, finished_at=T0 + 20 * step - 1)])
    writer.leases([make_lease(lease=1, granted_at=T0, released_at=T0 + 5), make_lease(lease=2, granted_at=T0 + 45)])
    writer.close()
    report = export(DataDir(tmp_path), RUN, "csv", tmp_path / "out", (T0 + 32, T0 + 48))
    wanted = {"runs": 1, "spans": 2, "steps": 1, "groups": 1, "leases": 1, "rollups_1s": 16}
    assert {name: report.rows[name] for name in wanted} == wanted


@pytest.mark.parametrize("form", FORMATS)
def test_what_cannot_be_exported_leaves_nothing_behind(folder: DataDir, tmp_path: Path, form: str) -> None:
    taken = tmp_path / "taken"
    taken.write_text("mine")
    with pytest.raises(ValueError, match="exists already"):
        export(folder, "real", form, taken)
    with pytest.raises(ValueError, match="is not a folder"):
        export(folder, "real", form, tmp_path / "no" / "out")
    with pytest.raises(UnknownRun, match="run 'nobody' is not known"):
        export(folder, "nobody", form, tmp_path / "out")
    with pytest.raises(ValueError, match="window"):
        export(folder, "real", form, tmp_path / "out", (2.0, 1.0))
    assert taken.read_text() == "mine"
    assert list(tmp_path.iterdir()) == [taken]


def test_an_unknown_format_names_those_that_are_known(folder: DataDir, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="format must be one of perfetto, parquet, csv, bundle, got 'json'"):
        export(folder, "real", "json", tmp_path / "out")


def test_a_column_of_an_unknown_kind_is_an_error_and_not_a_text() -> None:
    assert column("lag_json", "TEXT") == Column(name="lag_json", type="json")
    with pytest.raises(ValueError, match="column 'data' is declared 'BLOB'"):
        column("data", "BLOB")
