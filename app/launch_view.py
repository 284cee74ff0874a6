"""Draws the Launch page: the form with problems beside their fields, what the job will do, and the command's state."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import Any

import streamlit as st

from app import job_form, launch_state, session, states
from app.access import NotAllowed
from app.glossary import field_help
from app.job_fields import Field, Section
from app.job_form import Checked
from app.markup import literal
from app.modelled import LEARNS_NOTHING
from app.presets import described, preset_names
from app.session import RUN_KEY
from app.status import COMMAND_STATUS, OPEN_COMMANDS, symbol
from storage.database import StorageError
from storage.liveness import is_silent
from storage.mailbox import Mailbox
from storage.records import EngineRow

ROW_WIDTH = 4
"""Fields beside each other; a wide one counts twice."""


def start_from() -> None:
    """The presets, or what else the text came from."""
    source = launch_state.JOB.source()
    kind, _, name = source.key.partition(":")
    names = preset_names()
    is_preset = kind == "preset" and name in names
    key = f"launch_preset:{source.key}"
    st.selectbox(
        "Start from",
        names,
        index=names.index(name) if is_preset else None,
        format_func=_option,
        placeholder=f"{kind} of {name}" if name else "an empty job",
        key=key,
        on_change=launch_state.preset_chosen,
        args=(key,),
    )

    if is_preset:
        st.caption(literal(described(name)))


def _option(name: str) -> str:
    """A preset in the list: its name and the first clause of what it says of itself."""
    clause = described(name).partition(":")[0]
    return " · ".join(("preset " + name, *([clause] if clause else [])))


def resume_notice() -> None:
    """What a resumed run keeps."""
    if resumed := launch_state.JOB.source().resume:
        st.info(
            f"Resumes **{literal(resumed)}** from its newest checkpoint. That fixes model, task, seed and prompts per "
            "step; ask for more steps than it has made.",
            icon=symbol("resume"),
        )


def form(checked: Checked) -> None:
    """The fields in their sections."""
    document = job_form.read_document(launch_state.JOB.text())
    broken = document is None
    if broken:
        st.warning(
            "The YAML cannot be read, so the form shows what it was before. Mend it under YAML.",
            icon=symbol("data_object"),
        )
    kind = job_form.kind_of(document) if document is not None else ""
    for section in job_form.sections(kind):
        st.markdown(f"**{section.title}**")
        for row in _rows(section):
            widths = [2 if field.wide else 1 for field in row]
            columns = st.columns([*widths, *[1] * (ROW_WIDTH - sum(widths))], gap="small")
            for column, field in zip(columns, row, strict=False):
                with column:
                    _field(field, checked, disabled=broken)
    if kind == "emulated":
        _profile(checked)


def _profile(checked: Checked) -> None:
    """What emulated devices obey, which is too much for fields."""
    if problem := checked.beside("profile"):
        _problem(f"profile {problem}")
        return
    st.caption(
        "Speeds, sequences per replica, lengths of responses and costs of switching are those of the profile: see "
        f"YAML. {LEARNS_NOTHING}"
    )


def _rows(section: Section) -> Iterator[list[Field]]:
    row: list[Field] = []
    for field in section.fields:
        if sum(2 if f.wide else 1 for f in [*row, field]) > ROW_WIDTH:
            yield row
            row = []
        row.append(field)
    yield row


def _field(field: Field, checked: Checked, *, disabled: bool) -> None:
    key = launch_state.JOB.widget_key(field.path)
    on_change = launch_state.field_changed
    changed: dict[str, Any] = {"key": key, "on_change": on_change, "args": (field.path,), "disabled": disabled}
    changed["help"] = field_help(field.path)
    if field.choices:
        current = str(st.session_state.get(key) or "")
        options = list(field.choices) if current in field.choices else [*field.choices, current]
        st.selectbox(field.label, options, format_func=_choice, **changed)
    else:
        st.text_input(field.label, placeholder=job_form.default_text(field.path), **changed)
    if problem := launch_state.JOB.typed_problems().get(field.path) or checked.beside(field.path):
        with st.container(key=f"problem_{field.path.replace('.', '_')}"):
            _problem(problem)


def _choice(value: str) -> str:
    return "follows the arm" if value == "null" else value


def _problem(sentence: str) -> None:
    st.markdown(f":small[:red[{symbol('error')} {literal(sentence)}]]")


def editor(checked: Checked) -> None:
    """The job file itself."""
    st.text_area("Job file", key=launch_state.JOB.editor, height=560, on_change=launch_state.JOB.editor_changed)
    for path, sentence in checked.problems.items():
        _problem(f"{path}: {sentence}" if path else sentence)


def summary(checked: Checked, engine: EngineRow | None) -> None:
    """What the job will do, or what is wrong with it; launch and dry run."""
    problems = {**checked.problems, **launch_state.JOB.typed_problems()}
    st.markdown("**What this job will do**")
    if checked.job is not None and not problems:
        st.markdown("\n".join(f"- {literal(sentence)}" for sentence in job_form.plan_sentences(checked.job)))
    else:
        count = f"{len(problems)} problem{'s' if len(problems) > 1 else ''}"
        st.error(f"{count} to mend before this job can be launched.", icon=symbol("error"))
        st.markdown("\n".join(f"- {literal(f'{path}: {s}' if path else s)}" for path, s in problems.items()))
    allowed, lacks = session.may_command()
    with st.container(horizontal=True, gap="small"):
        if st.button(
            "Launch",
            type="primary",
            icon=symbol("rocket_launch"),
            key="launch_send",
            disabled=bool(problems) or not allowed,
        ):
            _launch()
        if st.button("Dry run", icon=symbol("preview"), key="launch_dry_run", disabled=bool(problems)):
            st.session_state[launch_state.DRY] = launch_state.JOB.text()
    if not allowed:
        st.caption(literal(lacks))
    if engine is None or is_silent(engine.beat_at, session.now()):
        st.warning(
            "No engine answers on this data folder: a job waits in the mailbox until one starts with "
            f"`{states.serve_command(session.data_dir().root)}`.",
            icon=symbol("cloud_off"),
        )


def _launch() -> None:
    """Send the command; sending the same click twice is one command."""
    source = launch_state.JOB.source()
    payload: dict[str, object] = {"job": launch_state.JOB.text(), "base_dir": source.base_dir, "resume": source.resume}
    key = f"app-{st.session_state[launch_state.IDEM]}"
    try:
        st.session_state[launch_state.SENT] = session.send("launch", payload, idem_key=key, expires_in_s=None)
    except (StorageError, NotAllowed) as error:
        st.error(f"The command was not sent: {literal(str(error))}", icon=symbol("error"))
        return
    st.session_state[launch_state.IDEM] = uuid.uuid4().hex


def sent() -> None:
    """What became of the launch that was sent last; it is a success only when the engine says so."""
    command_id = st.session_state.get(launch_state.SENT)
    if command_id is None:
        return
    try:
        with Mailbox(session.data_dir().control_db) as mailbox:
            command = mailbox.get(command_id)
    except (StorageError, ValueError) as error:
        st.error(f"The command cannot be read: {literal(str(error))}", icon=symbol("database_off"))
        return
    status = COMMAND_STATUS[command.state]
    run_id = (command.result or {}).get("run_id")
    with st.container(border=True, key="launch_state"):
        if command.state in OPEN_COMMANDS:
            waits = "waits for the engine" if command.state == "pending" else "is being prepared by the engine"
            st.info(f"Launch {command.id} {waits}. {literal(command.answer or '')}", icon=symbol(status.icon))
        elif command.state == "applied" and isinstance(run_id, str):
            st.success(f"Launched as **{literal(run_id)}**.", icon=symbol(status.icon))
            st.page_link(
                session.LIVE_PAGE,
                label=f"Watch {literal(run_id)} live",
                icon=symbol("monitoring"),
                query_params={RUN_KEY: run_id},
            )
            session.remember(run_id)
        else:
            reason = literal(command.answer or "no reason was given")
            st.error(f"The launch was {status.word}: {reason}", icon=symbol(status.icon))
