"""The head of a page: help, who looks and what they may do, title, run picker, status, heartbeat, a link to copy."""

from __future__ import annotations

from collections.abc import Sequence

import streamlit as st

from app import help_view, live_chart, sign_in
from app.access import Setting, access, nobody_may, setting
from app.clock import PageClock, duration
from app.glossary import plain_brief_of, plain_of
from app.markup import literal
from app.modelled import EMULATED, explained, is_emulated, pace_of
from app.runs_table import live_first, state_of
from app.session import data_dir, look_at, now
from app.status import RUN_STATUS, symbol
from storage.database import StorageError
from storage.reader import TelemetryReader
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
    by_id, live = {r.run_id: r for r in runs}, _going_on(runs)
    chosen = right.selectbox(
        "Run",
        ids,
        index=ids.index(run.run_id) if run else None,
        format_func=lambda run_id: _option(by_id[run_id], clock, live=run_id in live),
        placeholder="choose a run",
        key=f"run_picker:{run.run_id if run else ''}",
    )
    if chosen and (run is None or chosen != run.run_id):
        look_at(chosen)
        st.rerun()


def _going_on(runs: Sequence[RunRow]) -> set[str]:
    """Runs that go on, as the status beside the picker has it: one whose engine is silent is interrupted, whatever is
    stored. By what is stored where the engine cannot be read, which the page says."""
    stored = [run for run in runs if run.state not in TERMINAL]
    if not stored:
        return set()
    try:
        with TelemetryReader(data_dir().telemetry_db) as reader:
            engine = reader.engine()
    except StorageError:
        return {run.run_id for run in stored}
    return {run.run_id for run in stored if state_of(run, engine, now()) not in TERMINAL}


def _option(run: RunRow, clock: PageClock, *, live: bool) -> str:
    made = f" · {clock.moment(run.created_at)}" if run.created_at is not None else ""
    marks = ("live · " if live else "") + (f"{EMULATED} · " if is_emulated(run) else "")
    return f"{marks}{run.name} · {run.run_id}{made}"


def status_line(
    run: RunRow, state: str, engine: EngineRow | None, now: float, left_s: float | None, *, deterministic: bool
) -> None:
    """Status badge, EMULATED and deterministic where they apply, progress in steps, time left, heartbeat age, link."""
    told = status_of(run, state, engine, now, left_s, deterministic=deterministic)
    with st.container(key="status_line"):
        live_chart.status_line(told, key=f"status:{run.run_id}")


def status_of(
    run: RunRow, state: str, engine: EngineRow | None, now: float, left_s: float | None, *, deterministic: bool
) -> dict[str, object]:
    """What the status line says, as the page takes it."""
    status = RUN_STATUS[state]
    badges = [_badge(status.word, status.icon, status.colour)]
    if is_emulated(run):
        pace = pace_of(run)
        badges.append(_badge(f"{EMULATED} · {pace.speed}", "science", "violet", explained(pace)))
    elif run.kind and run.kind not in REAL_KINDS:
        badges.append(_badge(run.kind.upper(), "science", "violet"))
    if deterministic:
        badges.append(_badge("deterministic", "fingerprint", "gray", DETERMINISTIC))
    beat = ""
    # of a run that is over it would be that of an engine which has other work; an interrupted one ended with its engine
    if engine is not None and engine.beat_at is not None and (state not in TERMINAL or state == "interrupted"):
        age = max(0.0, now - engine.beat_at)
        beat = f"heartbeat {duration(age) if age >= 1 else 'under 1 s'} ago"
    return {
        "badges": badges,
        "facts": " · ".join(facts(run, None if state in TERMINAL else left_s)),
        "facts_help": plain_brief_of("steps_done", "time_left", "arm", "partition", "staleness"),
        "beat": beat,
        "beat_help": plain_of("heartbeat_age"),
        "said": f"{run.name}: {status.word}",
    }


def _badge(text: str, icon: str, colour: str, told: str = "") -> dict[str, str]:
    return {"text": text, "icon": icon, "colour": colour, "help": told}


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
