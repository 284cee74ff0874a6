"""Draws what was clicked on: what the device did, on which groups or chunk, and its lease with the decision behind it.

It reads nothing. Names, prompts and reasons come from elsewhere and are shown as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from html import escape
from typing import Any

import streamlit as st

from app import decision_story, session
from app.clock import DASH, PageClock, count, duration
from app.decision_rows import ACTION_WORDS, seconds
from app.lending import DIRECTION_WORDS, delivered, device_list
from app.markup import literal
from app.modelled import Pace
from app.palette import CAUSE_LABELS, KIND_LABELS, label
from app.status import symbol
from app.timeline_block import MOST_GROUPS, MOST_MEMBERS, Chosen, Work
from app.timeline_view import period
from storage.records import DecisionRow, GroupRow, LeaseRow

STYLE = """
.where-facts { max-height: 22rem; overflow: auto; }
.where-facts.scroll td { white-space: nowrap; }
.where-facts.scroll td:last-child { white-space: normal; min-width: 16rem; }
.where-facts table { border-collapse: collapse; width: 100%; font-size: .82rem; line-height: 1.35; }
.where-facts th, .where-facts td { padding: .26rem .6rem .26rem 0; text-align: left; vertical-align: top; border: 0;
  border-bottom: 1px solid color-mix(in srgb, currentColor 14%, transparent); overflow-wrap: anywhere; }
.where-facts th { font-weight: 600; }
.where-reason { border-left: 3px solid color-mix(in srgb, currentColor 25%, transparent); padding: .1rem 0 .1rem .8rem;
  font-size: .9rem; overflow-wrap: anywhere; }
.st-key-where_worst [data-testid="stVerticalBlock"] { gap: .2rem; }
.st-key-where_worst { gap: .35rem; }
.st-key-where_worst button { min-height: 1.9rem; padding: .05rem .7rem; }
.worst-row { display: grid; grid-template-columns: 1.6fr 2.2fr 2fr 1.4fr 1.8fr; grid-auto-columns: 1.4fr;
  grid-auto-flow: column; gap: .8rem; align-items: center; }
.worst-row span { overflow-wrap: anywhere; }
.worst-head { font-size: .82rem; opacity: .85; }
.cause-dot { display: inline-block; width: .7rem; height: .7rem; border-radius: 50%; margin-right: .45rem;
  box-shadow: 0 0 0 1px rgba(128,132,142,.55); vertical-align: -.05rem; }
"""
"""Put into the page once; the colours follow the theme's text colour."""

DECISION_KEY, LEASE_KEY = "decision", "lease"
"""Names in the URL of the Decisions page."""


def chosen_card(
    chosen: Chosen, run_id: str, pace: Pace, clock: PageClock, *, opens: str | None, close: Callable[[], None]
) -> None:
    """opens: key of the group of rows that it is, which a button opens; None when it is none."""
    with st.container(horizontal=True, vertical_alignment="center", horizontal_alignment="distribute"):
        st.markdown(f"**{literal(chosen.label)}** · {_when(chosen, clock)}{pace.badge}", width="content")
        with st.container(horizontal=True, width="content", gap="small"):
            if opens is not None:
                st.button(
                    "Open these rows",
                    icon=symbol("unfold_more"),
                    key="timeline_open_rows",
                    on_click=close,
                    args=(opens,),
                )
            st.button("Close", icon=symbol("close"), key="timeline_close", on_click=close)
    if chosen.others:
        _others(chosen, pace)
    elif chosen.work is not None:
        st.markdown(" · ".join(told(chosen.work, pace)))
    elif chosen.lease is None:
        _sums(chosen, pace)
    if chosen.lease is not None:
        _lease(chosen.lease, chosen.decisions, run_id, pace, clock)
    if chosen.around:
        _around(chosen.around, run_id, pace, clock)
    elif chosen.around is not None:
        st.caption("No decision about lending was made around it.")
    _groups(chosen, pace, clock)


def told(work: Work, pace: Pace) -> list[str]:
    """What one device did, markdown in short pieces."""
    span = work.span
    what = KIND_LABELS.get(span.kind, span.kind)
    if span.kind == "idle":
        what = f"idle · {CAUSE_LABELS.get(span.cause or '', 'no cause')}"
    elif span.role is not None:
        what = f"{span.role} {what}"
    going = " and goes on" if work.open else ""
    facts = [f"**{what}**", f"{duration(pace.seconds(work.t1 - work.t0))}{pace.unit}{going}"]
    if span.version is not None:
        facts.append(f"version {span.version}")
    if span.step is not None:
        facts.append(f"step {span.step}")
    if span.ref:
        facts.append(literal(span.ref))
    return facts


def _when(chosen: Chosen, clock: PageClock) -> str:
    if chosen.work is not None:
        return period((chosen.work.t0, chosen.work.t1), clock)
    if chosen.lease is not None and chosen.lease.released_at is not None:
        return period((chosen.lease.granted_at, chosen.lease.released_at), clock)
    return clock.time(chosen.at)


def _sums(chosen: Chosen, pace: Pace) -> None:
    if not chosen.sums:
        st.markdown("Nothing is known of this time: no telemetry came, or the device was not there.")
        return
    parts = sorted(chosen.sums.items(), key=lambda item: -item[1])
    listed = ", ".join(f"{label(column)} {duration(pace.seconds(value))}" for column, value in parts)
    st.markdown(f"Raw spans of this time are gone. In the {duration(chosen.bin_s)} around it: {listed}{pace.unit}.")


