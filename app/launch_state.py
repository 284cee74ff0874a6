"""What the Launch page remembers: the text of the job file, which is the truth, where it came from, and what is typed.

Widgets forget their values when another page is shown, so the text is kept apart from them.
"""

from __future__ import annotations

import uuid

import streamlit as st

from app import job_form, session
from app.job_fields import Field
from app.presets import EMPTY, Source, preset, preset_names
from engine.config import JobError
from storage.database import StorageError
from storage.reader import TelemetryReader
from storage.records import RunRow

TEXT = "_launch_text"
SOURCE = "_launch_source"
TYPED = "_launch_typed"
SENT = "_launch_sent"
IDEM = "_launch_idem"
DRY = "_launch_dry"
PLANS = "_launch_plans"
EDITOR = "launch_yaml"

KEPT_PLANS = 16
"""Jobs of plans that a session keeps for the address of this page."""


def text() -> str:
    """The job file as it stands."""
    return str(st.session_state[TEXT])


def source() -> Source:
    """What it was started from."""
    found: Source = st.session_state[SOURCE]
    return found


def typed_problems() -> dict[str, str]:
    """Path -> sentence for what was typed into a field and is not even YAML."""
    found: dict[str, str] = st.session_state[TYPED]
    return found


def prepare() -> None:
    """Load what the URL asks for, once; without a wish the first preset."""
    wanted = _asked()
    current: Source | None = st.session_state.get(SOURCE)
    if wanted is not None and (current is None or current.key != wanted.key):
        load(wanted)
    elif current is None:
        names = preset_names()
        load((preset(names[0]) if names else None) or Source(key="empty:", text=EMPTY, base_dir=None))
    elif EDITOR not in st.session_state:
        replace_text(text())


def load(wanted: Source) -> None:
    """Start from another source."""
    st.session_state[SOURCE] = wanted
    st.session_state[IDEM] = uuid.uuid4().hex
    replace_text(wanted.text)


def replace_text(new: str) -> None:
    """Another text, shown by the fields and the editor alike."""
    st.session_state[TEXT] = st.session_state[EDITOR] = new
    st.session_state[TYPED] = {}
    document = job_form.read_document(new)
    if document is not None:
        for path, field in job_form.FIELDS.items():
            st.session_state[widget_key(path)] = _shown(field, job_form.field_text(document, path))


def widget_key(path: str) -> str:
    """Key of a field's widget."""
    return f"field_{path.replace('.', '_')}"


def field_changed(path: str) -> None:
    """The form changed the text; what is not YAML stays in the field with its problem."""
    typed = str(st.session_state[widget_key(path)] or "")
    try:
        new = job_form.set_field(text(), path, typed)
    except JobError as error:
        typed_problems()[path] = next(iter(error.problems.values()))
        return
    typed_problems().pop(path, None)
    if path == "devices.kind":
        # other fields appear, and what a field showed is forgotten while it is not there
        replace_text(new)
        return
    st.session_state[TEXT] = st.session_state[EDITOR] = new


def editor_changed() -> None:
    """The editor changed the text."""
    replace_text(st.session_state[EDITOR])


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


def _shown(field: Field, typed: str) -> str:
    """A choice always has a value."""
    return (typed or job_form.default_text(field.path)) if field.choices else typed


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
