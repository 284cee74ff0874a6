"""One door to the exports: a run in one of the formats, at a path that did not exist before, complete or not at all."""

from __future__ import annotations

import gzip
import shutil
import tempfile
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from storage.exports import about, bundle, perfetto, tables
from storage.exports.source import Source, Window, open_run
from storage.paths import DataDir

FORMATS = ("perfetto", "parquet", "csv", "bundle")

SUFFIXES = {"perfetto": ".pftrace.gz", "parquet": ".parquet.zip", "csv": ".csv.zip", "bundle": ".bidirl.zip"}
"""Format -> how a single file of it is called."""

TRACE_COMPRESSION = 6
"""A trace shrinks to a sixth for a tenth of its time; its viewer and its processor read it so."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What an export wrote."""

    path: Path
    """A file, or the folder of tables."""
    format: str
    """One of FORMATS."""
    size_bytes: int
    """Of the file, or of all files of the folder."""
    rows: dict[str, int]
    """What is in it -> how many."""
    label: str
    """EMULATED, or nothing for real devices."""
    notes: tuple[str, ...]
    """What is not in it and how to read it, sentences."""


def file_name(run_id: str, form: str, label: str = "") -> str:
    """What the single file of an export is called; `label` (EMULATED) is in it."""
    safe = "".join(c if c.isalnum() or c in "-_." else "_" for c in run_id)
    return f"{safe}{f'-{label}' if label else ''}{SUFFIXES[form]}"


def export(data: DataDir, run_id: str, form: str, out: Path, window: Window | None = None) -> Report:
    """Export a run to `out`: a file; for parquet and csv a folder, or a zip where the name ends with .zip.

    window: only that time (unix seconds); a bundle has no window. Raises ValueError for an unknown format or run, a
    path that exists or has no folder, or a window that is none, and StorageError; nothing is left at `out` then.
    """
    if form not in FORMATS:
        raise ValueError(f"format must be one of {', '.join(FORMATS)}, got {form!r}")
    if form == "bundle" and window is not None:
        raise ValueError("a bundle is of the whole run; leave the window away")
    as_folder = form in ("parquet", "csv") and out.suffix != ".zip"
    with _new(out, as_folder=as_folder) as path, open_run(data, run_id, window) as source:
        rows: dict[str, int]
        match form:
            case "perfetto":
                with gzip.open(path, "wb", TRACE_COMPRESSION) as file:
                    rows = perfetto.write_trace(source, file)
            case "bundle":
                rows = bundle.write_bundle(data, source, path)["rows"]
            case _:
                rows = _tables(source, form, path, zipped=not as_folder)
        notes = _notes(source, form)
        label = source.label
    return Report(path=out, format=form, size_bytes=_size(out), rows=rows, label=label, notes=notes)


@contextmanager
def _new(out: Path, *, as_folder: bool) -> Iterator[Path]:
    """A path beside `out` that takes its place when the block ends well. Raises ValueError for one that is taken."""
    empty = as_folder and out.is_dir() and not any(out.iterdir())
    if out.exists() and not empty:
        raise ValueError(f"{out} exists already; name a path that does not")
    if not out.absolute().parent.is_dir():
        raise ValueError(f"{out.absolute().parent} is not a folder")
    with tempfile.TemporaryDirectory(dir=out.absolute().parent, prefix=".bidirl-") as scratch:
        path = Path(scratch) / "export"
        yield path
        path.replace(out)


def _tables(source: Source, form: str, path: Path, *, zipped: bool) -> dict[str, int]:
    folder = path.with_name("tables") if zipped else path
    folder.mkdir()
    write = tables.write_parquet if form == "parquet" else tables.write_csv
    rows = write(source, folder)
    (folder / "README.md").write_text(about.readme(source, rows, f".{form}"), encoding="utf-8")
    if zipped:
        # Parquet is compressed already
        method = zipfile.ZIP_STORED if form == "parquet" else zipfile.ZIP_DEFLATED
        with zipfile.ZipFile(path, "w", method) as archive:
            for file in sorted(folder.iterdir()):
                archive.write(file, file.name)
        shutil.rmtree(folder)
    return rows


def _notes(source: Source, form: str) -> tuple[str, ...]:
    left_out = {"bundle": "Left out: " + "; ".join(bundle.LEFT_OUT) + ".", "perfetto": ""}.get(form, about.LEFT_OUT)
    said = [source.pace, *(one.sentence for one in source.missing()), left_out]
    return tuple(filter(None, said))


def _size(path: Path) -> int:
    return sum(file.stat().st_size for file in path.iterdir()) if path.is_dir() else path.stat().st_size
