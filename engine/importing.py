"""Bundles on their way into the telemetry: a thread checks them, the writer takes the rows in, the mailbox answers.

    import command -> accepted -> thread: unpack, check, compare -> writer: chunks between flushes -> applied
                                                 |-> rejected, and why                 |-> rejected

One at a time, in the order of the commands; the engine's loop only looks in. What a dead engine left half done is
cleared by the next one: the run's own row comes last, so a run is either wholly there or not at all. It refuses paths
outside the folder of imports, and a run that is here already with other content.
"""

from __future__ import annotations

import logging
import shutil
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from storage.database import StorageError, open_read_only
from storage.mailbox import Mailbox
from storage.paths import DataDir
from storage.records import Command
from storage.run_copy import RunCopy
from storage.schema import TELEMETRY
from storage.writer import TelemetryWriter

logger = logging.getLogger(__name__)

MAX_NAME_CHARS = 200
"""A name for people, and of folders: file systems take 255 bytes."""

LEFT_FOR_S = 24 * 3600.0
"""A bundle that nobody asked to import in a day was forgotten; longer than any upload or any queue of commands."""

TARGET = "target"
"""In a working folder: the run that its rows go to, for the next engine to clear."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ready:
    """A bundle that may be taken in."""

    run_id: str
    """As in the bundle."""
    as_run_id: str
    """As it is called here."""
    telemetry: Path
    """Its rows."""
    control: Path
    """Its commands, tags and notes."""
    label: str
    """EMULATED, or nothing for real devices."""
    same: bool
    """The run is here already, with the same content."""


class Imports:
    """The imports of one engine life; every method is called by the service's thread and returns at once."""

    def __init__(
        self, data: DataDir, *, writer: TelemetryWriter, mailbox: Mailbox, clock: Callable[[], float] = time.time
    ) -> None:
        self._data = data
        self._writer = writer
        self._mailbox = mailbox
        self._clock = clock
        self._waiting: deque[Command] = deque()
        self._work: _Work | None = None

    def clear_leftovers(self) -> None:
        """Remove what engines before left half done, and bundles that nobody asked for."""
        if not self._data.imports.is_dir():
            return
        for path in self._data.imports.iterdir():
            if path.is_dir():
                if (path / TARGET).is_file() and not self._is_here(run_id := (path / TARGET).read_text("utf-8")):
                    self._writer.delete_run(run_id)
                shutil.rmtree(path, ignore_errors=True)
            elif self._clock() - path.stat().st_mtime > LEFT_FOR_S:
                path.unlink(missing_ok=True)

    def receive(self, command: Command) -> None:
        """Take a command of kind import: `path` of the bundle in the folder of imports, `as` another name or None."""
        self._mailbox.accept(command.id, "The bundle is checked, then its rows are taken in.")
        self._waiting.append(command)
        self.settle()

    def settle(self) -> None:
        """Go on with what can go on, and answer what has ended."""
        if self._work is None and self._waiting:
            self._work = _Work(self._data, self._waiting.popleft())
        if self._work is None or self._work.thread.is_alive():
            return
        work, ready = self._work, self._work.ready
        if ready is None:
            self._end(work, rejected=work.problem)
        elif ready.same:
            self._end(
                work, applied=f"Run {ready.as_run_id} is here already with the same content; nothing was changed."
            )
        elif work.copy is None:
            (work.folder / TARGET).write_text(ready.as_run_id, encoding="utf-8")
            work.copy = RunCopy(
                ready.telemetry, run_id=ready.run_id, as_run_id=ready.as_run_id, imported_at=self._clock()
            )
            self._writer.take_in(work.copy)
        elif work.copy.done:
            self._finish(work, ready, work.copy)

    def _finish(self, work: _Work, ready: Ready, copy: RunCopy) -> None:
        from storage.exports.control_rows import add_control_rows

        if copy.error is not None:
            self._end(work, rejected=f"the rows could not be taken in: {copy.error}")
            return
        lacks = ""
        try:
            add_control_rows(self._data.control_db, ready.control, run_id=ready.run_id, as_run_id=ready.as_run_id)
        except StorageError as error:
            lacks = f" Its commands, tags and notes are missing: {error.reason}."
        label = f" ({ready.label})" if ready.label else ""
        name = "" if ready.run_id == ready.as_run_id else f" as {ready.as_run_id}"
        self._end(work, applied=f"Imported run {ready.run_id}{label}{name}: {copy.rows:,} rows; no checkpoints.{lacks}")

    def _end(self, work: _Work, *, applied: str | None = None, rejected: str | None = None) -> None:
        if applied is not None:
            assert work.ready is not None
            result = {"run_id": work.ready.as_run_id, "imported": not work.ready.same}
            self._mailbox.apply(work.command.id, applied, result=result)
            logger.info("%s", applied)
        else:
            self._mailbox.reject(work.command.id, f"{work.name}: {rejected}")
        shutil.rmtree(work.folder, ignore_errors=True)
        work.bundle.unlink(missing_ok=True) if work.bundle is not None else None
        self._work = None

    def _is_here(self, run_id: str) -> bool:
        with closing(open_read_only(self._data.telemetry_db, TELEMETRY)) as telemetry:
            return telemetry.execute("SELECT 1 FROM runs WHERE run_id = ?", [run_id]).fetchone() is not None


