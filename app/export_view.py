"""Takes a run out of the page as a file, and takes one in: a popover each, for the Timeline and Runs pages.

An export is prepared when asked for, into a temporary file of this session that goes with it; the page gets its bytes
only when they are downloaded. What is too large for that is refused with the command that writes it. Importing is a
command like any other: operators only, carried out by the engine, and done when the engine says so.
"""

from __future__ import annotations

import shutil
import tempfile
import uuid
import zipfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

import streamlit as st

from app import session
from app.access import NotAllowed
from app.markup import literal
from app.modelled import pace_of
from app.session import LIVE_PAGE, RUN_KEY
from app.status import COMMAND_STATUS, OPEN_COMMANDS, symbol
from storage.database import StorageError
from storage.exports.export import FORMATS, Report, export, file_name
from storage.exports.source import Window
from storage.exports.unpack import BundleRefused, read_manifest
from storage.mailbox import Mailbox
from storage.paths import DATA_DIR_VARIABLE, DEFAULT_DATA_DIR
from storage.reader import TelemetryReader
from storage.records import RunRow

MOST_BYTES = 200_000_000
"""A file is in memory while it is handed out; several people may ask at once."""

MOST_SPANS = 2_000_000
"""More take over a minute, in which the page stands still."""

TITLES = {
    "perfetto": "Perfetto trace",
    "parquet": "Parquet tables",
    "csv": "CSV tables",
    "bundle": "Bundle",
}
ABOUT = {
    "perfetto": "Opens in the Perfetto viewer; its trace processor queries it with SQL.",
    "parquet": "One file a table with types, units and a README, in a zip.",
    "csv": "The same as text: times as ISO dates and as unix seconds.",
    "bundle": "The whole run in one file, for `bidirl runs import` or the Runs page of another installation.",
}

READ_SO = (
    "Every export holds what is stored and says what is gone. Seconds are wall time; those of emulated runs are "
    "labelled EMULATED, with the time scale that turns them into the seconds that the devices stand for."
)


@dataclass(kw_only=True)
class Prepared:
    """One export that waits to be downloaded; its file goes with it."""

    wanted: tuple[str, str, Window | None]
    """Run, format, window."""
    folder: tempfile.TemporaryDirectory[str] = field(
        default_factory=lambda: tempfile.TemporaryDirectory(prefix="bidirl-export-", ignore_cleanup_errors=True)
    )
    """Where it lies."""
    report: Report | None = None
    """What was written, None where it was not."""
    problem: str = ""
    """Why not, markdown."""

    def read(self) -> BinaryIO:
        """Called when somebody downloads it."""
        assert self.report is not None
        return self.report.path.open("rb")


def exports(run: RunRow, window: Window | None, key: str) -> None:
    """A popover that writes the run as a file. window: what the page shows, unix seconds, None for no such choice; key:
    unique on the page."""
    with st.popover("Export", icon=symbol("download"), key=key):
        st.markdown(f"**Export** {literal(run.run_id)}{pace_of(run).badge}")
        form = st.selectbox("Format", FORMATS, format_func=TITLES.__getitem__, key=f"{key}_format", help=READ_SO)
        st.caption(ABOUT[form])
        only = window is not None and form != "bundle" and st.toggle("Only the time shown", key=f"{key}_window")
        wanted = run.run_id, form, window if only else None
        prepared: Prepared | None = st.session_state.get(f"{key}_prepared")
        if st.button("Prepare", icon=symbol("build"), key=f"{key}_prepare"):
            with st.spinner("Writing the file"):
                prepared = st.session_state[f"{key}_prepared"] = _prepare(run, wanted)
        if prepared is None or prepared.wanted[:2] != wanted[:2] or (prepared.wanted[2] is None) == only:
            return
        if prepared.report is None:
            st.warning(prepared.problem, icon=symbol("block"))
            return
        report = prepared.report
        st.download_button(
            f"Download · {size(report.size_bytes)}",
            prepared.read,
            file_name=report.path.name,
            mime="application/gzip" if form == "perfetto" else "application/zip",
            type="primary",
            icon=symbol("download"),
            on_click="ignore",
            key=f"{key}_download",
        )
        told = ", ".join(f"{count:,} {name.replace('_', ' ')}" for name, count in report.rows.items() if count)
        st.caption(literal(f"{report.label + ' · ' if report.label else ''}{told}"))
        for note in report.notes:
            st.caption(literal(note))


