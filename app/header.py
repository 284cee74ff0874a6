"""The head of a page: help, who looks and what they may do, title, run picker, status, heartbeat, a link to copy."""

from __future__ import annotations

from collections.abc import Sequence

import streamlit as st

from app import help_view, sign_in
from app.access import Setting, access, nobody_may, setting
from app.clock import PageClock, duration
from app.glossary import brief_of, help_of
from app.markup import literal
from app.modelled import EMULATED, explained, is_emulated, pace_of
from app.runs_table import live_first
from app.session import look_at
from app.status import RUN_STATUS, symbol
from storage.records import EngineRow, RunRow
from storage.words import TERMINAL

REAL_KINDS = ("cpu", "cuda")
"""Runs of any other kind must never be taken for measurements."""

DETERMINISTIC = (
    "Which device computed what makes no difference to the parameters: at staleness 0 every arm gives bitwise the "
    "same. It is slower for that."
)

# in the bar of the pages, where accounts are looked for; the wrapper too, or its gap would stay behind
WHO_STYLE = """
[data-testid="stLayoutWrapper"]:has(> .st-key-who) {
  position: fixed; top: .8rem; right: 3.6rem; width: auto; z-index: 999991;
}
.st-key-who { align-items: center; }
.st-key-who button { min-height: 2rem; padding: .1rem .6rem; }
.st-key-who button:is(:hover, :focus, :active, [aria-expanded="true"]) { color: var(--st-link-color); }
.st-key-who button p { max-width: 15rem; overflow: hidden; text-overflow: ellipsis; white-space: nowrap; }
"""

# the address changes only when the reader clicks, so this needs no data
_COPY = """
export default function({ parentElement }) {
  if (parentElement.querySelector("button")) return;
  const button = document.createElement("button");
  const show = (text) => { button.textContent = text; };
  button.type = "button";
  button.title = "Copy the address of this run";
  button.style.cssText = "font: inherit; font-size: .85rem; color: var(--st-link-color); background: none; border: 0;" +
    "padding: 0; cursor: pointer; white-space: nowrap;";
  show("Copy link");
  button.onclick = async () => {
    try { await navigator.clipboard.writeText(window.location.href); show("Copied"); }
    catch { window.prompt("Copy this address", window.location.href); }
    setTimeout(() => show("Copy link"), 2000);
  };
  parentElement.append(button);
}
"""

# the one thing that is read out by itself: a state that changed, never a number that ticks
_SAY = """
export default function({ parentElement, data }) {
  let said = parentElement.querySelector("[role=status]");
  if (!said) {
    said = document.createElement("span");
    said.setAttribute("role", "status");
    said.style.cssText = "position: absolute; width: 1px; height: 1px; overflow: hidden; clip-path: inset(50%);";
    parentElement.append(said);
  }
  if (said.textContent !== data.text) said.textContent = data.text;
}
"""
_say = st.components.v2.component("bidirl_say", js=_SAY, isolate_styles=False)
_copy_link = st.components.v2.component("bidirl_copy_link", js=_COPY, isolate_styles=False)


def who_looks() -> None:
    """Who the visitor is and what they may do, with signing in and out behind it; and why nobody may command."""
    found = access()
    st.html(f"<style>{WHO_STYLE}</style>")
    with st.container(key="who", width="content", horizontal=True, gap="small"):
        help_view.button()
        role, icon = ("operator", "verified_user") if found.may_command else ("viewer", "visibility")
        label = f"{literal(found.who)} · {role}" if found.who else role.capitalize()
        with st.popover(label, icon=symbol(icon), type="tertiary", key="who_popover"):
            sign_in.panel(found)
    if told := warning(setting()):
        st.warning(literal(told), icon=symbol("visibility_lock"))


def warning(known: Setting) -> str:
    """What every reader of the page is told about commanding: what is misconfigured, or that nobody may."""
    said = [f"{problem}." for problem in known.problems]
    if reason := nobody_may(known):
        said.insert(0, f"View-only, for everybody. {reason}")
    return " ".join(said)


def title_and_picker(title: str, question: str, runs: Sequence[RunRow], run: RunRow | None, clock: PageClock) -> None:
    """Who looks, then the title on the left; on the right the picker, which writes the run into the URL."""
    who_looks()
    left, right = st.columns([5, 4], vertical_alignment="bottom", gap="medium")
    with left:
        st.title(title, anchor=False)
        st.caption(question)
    if not runs:
        return
    ids = [r.run_id for r in live_first(runs)]
    by_id = {r.run_id: r for r in runs}
    chosen = right.selectbox(
        "Run",
        ids,
        index=ids.index(run.run_id) if run else None,
        format_func=lambda run_id: _option(by_id[run_id], clock),
        placeholder="choose a run",
        key=f"run_picker:{run.run_id if run else ''}",
    )
    if chosen and (run is None or chosen != run.run_id):
        look_at(chosen)
        st.rerun()


def _option(run: RunRow, clock: PageClock) -> str:
    made = f" · {clock.moment(run.created_at)}" if run.created_at is not None else ""
    marks = ("" if run.state in TERMINAL else "live · ") + (f"{EMULATED} · " if is_emulated(run) else "")
    return f"{marks}{run.name} · {run.run_id}{made}"


def status_line(
    run: RunRow, state: str, engine: EngineRow | None, now: float, left_s: float | None, *, deterministic: bool
) -> None:
    """Status badge, EMULATED and deterministic where they apply, progress in steps, time left, heartbeat age, link."""
    with st.container(horizontal=True, vertical_alignment="center", gap="medium", key="status_line"):
        status = RUN_STATUS[state]
        st.badge(status.word, icon=symbol(status.icon), color=status.colour)
        if is_emulated(run):
            pace = pace_of(run)
            st.badge(f"{EMULATED} · {pace.speed}", icon=symbol("science"), color="violet", help=explained(pace))
        elif run.kind and run.kind not in REAL_KINDS:
            st.badge(run.kind.upper(), icon=symbol("science"), color="violet")
        if deterministic:
            st.badge("deterministic", icon=symbol("fingerprint"), color="gray", help=DETERMINISTIC)
        told = brief_of("steps_done", "time_left", "arm", "partition", "staleness")
        st.markdown(" · ".join(facts(run, left_s)), width="content", help=told)
        if engine is not None and engine.beat_at is not None:
            age = max(0.0, now - engine.beat_at)
            beat = f"{symbol('favorite')} heartbeat {duration(age) if age >= 1 else 'under 1 s'} ago"
            st.caption(beat, width="content", help=help_of("heartbeat_age"))
        with st.container(key="copy_link", width="content"):
            _copy_link(key="copy_link_button", width="content")
        with st.container(key="said_state", width="content"):
            _say(key=f"said_state:{run.run_id}", data={"text": f"{run.name}: {status.word}"}, width="content")


def facts(run: RunRow, left_s: float | None) -> list[str]:
    """What a run is and how far it got, in short pieces."""
    found = []
    if run.steps_target is not None:
        done = (run.start_step or 0) + (run.steps or 0)
        found.append(f"step **{done} / {run.steps_target}**")
    if left_s:
        found.append(f"**{duration(left_s)}** left")
    found.append(run.arm or "–")
    if run.partition:
        found.append(f"partition {run.partition}")
    if run.staleness is not None:
        found.append(f"staleness {run.staleness:g}")
    return found
