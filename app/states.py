"""The designed empty and broken states: what is missing, where, and the one thing to do next."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import streamlit as st

from app import one_click
from app.attention import silence
from app.clock import PageClock, duration
from app.markup import literal
from app.session import LAUNCH_PAGE, LIVE_PAGE, RUN_KEY
from app.status import RUN_STATUS, symbol
from storage.database import SchemaTooNew, StorageError, TelemetryMissing
from storage.paths import DATA_DIR_VARIABLE, DEFAULT_DATA_DIR
from storage.records import EngineRow, RunRow

LISTED_RUNS = 6
"""Runs offered where the one asked for is not there."""


def serve_command(root: Path, *, demo: bool = False) -> str:
    """The exact command that starts an engine on this data folder."""
    default = Path(DEFAULT_DATA_DIR).absolute()
    folder = "" if root == default else f" --data-dir {_quoted(root)}"
    return f"bidirl serve{' --demo' if demo else ''}{folder}"


def _quoted(path: Path) -> str:
    text = str(path)
    return text if all(c.isalnum() or c in "/._-~" for c in text) else "'" + text.replace("'", "'\\''") + "'"


def no_database(error: TelemetryMissing) -> None:
    """The engine never ran on this data folder."""
    root = error.path.parent
    with st.container(border=True, key="state_no_database"):
        st.subheader("No engine has run here yet", anchor=False)
        st.markdown(
            f"There is no telemetry at `{error.path}`. Start the engine and this page with one command; it keeps "
            f"everything in that folder (`--data-dir`, or `{DATA_DIR_VARIABLE}`)."
        )
        st.code(serve_command(root), language="bash")
        st.markdown("Or start it with the demo job already launched:")
        st.code(serve_command(root, demo=True), language="bash")
        _first_runs()


def _first_runs() -> None:
    """The demo, which is real, beside devices that are not."""
    with st.container(horizontal=True, gap="small"):
        if st.button("Launch the demo job", type="primary", icon=symbol("rocket_launch"), key="launch_demo"):
            st.switch_page(LAUNCH_PAGE, query_params={"preset": "demo"})
        st.fragment(one_click.offer, run_every=one_click.interval_s())()


def no_runs(root: Path) -> None:
    """An engine is or was there, and nobody has launched anything."""
    with st.container(border=True, key="state_no_runs"):
        st.subheader("No runs yet", anchor=False)
        st.markdown(
            f"The data folder `{root}` holds no run. Launch the demo job to see one train within minutes, "
            "or watch 16 emulated devices lend each other without any hardware."
        )
        _first_runs()


def unknown_run(named: str, runs: Sequence[tuple[RunRow, str]], clock: PageClock, *, page: str = LIVE_PAGE) -> None:
    """The URL names a run that is not there. runs: each with its effective state. page: where their links lead:
    to the page that was asked for."""
    with st.container(border=True, key="state_unknown_run"):
        st.subheader("There is no such run", anchor=False)
        # code, not prose: the name comes from the URL
        st.code(named, language=None)
        told = "These runs are here:" if runs else "No run is in this data folder."
        st.markdown(f"It was deleted, or belongs to another data folder. {told}")
        for run, state in runs[:LISTED_RUNS]:
            made = f" · {clock.moment(run.created_at)}" if run.created_at else ""
            st.page_link(
                page,
                label=f"{run.name} · {run.run_id} · {RUN_STATUS[state].word.lower()}{made}",
                icon=symbol(RUN_STATUS[state].icon),
                query_params={RUN_KEY: run.run_id},
            )


def storage_problem(error: StorageError, *, kept_frame: bool) -> None:
    """The database cannot be read now, or not by this program."""
    where = f"`{error.path}` · {literal(error.reason)}"
    if isinstance(error, SchemaTooNew):
        st.error(f"**The database is newer than this page** · {where}.", icon=symbol("system_update"))
        return
    kept = "The last good picture stays below. " if kept_frame else ""
    st.error(
        f"**The database cannot be read** · {where}. {kept}Trying again with every refresh; if this stays, stop the "
        "engine and look at the file and its disk.",
        icon=symbol("database_off"),
    )


def engine_silent(engine: EngineRow | None, frozen_at: float | None, now: float, clock: PageClock, root: Path) -> None:
    """The engine of a live run has not been heard for ten seconds."""
    since = silence(engine, now)
    heard = f"last heartbeat {since} ago" if since else "no heartbeat yet"
    frozen = f"Charts are frozen at {clock.time(frozen_at)}; commands" if frozen_at is not None else "Commands"
    st.error(
        f"**Engine not reachable** · {heard}. {frozen} will be queued and applied when it returns: "
        f"`{serve_command(root)}`",
        icon=symbol("cloud_off"),
    )


def telemetry_late(age_s: float, engine: EngineRow | None) -> None:
    """The engine beats, but what devices do arrives late."""
    queue = f", {engine.queue_depth:,} rows wait to be written" if engine and engine.queue_depth else ""
    st.warning(
        f"**Telemetry is late** · newest device time is {duration(age_s)} old{queue}. Trying again every refresh.",
        icon=symbol("schedule"),
    )


def why_no_spans(run: RunRow) -> str:
    """Of a run without device time yet."""
    waiting = {
        "queued": "It waits for devices that another run holds, or for the engine.",
        "starting": "Its workers are starting; the timeline begins with their first span.",
    }
    return waiting.get(run.state, "No worker of this run has reported.")


def no_spans(run: RunRow) -> None:
    """In place of the timeline of such a run."""
    st.info(f"**No device time yet** · {why_no_spans(run)}", icon=symbol("hourglass_empty"))