class _Work:
    """One import that has begun."""

    def __init__(self, data: DataDir, command: Command) -> None:
        self.command = command
        self.name = str(command.payload.get("name") or command.payload.get("path"))
        self.folder = data.imports / f"work-{command.id}"
        self.bundle: Path | None = None
        self.ready: Ready | None = None
        self.problem = ""
        self.copy: RunCopy | None = None
        self._data = data
        self.thread = threading.Thread(target=self._check, name=f"import-{command.id}", daemon=True)
        self.thread.start()

    def _check(self) -> None:
        try:
            self.bundle = bundle_path(self._data, self.command.payload)
            shutil.rmtree(self.folder, ignore_errors=True)
            self.folder.mkdir(parents=True)
            self.ready = prepare(self._data, self.bundle, self.folder, self.command.payload.get("as"))
        except (ValueError, OSError, StorageError) as error:
            self.problem = str(error)
        except Exception as error:  # a fault of ours in a thread would leave the command unanswered
            logger.exception("Import %d met a fault of the engine.", self.command.id)
            self.problem = f"the engine met a fault of its own: {type(error).__name__}: {error}"


def bundle_path(data: DataDir, payload: Mapping[str, Any]) -> Path:
    """The bundle that a command names. Raises ValueError for anything but a plain file in the folder of imports."""
    named = payload.get("path")
    if not isinstance(named, str) or not named:
        raise ValueError(f"path must name a file in {data.imports}, got {named!r}")
    path = data.root / named
    if path.is_symlink() or path.resolve().parent != data.imports.resolve():
        raise ValueError(f"path must be directly in {data.imports}, got {named!r}")
    if not path.is_file():
        raise ValueError(f"{named} is not there")
    return path


def check_run_id(data: DataDir, run_id: object) -> str:
    """A name that a run can have here. Raises ValueError."""
    if not isinstance(run_id, str) or not run_id.isprintable() or run_id != run_id.strip():
        raise ValueError(f"the name of a run must be printable text without spaces around it, got {run_id!r}")
    if len(run_id.encode()) > MAX_NAME_CHARS:
        raise ValueError(f"the name of a run has at most {MAX_NAME_CHARS} bytes, this one has {len(run_id.encode())}")
    data.checkpoints(run_id)
    return run_id


def prepare(data: DataDir, bundle: Path, folder: Path, name: object) -> Ready:
    """Unpack and check a bundle. Raises ValueError (BundleRefused among them) with why it is not taken in."""
    from storage.exports.same_run import differing_tables  # with the packing of files: only imports need it
    from storage.exports.unpack import unpack

    found = unpack(bundle, folder)
    as_run_id = check_run_id(data, found.run_id if name is None else name)
    with (
        closing(open_read_only(data.telemetry_db, TELEMETRY)) as here,
        closing(open_read_only(found.telemetry, TELEMETRY)) as brought,
    ):
        taken = here.execute("SELECT 1 FROM runs WHERE run_id = ?", [as_run_id]).fetchone() is not None
        other = differing_tables(brought, found.run_id, here, as_run_id) if taken else []
    if other:
        raise ValueError(
            f"run {as_run_id!r} is here already with other content ({', '.join(other)}); give it another name with --as"
        )
    return Ready(
        run_id=found.run_id,
        as_run_id=as_run_id,
        telemetry=found.telemetry,
        control=found.control,
        label=found.label,
        same=taken,
    )
