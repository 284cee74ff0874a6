"""Draws the list of decisions: filters, pages, and beside it the one that is opened, which the URL names.

While a decision is open the list stands still, so that a row keeps meaning what it meant; without one it follows the
newest.
"""

from __future__ import annotations

from typing import Any

import streamlit as st

from app import decision_detail, decision_story
from app.clock import DASH, PageClock
from app.decision_filters import STEPS_HELP, TIMES_HELP, Asked, understood
from app.decision_reading import DECISION_KEY, LEASE_KEY, Listed, Place
from app.decision_rows import ACTION_WORDS, nothing_decided
from app.glossary import help_of
from app.lending import DIRECTION_WORDS, device_list
from app.markup import literal
from app.modelled import Pace, pace_of
from app.status import symbol
from engine.config import BORROWING_ARMS
from storage.filters import DecisionFilter
from storage.records import DecisionRow, LeaseRow, RunRow
from storage.words import DECISIONS, DIRECTIONS

TABLE_PX = 700
"""As high as what is told of an opened decision, about."""

EMPTY = Asked()


def open_decision(run_id: str, number: int | None) -> None:
    """Make it the one that is told of, here and in the URL; None to follow the newest."""
    st.session_state[f"_decision:{run_id}"] = number
    for key in (DECISION_KEY, LEASE_KEY):
        if key in st.query_params:
            del st.query_params[key]
    if number is not None:
        st.query_params[DECISION_KEY] = str(number)


def filters(run: RunRow, clock: PageClock) -> tuple[Asked, DecisionFilter]:
    """The fields, and what they ask for; what cannot be read is said below its field."""
    head = st.columns([2, 3, 1.3, 1.3], vertical_alignment="top", gap="small")
    action = head[0].selectbox(
        "Decision", ["", *DECISIONS], format_func=lambda a: ACTION_WORDS.get(a, "any"), key="decisions_action"
    )
    direction = head[1].selectbox(
        "Direction", ["", *DIRECTIONS], format_func=lambda d: DIRECTION_WORDS.get(d, "both"), key="decisions_direction"
    )
    device = head[2].text_input("Device", key="decisions_device", help="that its lease lent", placeholder="any")
    lease = head[3].text_input("Lease", key="decisions_lease", placeholder="any")
    below = st.columns([1.3, 2.2, 3, 1.8], vertical_alignment="top", gap="small")
    steps = below[0].text_input("Steps", key="decisions_steps", help=STEPS_HELP, placeholder="all")
    times = below[1].text_input("Time", key="decisions_times", help=TIMES_HELP, placeholder="whole run")
    text = below[2].text_input("Text in the reason", key="decisions_text", icon=symbol("search"))
    with below[3].container(height="stretch", vertical_alignment="bottom"):
        lost = st.toggle("only lost time", key="decisions_lost", help=help_of("measured_gain"))
    asked = Asked(
        action=action or "",
        direction=direction or "",
        device=device,
        steps=steps,
        times=times,
        lease=lease,
        text=text,
        lost_time=lost,
    )
    wanted, problems = understood(asked, clock, run.training_at or run.started_at or run.created_at)
    places = {"device": head[2], "lease": head[3], "steps": below[0], "times": below[1]}
    for name, problem in problems.items():
        places[name].markdown(f":small[:red[{literal(problem)}]]")
    return asked, wanted


def keep_in_url(run_id: str) -> None:
    """A part that refreshes by itself may ask with the address of a moment ago; the opened decision stays in it."""
    number = st.session_state.get(f"_decision:{run_id}")
    if number is not None and LEASE_KEY not in st.query_params:
        told = str(number)
        if st.query_params.get(DECISION_KEY) != told:
            st.query_params[DECISION_KEY] = told


def place_of(run_id: str, asked: Asked) -> Place:
    """The page that is shown; other filters begin with the newest again."""
    slot = f"_decisions_place:{run_id}"
    kept: tuple[Asked, Place] = st.session_state.get(slot, (EMPTY, Place()))
    if kept[0] != asked:
        go(run_id, asked, Place())
    return st.session_state.setdefault(slot, kept)[1]


def go(run_id: str, asked: Asked, place: Place) -> None:
    """Show another page; rows mean others there, so the table is another one too."""
    st.session_state[f"_decisions_place:{run_id}"] = (asked, place)
    generation = f"_decisions_table:{run_id}"
    st.session_state[generation] = st.session_state.get(generation, 0) + 1


def draw(run: RunRow, asked: Asked, listed: Listed, clock: PageClock, *, live: bool) -> None:
    """The table on the left, the opened decision on the right."""
    pace = pace_of(run)
    if not listed.rows and listed.opened is None:
        if asked == EMPTY:
            st.caption(nothing_decided(run.arm, lends=run.arm in BORROWING_ARMS, live=live))
        else:
            st.caption("No decision matches these filters.")
        return
    left, right = st.columns([6, 5], gap="medium")
    with left:
        if listed.rows:
            table(run, listed, clock, pace)
        else:
            st.caption("No decision matches these filters.")
        pages(run, asked, listed)
    with right, st.container(key="decision"):
        if listed.opened is not None:
            head(run, listed, pace)
            decision_detail.drawn(listed.opened, listed.opened_lease, run.run_id, clock, pace)


