"""Draws what is planned: which job, what is asked of it, and where its stage times are from."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import streamlit as st

from app import job_form, plan_state
from app.glossary import field_help, help_of
from app.markup import literal
from app.plan_times import Times
from app.presets import described
from app.status import symbol
from storage.records import RunRow

LABELS = {
    "devices.count": "Devices",
    "schedule.arm": "Arm",
    "schedule.staleness": "Staleness",
    "algorithm.prompts_per_step": "Prompts per step (B)",
    "devices.rollout_replica_size": "Per rollout replica",
    "devices.train_replica_size": "Per train replica",
}
"""Shorter than in the form: six stand beside each other."""


def picker(runs: Sequence[RunRow]) -> None:
    """The presets and the past runs to start from."""
    keys = plan_state.options(runs)
    names = {run.run_id: run.name for run in runs}
    current = plan_state.JOB.source().key
    st.session_state[plan_state.PICKER] = current if current in keys else None
    st.selectbox(
        "Plan the job of",
        keys,
        format_func=lambda key: _option(key, names),
        placeholder="an edited job",
        key=plan_state.PICKER,
        on_change=plan_state.picked,
        args=(runs,),
    )


def _option(key: str, names: dict[str, str]) -> str:
    kind, _, name = key.partition(":")
    if kind == "run":
        return f"run {name} · {names.get(name, '')}"
    clause = described(name).partition(":")[0]
    return " · ".join(("preset " + name, *([clause] if clause else [])))


def job_fields(problems: dict[str, str]) -> None:
    """What a plan is asked for. problems: path -> sentence."""
    columns = st.columns(len(plan_state.FIELDS), gap="small")
    broken = job_form.read_document(plan_state.JOB.text()) is None
    for column, path in zip(columns, plan_state.FIELDS, strict=True):
        key, choices = plan_state.JOB.widget_key(path), job_form.FIELDS[path].choices
        changed: dict[str, Any] = {"key": key, "on_change": plan_state.field_changed, "args": (path,)}
        changed["help"] = field_help(path)
        with column:
            if choices:
                current = str(st.session_state.get(key) or "")
                listed = list(choices) if current in choices else [*choices, current]
                st.selectbox(LABELS[path], listed, disabled=broken, **changed)
            else:
                st.text_input(LABELS[path], placeholder=job_form.default_text(path), disabled=broken, **changed)
    told = {**problems, **plan_state.JOB.typed_problems()}
    for path, sentence in told.items():
        st.markdown(f":small[:red[{symbol('error')} {literal(f'{path}: {sentence}' if path else sentence)}]]")


def editor(problems: dict[str, str]) -> None:
    """The job file behind the fields, open where there is something to mend."""
    with st.expander("Job file", icon=symbol("data_object"), expanded=bool(problems)):
        st.text_area(
            "Job file",
            key=plan_state.JOB.editor,
            height=320,
            on_change=plan_state.JOB.editor_changed,
            label_visibility="collapsed",
        )


def times_picker(found: Sequence[Times], chosen: Times | None) -> None:
    """Which stage times the plan goes by; where there are none, how to get them."""
    if not found:
        no_times()
        return
    keys = [times.key for times in found]
    labels = {times.key: times.label for times in found}
    st.session_state[plan_state.TIMES_PICKER] = chosen.key if chosen is not None else None
    st.selectbox(
        "Stage times from",
        keys,
        format_func=lambda key: labels[key],
        placeholder="choose where speeds and costs are from",
        key=plan_state.TIMES_PICKER,
        on_change=plan_state.times_picked,
        help=help_of("plan_stage_times"),
    )
    if chosen is None:
        no_times(others=True)
    elif chosen.problem:
        st.error(literal(chosen.problem), icon=symbol("error"))


def no_times(*, others: bool = False) -> None:
    """This job was never measured, and says nothing of its speeds itself."""
    also = " Or choose another run's, if it ran at the same speeds." if others else ""
    st.info(
        "**There are no stage times for this job** · it has no profile, no calibration of its like is stored, and it "
        f"is not the job of a run that measured itself. A short measured run gives them.{also}",
        icon=symbol("timer_off"),
    )
    kind, _, name = plan_state.JOB.source().key.partition(":")
    st.code(f"bidirl calibrate {f'jobs/{name}.yaml' if kind == 'preset' else 'JOB.yaml'}", language="bash")
