"""`bidirl runs export` and `bidirl runs import`: a run goes out as a file, or comes in through the engine.

Exporting reads the data folder and needs no engine. Importing copies the bundle into the folder, sends a command, and
waits for the engine's answer, never longer than IMPORT_S.
"""

from __future__ import annotations

import shutil
import uuid
import zipfile
from pathlib import Path
from typing import Any

from engine.cli import client
from engine.cli.client import BadInput
from storage.database import StorageError
from storage.exports.export import Report, export
from storage.exports.source import UnknownRun
from storage.exports.unpack import BundleRefused, read_manifest
from storage.paths import DataDir
from storage.reader import TelemetryReader

IMPORT_S = 1800.0
"""Longest wait for an import: a gigabyte takes some minutes, and others may be before it."""


def export_run(data: DataDir, run_id: str, form: str, out: Path) -> Report:
    """Export a run. Raises BadInput for a run, format or path that cannot be, and when the disk refuses."""
    try:
        return export(data, run_id, form, out)
    except UnknownRun:
        with TelemetryReader(data.telemetry_db) as reader:
            client.known_run(reader, run_id)
        raise
    except StorageError:
        raise
    except ValueError as error:
        raise BadInput(f"{'--format' if 'format must' in str(error) else '--out'}: {error}") from None
    except OSError as error:
        raise BadInput(f"--out: {out} cannot be written: {error.strerror or error}") from None


def document(run_id: str, report: Report) -> dict[str, Any]:
    """What --json prints."""
    return {
        "run_id": run_id,
        "format": report.format,
        "path": str(report.path),
        "bytes": report.size_bytes,
        "rows": report.rows,
        "label": report.label or None,
        "notes": list(report.notes),
    }


def text(run_id: str, report: Report) -> str:
    """What people are told."""
    label = f" ({report.label})" if report.label else ""
    rows = ", ".join(f"{count:,} {name.replace('_', ' ')}" for name, count in report.rows.items() if count)
    lines = [f"{run_id}{label}: {report.path}, {size(report.size_bytes)}", f"  {rows}"]
    return "\n".join([*lines, *(f"  {note}" for note in report.notes)])


def size(num_bytes: int) -> str:
    """ "12.4 MB"."""
    return f"{num_bytes / 1e6:.1f} MB" if num_bytes >= 1e5 else f"{num_bytes / 1e3:.1f} kB"


def import_bundle(data: DataDir, bundle: Path, name: str | None) -> dict[str, Any]:
    """Import a bundle and return the engine's answer. Raises BadInput with its reason when it refuses."""
    _look(bundle)
    client.require_engine(data)
    data.imports.mkdir(parents=True, exist_ok=True)
    copied = data.imports / f"{uuid.uuid4().hex}.zip"
    try:
        shutil.copyfile(bundle, copied)
    except OSError as error:
        copied.unlink(missing_ok=True)
        raise BadInput(f"BUNDLE: {bundle} cannot be copied to {data.imports}: {error.strerror or error}") from None
    payload = {"path": str(copied.relative_to(data.root)), "as": name, "name": bundle.name}
    # the engine removes the copy when it has answered; without an answer it may still come to it
    done = client.ask(data, "import", payload, seconds=IMPORT_S)
    return {"id": done.id, "state": done.state, "answer": done.answer, "result": done.result}


def _look(bundle: Path) -> None:
    """What can be seen without unpacking, before anything is copied. Raises BadInput."""
    if not bundle.is_file():
        raise BadInput(f"BUNDLE: {bundle} is not a file")
    try:
        with zipfile.ZipFile(bundle) as archive:
            read_manifest(archive)
    except (BundleRefused, zipfile.BadZipFile, OSError, RuntimeError, NotImplementedError) as error:
        reason = error if isinstance(error, BundleRefused) else f"it is not a bundle ({error})"
        raise BadInput(
            f"BUNDLE: {bundle}: {reason}; allowed is what `bidirl runs export --format bundle` wrote"
        ) from None