def head(run: RunRow, listed: Listed, pace: Pace) -> None:
    """Its title, and the ways to other decisions about the same lease."""
    assert listed.opened is not None
    with st.container(horizontal=True, vertical_alignment="center", gap="small"):
        st.markdown(decision_detail.title(listed.opened) + pace.badge, width="content")
        for number, label in decision_story.others(listed.opened, listed.siblings):
            key = f"decision_other_{number}"
            if st.button(label, key=key, type="tertiary", icon=symbol("link")):
                open_decision(run.run_id, number)
                st.rerun()


def row(decision: DecisionRow, lease: LeaseRow | None, clock: PageClock) -> dict[str, Any]:
    """One line of the table; a figure not known is empty."""
    net = None if decision.gain_s is None or decision.cost_s is None else decision.gain_s - decision.cost_s
    devices = device_list(lease.devices) if lease is not None else ""
    about = lease if decision.action == "lend" else None
    return {
        "time": clock.time(decision.at),
        "step": decision.step,
        "what": ACTION_WORDS[decision.action] + ("" if decision.lease is None else f" · {decision.lease}"),
        "direction": DIRECTION_WORDS[decision.direction],
        "devices": devices or (DASH if decision.block is None else f"block {decision.block}"),
        "predicted": net,
        "measured": None if about is None else about.measured_gain_s,
        "reason": decision.reason,
    }


def table(run: RunRow, listed: Listed, clock: PageClock, pace: Pace) -> None:
    """The page of the list; choosing a row opens it."""
    run_id = run.run_id
    ids = [d.id for d in listed.rows]
    st.session_state[f"_decisions_ids:{run_id}"] = ids
    chosen = st.session_state.get(f"_decision:{run_id}")
    rows = [ids.index(chosen)] if chosen in ids else []
    unit, wide = f"s{pace.unit}", 150 if pace.emulated else 92
    st.dataframe(
        [row(d, listed.leases.get(d.lease) if d.lease is not None else None, clock) for d in listed.rows],
        hide_index=True,
        height=TABLE_PX if len(ids) > 14 else "content",
        on_select=lambda: picked(run_id),
        selection_mode="single-row",
        selection_default={"selection": {"rows": rows, "columns": [], "cells": []}} if rows else None,
        key=table_key(run_id),
        placeholder="",
        alt="Decisions, newest first",
        column_config={
            "step": st.column_config.NumberColumn(width=50, help=help_of("decision_step")),
            "what": st.column_config.TextColumn(width=92, help="with the number of the lease"),
            "direction": st.column_config.TextColumn(width=170),
            "devices": st.column_config.TextColumn(width=72, help=help_of("lent_devices")),
            "predicted": st.column_config.NumberColumn(
                f"predicted, {unit}", format="%.2f", width=wide, help=help_of("predicted_net_gain")
            ),
            "measured": st.column_config.NumberColumn(
                f"measured, {unit}", format="%.2f", width=wide, help=help_of("measured_gain")
            ),
            "reason": st.column_config.TextColumn(width="large"),
        },
    )


def table_key(run_id: str) -> str:
    """Key of the table; another one when its rows are others at once."""
    return f"decisions_table:{run_id}:{st.session_state.get(f'_decisions_table:{run_id}', 0)}"


def picked(run_id: str) -> None:
    """A row was chosen, or is no longer. Rows are those that were drawn last, whatever was decided since."""
    state: Any = st.session_state.get(table_key(run_id)) or {}
    rows = list(state.get("selection", {}).get("rows", []))
    ids: list[int] = st.session_state.get(f"_decisions_ids:{run_id}", [])
    number = ids[rows[0]] if rows and rows[0] < len(ids) else None
    asked, place = st.session_state.get(f"_decisions_place:{run_id}", (EMPTY, Place()))
    if number is not None and place == Place():
        # the list stands still from here on
        st.session_state[f"_decisions_place:{run_id}"] = (asked, Place(before=ids[0] + 1))
    open_decision(run_id, number)


def pages(run: RunRow, asked: Asked, listed: Listed) -> None:
    """Where in the list one is, and the ways to the rest of it."""
    run_id, place = run.run_id, listed.place
    ids = [d.id for d in listed.rows]
    with st.container(horizontal=True, vertical_alignment="center", gap="small"):
        newest = st.button("Newest", icon=symbol("first_page"), key="decisions_newest", disabled=place == Place())
        newer = st.button("Newer", icon=symbol("chevron_left"), key="decisions_newer", disabled=place == Place())
        older = st.button("Older", icon=symbol("chevron_right"), key="decisions_older", disabled=not listed.older)
        held = " · the list stands still" if place != Place() else ""
        st.caption(f"{len(ids):,} of {listed.matching:,} decisions{held}", width="content")
    if newest:
        open_decision(run_id, None)
        go(run_id, asked, Place())
    elif newer:
        go(run_id, asked, Place(after=ids[0]) if ids else Place())
    elif older:
        go(run_id, asked, Place(before=ids[-1]) if ids else Place())
    if newest or newer or older:
        st.rerun()
