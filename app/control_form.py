"""The form of the Control page: what may be changed on a running job, checked while it is filled in.

A field that nobody touched follows what governs the run; one that was touched is never set by a refresh. Nothing is
sent from here: Review shows what is expected first.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import streamlit as st

from app import control_review
from app.command_words import NAMES
from app.control_view import ENABLED
from app.glossary import help_of
from app.markup import literal
from app.modelled import pace_of
from app.status import symbol
from app.wanted import Wanted, ahead_of, splits, wanted
from engine.config import BORROWING_ARMS, Job
from engine.config.job import MAX_LEASE_S, MAX_STALENESS
from engine.config.steering import LIVE_ARMS, PLACES
from storage.records import RunRow


def key_of(run_id: str, name: str, generation: int = 0) -> str:
    """Key of a field. generation: how often the form was reset."""
    return f"control_{name}:{run_id}" + (f":{generation}" if generation else "")


def _generation_slot(run_id: str) -> str:
    return f"_control_generation:{run_id}"


def _keys(run_id: str) -> dict[str, str]:
    """Name -> key of the fields that are drawn now."""
    generation: int = st.session_state.get(_generation_slot(run_id), 0)
    return {name: key_of(run_id, name, generation) for name in PLACES}


def prepare(run_id: str, asked: Mapping[str, Any]) -> None:
    """Fields that were not touched take what governs now; those that were keep what the operator wants."""
    slot = f"_control_base:{run_id}"
    base = st.session_state.get(slot, asked)
    for name, key in _keys(run_id).items():
        if key not in st.session_state or (st.session_state[key] == base[name] != asked[name]):
            st.session_state[key] = asked[name]
    st.session_state[slot] = dict(asked)


def reset(run_id: str, asked: Mapping[str, Any]) -> None:
    """Every field takes what governs now. Called before the fields are drawn.

    They are other fields from now on: a browser keeps a number that is out of range to itself, and would go on showing
    it in a field whose value did not change.
    """
    for key in _keys(run_id).values():
        st.session_state.pop(key, None)
    st.session_state[_generation_slot(run_id)] = st.session_state.get(_generation_slot(run_id), 0) + 1
    for name, key in _keys(run_id).items():
        st.session_state[key] = asked[name]


def values(run_id: str) -> dict[str, Any]:
    """What the fields hold; those without a value are left out, but for the cap, where that means none."""
    found = {name: st.session_state.get(key) for name, key in _keys(run_id).items()}
    return {name: value for name, value in found.items() if value is not None or name == "lend_cap"}


def form(run: RunRow, state: str, job: Job, asked: Mapping[str, Any]) -> None:
    """The fields, what they change, and the button that leads to the review."""
    prepare(run.run_id, asked)
    pace = pace_of(run)
    st.markdown(f"**Change settings**{pace.badge}")
    _fields(run, job, asked)
    found = wanted(job, values(run.run_id), ahead_groups=ahead_of(run))
    control_review.forget_unless(run.run_id, found.parts)
    _told(found)
    allowed = state in ENABLED["change"]
    with st.container(horizontal=True, gap="small", vertical_alignment="center"):
        if st.button(
            "Review",
            icon=symbol("rate_review"),
            key="control_review",
            type="primary",
            disabled=found.job is None or not allowed,
        ):
            with st.spinner("Playing the run with and without the change …"):
                control_review.make(run.run_id, values(run.run_id))
            st.rerun()
        st.button(
            "Reset",
            icon=symbol("restart_alt"),
            key="control_reset",
            # open though nothing is changed: a number out of range is known to the browser alone
            on_click=reset,
            args=(run.run_id, dict(asked)),
            help="Back to what governs now.",
        )
    if not allowed:
        st.caption(f"The run is {state.replace('_', ' ')}: settings are changed while an engine runs it.")


def _fields(run: RunRow, job: Job, asked: Mapping[str, Any]) -> None:
    key = _keys(run.run_id)
    left, right = st.columns(2, gap="small")
    left.number_input(
        "Staleness, versions",
        min_value=0.0,
        max_value=MAX_STALENESS,
        step=0.25,
        format="%.4g",
        key=key["staleness"],
        help=help_of("staleness"),
    )
    offered = splits(run)
    right.selectbox(
        "Partition, rollout : train devices",
        offered or (asked["partition"],),
        format_func=lambda split: f"{split} · now" if split == asked["partition"] else str(split),
        key=key["partition"],
        disabled=len(offered) < 2,
        help=help_of("partition") if len(offered) > 1 else "The only split that this job's replicas and arm allow.",
    )
    left.selectbox(
        "Arm",
        LIVE_ARMS,
        format_func=lambda arm: f"{arm} · now" if arm == asked["arm"] else arm,
        key=key["arm"],
        help=help_of("arm"),
    )
    right.number_input(
        "Lend cap, devices",
        min_value=0,
        max_value=job.device_count,
        step=1,
        placeholder="none: as many as pay",
        key=key["lend_cap"],
        help=help_of("lend_cap"),
    )
    for column, name in ((left, "rollout_on_train"), (right, "train_on_rollout")):
        column.toggle(NAMES[name].capitalize(), key=key[name], help=help_of(name))
    left.number_input(
        f"Minimum lease, seconds{pace_of(run).unit}",
        min_value=0.0,
        max_value=MAX_LEASE_S,
        step=1.0,
        format="%.4g",
        key=key["min_lease_s"],
        help=help_of("min_lease_s"),
    )
    if st.session_state[key["arm"]] not in BORROWING_ARMS:
        st.caption("An arm without leases keeps directions, cap and minimum for one that lends.")


def _told(found: Wanted) -> None:
    """The changes in a line, and what is wrong with them."""
    with st.container(key="control_wanted"):
        if not found.parts:
            st.caption("Nothing is changed yet. Review says what a change is expected to do, and sends nothing.")
            return
        st.markdown(" · ".join(f":blue-background[{literal(told)}]" for told in found.told))
        if found.problem:
            st.markdown(f":small[:red[{symbol('error')} {literal(found.problem)}]]")