def _others(chosen: Chosen, pace: Pace) -> None:
    more = len(chosen.devices) - MOST_MEMBERS
    st.dataframe(
        [{"device": device, "did": _plain(work, pace), "version": work.span.version, "step": work.span.step}
         for device, work in chosen.others],
        hide_index=True,
        height="content" if len(chosen.others) <= 10 else 380,
        key="timeline_members",
        placeholder=DASH,
    )  # fmt: skip
    if more > 0:
        st.caption(f"The first {MOST_MEMBERS} of {len(chosen.devices)} devices; open the rows to see all.")


def _plain(work: Work, pace: Pace) -> str:
    span = work.span
    what = (
        f"idle, {CAUSE_LABELS.get(span.cause or '', '')}"
        if span.kind == "idle"
        else KIND_LABELS.get(span.kind, span.kind)
    )
    role = f"{span.role} " if span.role and span.kind != "idle" else ""
    return f"{role}{what}, {duration(pace.seconds(work.t1 - work.t0))}{pace.unit}"


def _lease(lease: LeaseRow, decisions: tuple[DecisionRow, ...], run_id: str, pace: Pace, clock: PageClock) -> None:
    decision = next((d for d in decisions if d.action == "lend"), decisions[-1] if decisions else None)
    st.markdown(
        f"**Lease {lease.lease}** · {DIRECTION_WORDS[lease.direction]} · devices {device_list(lease.devices)} · "
        f"{literal(lease.state)} · delivered {delivered(lease)}"
    )
    if decision is not None:
        st.markdown(literal(decision_story.told(decision, lease, pace, clock)))
    st.html(f'<div class="where-reason">{escape(lease.reason)}</div>')
    if decision is not None:
        left, right = st.columns(2, gap="medium")
        lines = [(c.name, c.predicted, c.measured) for c in decision_story.compared(lease, decision)]
        left.html(_rows((f"seconds{pace.unit}", "predicted", "measured"), lines))
        inputs = [(what, value) for _, what, value in decision_story.inputs(decision, pace)]
        if inputs:
            right.html(_rows(("made on", ""), inputs))
    _to_decisions(run_id, {LEASE_KEY: str(lease.lease)}, "This lease on the Decisions page")


def _around(decisions: tuple[DecisionRow, ...], run_id: str, pace: Pace, clock: PageClock) -> None:
    st.markdown(f"**Decisions around it**, newest first{pace.badge}")
    rows = [
        (
            clock.time(d.at),
            ACTION_WORDS[d.action] + ("" if d.lease is None else f" · {d.lease}"),
            DIRECTION_WORDS[d.direction],
            "" if d.block is None else f"block {d.block}",
            DASH if d.gain_s is None else f"{seconds(d.gain_s)} s",
            DASH if d.cost_s is None else f"{seconds(d.cost_s)} s",
            d.reason,
        )
        for d in decisions
    ]
    heads = ("time", "what", "direction", "about", f"gain{pace.unit}", f"cost{pace.unit}", "reason")
    st.html(_rows(heads, rows, scroll=True))
    _to_decisions(run_id, {DECISION_KEY: str(decisions[0].id)}, "On the Decisions page")


def _groups(chosen: Chosen, pace: Pace, clock: PageClock) -> None:
    if chosen.work is None or not (chosen.groups or chosen.step):
        return
    step, span = chosen.step, chosen.work.span
    if span.kind in ("rollout", "scoring"):
        head = "Groups that were being generated here"
    elif step is not None:
        head = f"Groups of step {span.step}, which consumed {step.groups}"
        if span.ref and span.ref.startswith("chunk"):
            head += f"; which of them {literal(span.ref)} held is not kept"
    else:
        head = f"Groups of step {span.step}, which is not made yet"
    st.markdown(head)
    if not chosen.groups:
        st.caption("Groups of emulated devices are not kept." if pace.emulated else "None is stored yet.")
        return
    rows = [_group(group, clock) for group in chosen.groups]
    known = [name for name in rows[0] if any(row[name] not in (None, "") for row in rows)]
    st.dataframe(
        [{name: row[name] for name in known} for row in rows],
        hide_index=True,
        height="content" if len(chosen.groups) <= 8 else 300,
        column_config={"prompt": st.column_config.TextColumn(width="large")},
        key="timeline_groups",
        placeholder=DASH,
    )
    if len(chosen.groups) == MOST_GROUPS:
        st.caption(f"At most {MOST_GROUPS} are listed.")


def _group(group: GroupRow, clock: PageClock) -> dict[str, Any]:
    tokens = sum(int(response.get("tokens") or 0) for response in group.responses)
    return {
        "group": group.group_id,
        "item": group.item,
        "state": group.state,
        "version": group.version,
        "lag": group.lag,
        "device": group.device,
        "tokens": count(tokens),
        "reward": group.reward_mean,
        "from": clock.time(group.started_at),
        "to": clock.time(group.finished_at),
        "prompt": " ".join(group.prompt.split())[:200],
    }


def _to_decisions(run_id: str, params: dict[str, str], text: str) -> None:
    st.page_link(
        session.DECISIONS_PAGE, label=text, icon=symbol("rule"), query_params={session.RUN_KEY: run_id, **params}
    )


def _rows(heads: tuple[str, ...], rows: Sequence[tuple[str, ...]], *, scroll: bool = False) -> str:
    """A small table in which every word from elsewhere is escaped."""
    head = "".join(f"<th>{escape(text)}</th>" for text in heads)
    body = "".join("<tr>" + "".join(f"<td>{escape(str(cell))}</td>" for cell in row) + "</tr>" for row in rows)
    css = "where-facts scroll" if scroll else "where-facts"
    table = f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
    return f'<div class="{css}" tabindex="0" role="region" aria-label="{escape(heads[0])}">{table}</div>'