def _prepare(run: RunRow, wanted: tuple[str, str, Window | None]) -> Prepared:
    run_id, form, window = wanted
    data = session.data_dir()
    prepared = Prepared(wanted=wanted)
    label = "EMULATED" if run.kind == "emulated" else ""
    path = Path(prepared.folder.name) / file_name(run_id, form, label)
    try:
        if form != "bundle" and _spans(run_id, window) > MOST_SPANS:
            shorter = "Choose a shorter time, or write" if window else "Write"
            prepared.problem = (
                f"More than {MOST_SPANS:,} spans are too many to prepare in the page. "
                f"{shorter} it with {_command(run_id, form, path.name)}"
            )
            return prepared
        report = export(data, run_id, form, path, window)
    except (StorageError, ValueError, OSError) as error:
        prepared.problem = f"It was not written: {literal(str(error))}"
        return prepared
    if report.size_bytes > MOST_BYTES:
        path.unlink()
        prepared.problem = (
            f"The file has {size(report.size_bytes)}; a page hands out at most {size(MOST_BYTES)}. "
            f"Write it with {_command(run_id, form, path.name)}"
        )
        return prepared
    prepared.report = report
    return prepared


def _spans(run_id: str, window: Window | None) -> int:
    t0, t1 = window or (0.0, 1e12)
    with TelemetryReader(session.data_dir().telemetry_db) as reader:
        return reader.count_spans(run_id, t0, t1, cap=MOST_SPANS + 1)


def _command(run_id: str, form: str, name: str) -> str:
    root = session.data_dir().root
    folder = "" if root == Path(DEFAULT_DATA_DIR).absolute() else f" --data-dir '{root}'"
    return f"`bidirl runs export '{run_id}' --format {form} --out '{name}'{folder}` ({DATA_DIR_VARIABLE} works too)."


def size(num_bytes: int) -> str:
    """ "12.4 MB"."""
    return f"{num_bytes / 1e6:,.1f} MB" if num_bytes >= 1e5 else f"{num_bytes / 1e3:,.1f} kB"


def import_bundle(key: str = "import_bundle") -> None:
    """A popover that takes a bundle of another installation in; closed to viewers."""
    allowed, lacks = session.may_command()
    with st.popover("Import", icon=symbol("upload"), key=key):
        st.markdown("**Import a bundle** of another installation: what `runs export --format bundle` wrote.")
        given = st.file_uploader("Bundle", type=["zip"], key=f"{key}_file", disabled=not allowed)
        name = st.text_input(
            "Run id here",
            key=f"{key}_name",
            placeholder="as in the bundle",
            help="Another name, where the bundle's own is taken.",
            disabled=not allowed,
        )
        send = st.button(
            "Import",
            type="primary",
            icon=symbol("upload"),
            key=f"{key}_send",
            disabled=not allowed or given is None,
        )
        if not allowed:
            st.caption(literal(lacks))
        if send and given is not None:
            _send(given, given.name, name.strip() or None, key)
        _told(key)


def _send(given: BinaryIO, title: str, name: str | None, key: str) -> None:
    """Put the upload where the engine finds it, and the command into the mailbox."""
    data = session.data_dir()
    path = data.imports / f"{uuid.uuid4().hex}.zip"
    try:
        session.as_operator()  # before anything of theirs is written
        if reason := _no_bundle(given):
            st.error(literal(f"{title}: {reason}."), icon=symbol("block"))
            return
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("xb") as file:
            shutil.copyfileobj(given, file)
        payload: dict[str, object] = {"path": str(path.relative_to(data.root)), "as": name, "name": title}
        st.session_state[f"{key}_sent"] = session.send("import", payload)
    except (NotAllowed, StorageError, OSError) as error:
        path.unlink(missing_ok=True)
        st.error(literal(f"The bundle was not sent: {error}"), icon=symbol("error"))


def _no_bundle(given: BinaryIO) -> str:
    """Why a file cannot be a bundle, as far as can be seen without unpacking it; "" where it may be one."""
    try:
        with zipfile.ZipFile(given) as archive:
            read_manifest(archive)
    except BundleRefused as error:
        return str(error)
    except (zipfile.BadZipFile, RuntimeError, NotImplementedError, OSError) as error:
        return f"it is not a bundle ({error})"
    given.seek(0)
    return ""


def _told(key: str) -> None:
    """What became of the last bundle that this session sent."""
    sent = st.session_state.get(f"{key}_sent")
    if sent is None:
        return
    try:
        with Mailbox(session.data_dir().control_db) as mailbox:
            command = mailbox.get(sent)
    except (StorageError, ValueError):
        return
    status = COMMAND_STATUS[command.state]
    if command.state in OPEN_COMMANDS:
        st.info(f"Sent; the engine answers here ({status.word}).", icon=symbol(status.icon))
    elif command.state == "applied":
        st.success(literal(command.answer or "Imported."), icon=symbol(status.icon))
        st.page_link(
            LIVE_PAGE,
            label="Open it",
            icon=symbol("monitoring"),
            query_params={RUN_KEY: str((command.result or {}).get("run_id", ""))},
        )
    else:
        st.warning(f"Import was {status.word}. {literal(command.answer or '')}", icon=symbol(status.icon))
