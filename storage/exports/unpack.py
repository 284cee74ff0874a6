"""Opens a bundle that somebody brings: everything about it is checked before a row of it is used.

Refused, each with its reason: what is no bundle, one of a newer format or schema, members that are none of ours
(nothing is ever extracted under a name that the file gives), a broken hash, more than the disk holds, a database with
anything but plain tables, rows of another run, and words that `words.py` does not know. An older schema is brought up
by our migrations.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import sqlite3
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sqlite_utils import Database

from storage.database import SchemaTooNew, StorageError, open_for_writing
from storage.exports.bundle import (
    CHUNK_BYTES,
    DATABASES,
    FORMAT,
    FORMAT_VERSION,
    MANIFEST,
    RUN_TABLES,
    TELEMETRY_MEMBER,
)
from storage.exports.rows_check import check_rows

MANIFEST_BYTES = 1 << 20
"""A manifest is a few kilobytes."""

ROOM = 3
"""Disk that must be free, in sizes of the unpacked bundle: the copy, its rows in the telemetry, and their log."""


class BundleRefused(ValueError):
    """The file is not imported; the text says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Unpacked:
    """A bundle that passed every check."""

    run_id: str
    """As in the bundle."""
    label: str
    """EMULATED, or nothing for real devices."""
    telemetry: Path
    """A database of the present schema with the run's rows."""
    control: Path
    """The same of commands, tags and notes."""
    rows: dict[str, int]
    """Table -> rows."""


def unpack(bundle: Path, folder: Path) -> Unpacked:
    """Check a bundle and put its databases into `folder`, which exists and is ours alone. Raises BundleRefused."""
    with _told(bundle), zipfile.ZipFile(bundle) as archive:
        manifest = read_manifest(archive)
        members = _members(archive, manifest)
        needed = sum(info.file_size for info in members.values()) * ROOM
        if needed > shutil.disk_usage(folder).free:
            raise BundleRefused(f"it needs {needed / 1e9:.1f} GB of disk, and less is free in {folder}")
        for name, info in members.items():
            _extract(archive, info, folder / name, manifest["members"][name]["sha256"])
    for name in DATABASES:
        _bring_up(folder / name, name)
    run_id = manifest["run"]["run_id"]
    rows: dict[str, int] = {}
    for name in DATABASES:
        with closing(sqlite3.connect(folder / name)) as connection, _told(bundle):
            rows |= check_rows(connection, RUN_TABLES[name], run_id)
    if rows.get("runs") != 1:
        raise BundleRefused(f"it must hold one run, it holds {rows.get('runs')}")
    if wrong := [table for table, count in manifest["rows"].items() if rows.get(table) != count]:
        raise BundleRefused(
            f"its manifest counts {wrong[0]} as {manifest['rows'][wrong[0]]!r}, it has {rows.get(wrong[0])}"
        )
    return Unpacked(
        run_id=run_id,
        label=manifest["label"] or "",
        telemetry=folder / TELEMETRY_MEMBER,
        control=folder / "control.db",
        rows=rows,
    )


def read_manifest(archive: zipfile.ZipFile) -> dict[str, Any]:
    """What a bundle says of itself. Raises BundleRefused when it is none, or one that this program cannot read."""
    names = [info.filename for info in archive.infolist()]
    if MANIFEST not in names or archive.getinfo(MANIFEST).file_size > MANIFEST_BYTES:
        raise BundleRefused(f"it is not a bundle: no {MANIFEST}")
    try:
        manifest = json.loads(archive.read(MANIFEST))
    except ValueError as error:
        raise BundleRefused(f"it is not a bundle: {MANIFEST} cannot be read ({error})") from None
    if not isinstance(manifest, dict) or manifest.get("format") != FORMAT:
        raise BundleRefused(f"it is not a bundle: {MANIFEST} does not say {FORMAT!r}")
    version = manifest.get("format_version")
    if not isinstance(version, int) or version < 1:
        raise BundleRefused(f"format_version must be a number of at least 1, got {version!r}")
    if version > FORMAT_VERSION:
        raise BundleRefused(f"it is of format {version}, this program reads up to {FORMAT_VERSION}; update it")
    wanted = {"run": dict, "members": dict, "rows": dict, "schema": dict}
    for name, kind in wanted.items():
        if not isinstance(manifest.get(name), kind):
            raise BundleRefused(f"{name} of its manifest must be a mapping")
    label = manifest.get("label")
    if not isinstance(manifest["run"].get("run_id"), str) or not (label is None or isinstance(label, str)):
        raise BundleRefused("its manifest does not name a run")
    return manifest


