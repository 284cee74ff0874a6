"""One file with everything of a run, for another installation to import: a zip of two SQLite files and a manifest.

    manifest.json    what it is, of which schema, how many rows, the SHA-256 of each other member
    telemetry.db     the run's rows of every table of `telemetry.db`, in the same schema
    control.db       its commands, tags and notes, likewise

Left out and said so: checkpoints (folders of gigabytes), and the heartbeats of the engine that ran it. Writing never
holds the run in memory: SQLite copies rows, and the zip streams.
"""

from __future__ import annotations

import hashlib
import json
import sqlite3
import tempfile
import time
import zipfile
from contextlib import closing
from pathlib import Path
from typing import Any

from sqlite_utils import Database
from sqlite_utils.migrations import Migrations

from storage.database import TelemetryBroken, explained, open_for_writing
from storage.exports.source import Source
from storage.paths import DataDir
from storage.retention import TABLES_OF_A_RUN
from storage.schema import CONTROL, TELEMETRY

FORMAT = "bidirl run bundle"
FORMAT_VERSION = 1
"""Raised when a reader of the one before would misread it."""

MANIFEST, TELEMETRY_MEMBER, CONTROL_MEMBER = "manifest.json", "telemetry.db", "control.db"
DATABASES = {TELEMETRY_MEMBER: TELEMETRY, CONTROL_MEMBER: CONTROL}
"""Member -> the migrations that made it."""

CONTROL_TABLES = ("commands", "tags", "notes")

RUN_TABLES = {TELEMETRY_MEMBER: ("runs", *TABLES_OF_A_RUN), CONTROL_MEMBER: CONTROL_TABLES}
"""Member -> its tables with rows of the run."""

LEFT_OUT = (
    "checkpoints: an imported run cannot be resumed",
    "heartbeats of the engine that ran it",
)

COMPRESSION_LEVEL = 4
"""A third faster than the usual 6 on rows of telemetry, and 3% larger."""

CHUNK_BYTES = 1 << 20


def write_bundle(data: DataDir, source: Source, path: Path) -> dict[str, Any]:
    """Write the bundle of a run to `path`, which is replaced, and return its manifest. Raises StorageError.

    A run that goes on is bundled as it is at this moment.
    """
    run_id = source.run.run_id
    # beside the target: a run may be larger than what the system keeps temporary files in
    with tempfile.TemporaryDirectory(dir=path.parent, prefix=".bidirl-") as scratch:
        folder = Path(scratch)
        rows = _copy(data.telemetry_db, folder / TELEMETRY_MEMBER, run_id)
        there = data.control_db if source.control is not None else None
        rows |= _copy(there, folder / CONTROL_MEMBER, run_id)
        manifest = _manifest(source, folder, rows)
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=COMPRESSION_LEVEL) as archive:
            archive.writestr(MANIFEST, json.dumps(manifest, indent=2, ensure_ascii=False))
            for name in DATABASES:
                archive.write(folder / name, name)
    return manifest


def _copy(source: Path | None, target: Path, run_id: str) -> dict[str, int]:
    """The run's rows of one database in a new one of the same schema. Returns table -> rows."""
    migrations = DATABASES[target.name]
    open_for_writing(target, migrations).close()
    rows: dict[str, int] = {}
    made = sqlite3.connect(target.absolute().as_uri(), uri=True, isolation_level=None)
    with explained(source or target, TelemetryBroken), closing(made):
        # one file, and no care for a power cut: it is packed and deleted
        made.execute("PRAGMA journal_mode=DELETE")
        made.execute("PRAGMA synchronous=OFF")
        if source is None:
            return dict.fromkeys(RUN_TABLES[target.name], 0)
        made.execute("ATTACH ? AS source", [f"{source.absolute().as_uri()}?mode=ro"])
        made.execute("BEGIN")
        for table in RUN_TABLES[target.name]:
            names = ", ".join(f'"{row[1]}"' for row in made.execute(f"PRAGMA main.table_info({table})"))
            sql = f"INSERT INTO main.{table} ({names}) SELECT {names} FROM source.{table} WHERE run_id = ?"
            rows[table] = made.execute(sql, [run_id]).rowcount
        made.execute("COMMIT")
        made.execute("DETACH source")
    return rows


def _manifest(source: Source, folder: Path, rows: dict[str, int]) -> dict[str, Any]:
    run = source.run
    return {
        "format": FORMAT,
        "format_version": FORMAT_VERSION,
        "made_at": time.time(),
        "label": source.label or None,
        "time_scale": run.time_scale,
        "time": source.pace or None,
        "run": {
            "run_id": run.run_id,
            "name": run.name,
            "kind": run.kind,
            "state": run.state,
            "arm": run.arm,
            "steps": run.steps,
            "who": run.who,
            "created_at": run.created_at,
            "ended_at": run.ended_at,
        },
        "schema": {name: _applied(folder / name, migrations) for name, migrations in DATABASES.items()},
        "rows": rows,
        "gone": [one.sentence for one in source.missing()],
        "left_out": list(LEFT_OUT),
        "members": {
            name: {"sha256": sha256_of(folder / name), "bytes": (folder / name).stat().st_size} for name in DATABASES
        },
    }


def _applied(path: Path, migrations: Migrations) -> list[str]:
    with closing(sqlite3.connect(path)) as connection:
        return [migration.name for migration in migrations.applied(Database(connection))]


def sha256_of(path: Path) -> str:
    """Hexadecimal SHA-256 of a file, read in pieces."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while piece := file.read(CHUNK_BYTES):
            digest.update(piece)
    return digest.hexdigest()
