"""Launch: start a job. A form and the YAML of the job file share one validator; a dry run; the command's state."""

from __future__ import annotations

import streamlit as st

from app import header, job_form, launch_state, launch_view, one_click, session
from engine.config import dump_job
from engine.config.job import usable_cores
from storage.database import StorageError
from storage.reader import TelemetryReader
from storage.records import EngineRow

POLL_S = 0.5
"""The engine takes commands within a quarter of a second."""


def engine_row() -> EngineRow | None:
    """The current engine life, None without one."""
    try:
        with TelemetryReader(session.data_dir().telemetry_db) as reader:
            return reader.engine()
    except StorageError:
        return None


def page() -> None:
    """The whole page."""
    header.who_looks()
    launch_state.prepare()
    left, right = st.columns([5, 4], vertical_alignment="bottom", gap="medium")
    with left:
        st.title("Launch", anchor=False)
        st.caption("Start a job.")
    with right:
        launch_view.start_from()
    launch_view.resume_notice()
    engine = engine_row()
    cores = engine.cores if engine is not None and engine.cores else len(usable_cores())
    checked = job_form.check(launch_state.JOB.text(), cores=cores)
    main, side = st.columns([5, 2], gap="small")
    with main, st.container(border=True, key="launch_form"):
        fields, editor = st.tabs(["Form", "YAML"])
        with fields:
            launch_view.form(checked)
        with editor:
            launch_view.editor(checked)
    with side:
        with st.container(border=True, key="launch_emulated"):
            st.markdown("**Without hardware** · a run beside what runs now", help=one_click.HELP)
            st.fragment(one_click.offer, run_every=one_click.interval_s())()
        with st.container(border=True, key="launch_summary"):
            launch_view.summary(checked, engine)
        waits = st.session_state.get(launch_state.SENT) is not None
        st.fragment(launch_view.sent, run_every=POLL_S if waits else None)()
    dry = st.session_state.get(launch_state.DRY)
    if dry == launch_state.JOB.text() and checked.job is not None:
        with st.container(border=True, key="dry_run"):
            st.markdown("**Dry run** · the resolved job, as it would be stored with its run; nothing was started")
            st.code(dump_job(checked.job), language="yaml")
