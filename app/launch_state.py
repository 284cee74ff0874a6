"""What the Launch page remembers: the job that is launched, what was sent, and the jobs that plans made for it."""

from __future__ import annotations

import uuid

import streamlit as st

from app import job_form, session
from app.job_text import JobText
from app.presets import EMPTY, Source, preset, preset_names
from storage.database import StorageError
from storage.reader import TelemetryReader
from storage.records import RunRow

SENT = "_launch_sent"
IDEM = "_launch_idem"
DRY = "_launch_dry"
PLANS = "_launch_plans"
JOB = JobText(page="launch", fields=tuple(job_form.FIELDS), widgets="field")
"""The job that is launched."""

KEPT_PLANS = 16
"""Jobs of plans that a session keeps for the address of this page."""


def prepare() -> None:
    """Load what the URL asks for, once; without a wish the first preset."""
    wanted = _asked()
    if not JOB.show(wanted):
        names = preset_names()
        first = preset(names[0]) if names else None
        load(wanted or first or Source(key="empty:", text=EMPTY, base_dir=None))


def load(wanted: Source) -> None:
    """Start from another source."""
    st.session_state[IDEM] = uuid.uuid4().hex
    JOB.load(wanted)


def field_changed(path: str) -> None:
    """The form changed the text."""
    if JOB.set_from_field(path) is not None and path == "devices.kind":
        # other fields appear, and what a field showed is forgotten while it is not there
        JOB.replace_text(JOB.text())


def preset_chosen(key: str) -> None:
    """A preset was picked in the widget `key`."""
    chosen = preset(st.session_state[key] or "")
    if chosen is not None:
        st.query_params.clear()
        load(chosen)


def keep_plan(name: str, text: str, base_dir: str | None) -> None:
    """Keep the job of a plan, which `?plan=NAME` then starts from in this session."""
    kept: dict[str, Source] = st.session_state.setdefault(PLANS, {})
    kept.pop(name, None)
    kept[name] = Source(key=f"plan:{name}", text=text, base_dir=base_dir)
    while len(kept) > KEPT_PLANS:
        del kept[next(iter(kept))]


def _asked() -> Source | None:
    """What the URL asks to start from; None when it asks for nothing that is there."""
    params = st.query_params
    for name in ("resume", "clone"):
        if name in params:
            return _from_run(params[name], name)
    if "plan" in params:
        return _from_plan(params["plan"])
    return preset(params["preset"]) if "preset" in params else None


def _from_plan(name: str) -> Source | None:
    kept: dict[str, Source] = st.session_state.get(PLANS, {})
    if name not in kept:
        st.warning(f"This session has made no plan `{name.replace('`', '')}`; this is another job.")
    return kept.get(name)


def _from_run(run_id: str, how: str) -> Source | None:
    run: RunRow | None = None
    try:
        with TelemetryReader(session.data_dir().telemetry_db) as reader:
            run = reader.run(run_id)
    except StorageError:
        pass
    if run is None:
        st.warning(f"There is no run `{run_id.replace('`', '')}` to {how}; this is another job.")
        return None
    return Source(
        key=f"{how}:{run_id}", text=run.job, base_dir=run.base_dir, resume=run_id if how == "resume" else None
    )