def _members(archive: zipfile.ZipFile, manifest: dict[str, Any]) -> dict[str, zipfile.ZipInfo]:
    """The databases, by name. Members are looked up by our names; a name of theirs is never a path."""
    infos = archive.infolist()
    allowed = {MANIFEST, *DATABASES}
    if strange := [info.filename for info in infos if info.filename not in allowed]:
        raise BundleRefused(f"it holds {strange[0]!r}; allowed are {', '.join(sorted(allowed))}")
    if len(infos) != len(allowed):
        raise BundleRefused(f"it must hold each of {', '.join(sorted(allowed))} once")
    members = {name: archive.getinfo(name) for name in DATABASES}
    for name, info in members.items():
        told = manifest["members"].get(name)
        if not isinstance(told, dict) or not isinstance(told.get("sha256"), str) or told.get("bytes") != info.file_size:
            raise BundleRefused(f"its manifest does not fit {name}")
    return members


def _extract(archive: zipfile.ZipFile, info: zipfile.ZipInfo, target: Path, sha256: str) -> None:
    digest, size = hashlib.sha256(), 0
    with archive.open(info) as packed, target.open("xb") as file:
        while piece := packed.read(CHUNK_BYTES):
            size += len(piece)
            if size > info.file_size:
                raise BundleRefused(f"{target.name} is larger than it says")
            digest.update(piece)
            file.write(piece)
    if digest.hexdigest() != sha256:
        raise BundleRefused(f"{target.name} is not what was bundled: its SHA-256 differs")


def _bring_up(path: Path, name: str) -> None:
    """Make a database of the present schema of one that may be older, and refuse one that is anything else."""
    migrations = DATABASES[name]
    with _told(path), closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA trusted_schema=OFF")
        connection.execute("PRAGMA cell_size_check=ON")
        found = connection.execute("SELECT type, name, sql FROM sqlite_master").fetchall()
        for kind, what, sql in found:
            if kind not in ("table", "index") or (sql or "").upper().startswith("CREATE VIRTUAL"):
                raise BundleRefused(f"{name} holds the {kind} {what!r}; only plain tables are read")
        if (verdict := connection.execute("PRAGMA quick_check(1)").fetchone()[0]) != "ok":
            raise BundleRefused(f"{name} is damaged: {verdict}")
    try:
        with closing(open_for_writing(path, migrations)) as brought:
            brought.execute("PRAGMA journal_mode=DELETE")
            shape = _shape(brought, RUN_TABLES[name])
    except SchemaTooNew as error:
        raise BundleRefused(f"{name} was {error.reason}") from None
    except StorageError as error:
        raise BundleRefused(f"{name}: {error.reason}") from None
    fresh = Database(memory=True)
    migrations.apply(fresh)
    if shape != _shape(fresh, RUN_TABLES[name]):
        raise BundleRefused(f"{name} does not have the tables of its schema")


def _shape(db: Database, tables: tuple[str, ...]) -> dict[str, list[tuple[str, str, int]]]:
    """Table -> name, type and place in the key of its columns, hidden and computed ones included."""
    return {
        table: [(row[1], row[2], row[5] + 100 * row[6]) for row in db.execute(f"PRAGMA table_xinfo({table})")]
        for table in tables
    }


@contextmanager
def _told(bundle: Path) -> Iterator[None]:
    """Whatever a damaged or hostile file makes the libraries say, as one refusal."""
    try:
        yield
    except BundleRefused:
        raise
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError, OSError) as error:
        raise BundleRefused(f"it is not a bundle, or a damaged one: {error}") from None
    except sqlite3.Error as error:
        raise BundleRefused(f"{bundle.name} is damaged: {error}") from None
    except ValueError as error:
        raise BundleRefused(str(error)) from None
