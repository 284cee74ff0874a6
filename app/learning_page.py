"""Learning: does it learn, and how fast? Learning health beside speed, over the same axis, and the samples behind it.

steps, evals, idle shares --> Seen --> panels, findings
                                         | a click on a step
                                         v
                                      samples of that step
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import streamlit as st

from app import detail, header, samples_view, session, states
from app.card import Card
from app.figures.panels import panels
from app.glossary import helps_of
from app.key_figures import seconds_left
from app.learning_health import health
from app.learning_panels import SPLITS, Seen, legend, of_learning, of_speed, parts
from app.live_chart import Chart, chart, kept_chart, live_chart
from app.live_page import LEARNING_EVERY_S, chosen, every, without_run
from app.markup import literal
from app.modelled import LEARNS_NOTHING
from app.picture import Picture, read_kept
from app.run_job import deterministic, held_out_told
from app.runs_table import state_of
from app.status import symbol
from app.step_speed import AXES, axis, edges, idle_shares, tokens_per_s
from storage.database import StorageError
from storage.reader import TelemetryReader
from storage.records import EvalRow, RunRow, StepRow
from storage.words import TERMINAL

TITLE, QUESTION = "Learning", "Does it learn, and how fast?"

WANTED_STEP = "_learning_wanted_step"
"""Slot of the step that was clicked on, until the field of the samples has taken it: what the browser knows of that
field is older and would win."""

UNSETTLED_STEPS = 5
"""Newest steps whose idle shares are read again: their last spans may not be stored yet."""

TERMS = ("reward", "held_out_accuracy", "control_accuracy", "response_length", "loss", "entropy", "grad_norm",
         "learning_rate", "no_signal_share", "step_tokens_per_s", "step_idle_share")  # fmt: skip
CORRECTION_TERMS = ("mismatch_kl", "capped_share", "clip_share", "ess", "by_lag", "by_role")
"""What the panels show."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Frame(Picture):
    """What the page shows of a run at one moment."""

    devices: int
    """How many."""
    steps: list[StepRow]
    """In order."""
    evals: list[EvalRow]
    """In order."""
    idle: list[float | None]
    """Idle share of each step."""


def read(run_id: str) -> tuple[Frame | None, StorageError | None]:
    """The newest frame, or the last good one and why it is not newer. A run that is over is read once."""
    slot = f"_learning_frame:{run_id}"
    last: Frame | None = st.session_state.get(slot)
    now = session.now()
    if last is not None and last.run.state in TERMINAL:
        return replace(last, now=now), None
    return read_kept(slot, lambda reader: _look(reader, run_id, last, now))


def _look(reader: TelemetryReader, run_id: str, last: Frame | None, now: float) -> Frame | None:
    run, engine = reader.run(run_id), reader.engine()
    if run is None:
        return None
    steps = _steps(reader, run_id, last)
    return Frame(
        run=run,
        engine=engine,
        state=state_of(run, engine, now),
        now=now,
        devices=len(reader.devices(run_id)),
        steps=steps,
        evals=reader.evals(run_id),
        idle=_idle(reader, run, steps, last),
    )


def _steps(reader: TelemetryReader, run_id: str, last: Frame | None) -> list[StepRow]:
    """All steps, reading only those that are new and the newest, which is stored again with what was learnt later."""
    if last is None or not last.steps:
        return reader.steps(run_id)
    newest = last.steps[-1].step
    return [*last.steps[:-1], *reader.steps(run_id, since=newest)]


def _idle(reader: TelemetryReader, run: RunRow, steps: list[StepRow], last: Frame | None) -> list[float | None]:
    """Idle share of each step, reading only those that may have changed."""
    same = last is not None and last.steps[:1] == steps[:1]
    kept = last.idle[: max(0, len(last.idle) - UNSETTLED_STEPS)] if last is not None and same else []
    if last is not None and len(steps) == len(last.steps) and run.state not in TERMINAL and same:
        return last.idle
    return [*kept, *idle_shares(reader, run.run_id, edges(run, steps)[len(kept) :])]


def head_part(run_id: str, drawn_state: str) -> None:
    """Status, banners, and what an operator should know about learning."""
    frame, problem = read(run_id)
    with st.container(key="banners"):
        if problem is not None:
            states.storage_problem(problem, kept_frame=frame is not None)
    if frame is None:
        return
    if frame.state != drawn_state and problem is None:
        st.rerun()
    run = frame.run
    rest = seconds_left(run, frame.steps) if frame.live else None
    header.status_line(run, frame.state, frame.engine, frame.now, rest, deterministic=deterministic(run.job))
    with st.container(key="notices"):
        if frame.engine_silent:
            states.engine_silent(frame.engine, None, frame.now, session.page_clock(), session.data_dir().root)
        if frame.pace.emulated:
            st.info(f"**{LEARNS_NOTHING}** Speed, idle time and lag are shown.", icon=symbol("science"))
        else:
            findings(frame)


def findings(frame: Frame) -> None:
    """Cards, or one quiet line."""
    if not frame.steps:
        return
    cards = health(frame.steps)
    columns = st.columns(min(3, len(cards)), gap="small") if cards else []
    for number, card in enumerate(cards):
        with columns[number % 3], st.container(key=f"health_{card.key}"):
            _card(card)
    if not cards:
        st.success(
            "**Learning looks healthy** · mismatch KL, effective sample size, signal, entropy, gradient and reward are "
            "within their limits.",
            icon=symbol("check_circle"),
        )


def _card(card: Card) -> None:
    show = {"error": st.error, "warning": st.warning}.get(card.tone, st.info)
    show(f"**{literal(card.title)}.** {literal(card.text)}", icon=symbol(card.icon))


def charts_part(run_id: str) -> None:
    """The panels with their axis; a click on a step asks for its samples."""
    frame: Frame | None = st.session_state.get(f"_learning_frame:{run_id}")
    if frame is None:
        return
    pace = frame.pace
    with st.container(horizontal=True, vertical_alignment="center", horizontal_alignment="distribute"):
        st.markdown(
            f"**Learning beside speed**{pace.badge}" if not pace.emulated else f"**Speed**{pace.badge}",
            width="content",
            help=helps_of(*TERMS) if not pace.emulated else helps_of("step_tokens_per_s", "step_idle_share"),
        )
        with st.container(horizontal=True, vertical_alignment="center", width="content"):
            kind = st.segmented_control(
                "Axis", list(AXES), default="step", required=True, format_func=AXES.__getitem__, key="learning_axis",
                label_visibility="collapsed",
            )  # fmt: skip
            split = "" if pace.emulated else _split()
    if not frame.steps:
        told = "Charts begin with the first step." if frame.live else "This run made no step."
        st.caption(told)
        return
    if split and not parts(frame.steps, split):
        st.caption(
            "No step of this run says which trainer computed its groups: it was made by an earlier version."
            if split == "by_role"
            else "No step of this run tells its figures apart by lag."
        )
    key = f"learning_panels:{run_id}:{kind}:{split}"
    stamp = (len(frame.steps), frame.steps[-1], len(frame.evals), frame.live, tuple(frame.idle[-UNSETTLED_STEPS:]))
    events = live_chart(kept_chart(key, stamp, lambda: _chart(frame, kind or "step", split)), key=key)
    if events.click and not pace.emulated:
        samples_of(events.click)


def _split() -> str:
    chosen_split = st.selectbox(
        "Mismatch, capped and sample size",
        list(SPLITS),
        format_func=SPLITS.__getitem__,
        key="learning_split",
        width=190,
        label_visibility="collapsed",
        help=helps_of(*CORRECTION_TERMS),
    )
    return chosen_split or ""


def samples_of(click: dict[str, object]) -> None:
    """Show the samples of the step that was clicked on."""
    step = click.get("customdata")
    if isinstance(step, list) and step:
        step = step[0]
    if isinstance(step, int | float) and not isinstance(step, bool):
        st.session_state[WANTED_STEP] = str(round(step))
        st.rerun()


def _chart(frame: Frame, kind: str, split: str) -> Chart:
    pace, ends = frame.pace, edges(frame.run, frame.steps)
    seen = Seen(
        steps=frame.steps,
        evals=frame.evals,
        axis=axis(kind, frame.steps, ends, frame.devices, pace),
        speed=tokens_per_s(frame.steps, ends, pace),
        idle=frame.idle,
    )
    shown = of_speed(seen, pace) if pace.emulated else of_learning(seen, split, pace)
    figure = panels(
        shown,
        axis={},
        title=seen.axis.title,
        index=AXES[kind],
        revision=f"learning-{kind}",
        legend=legend(frame.steps, split),
    )
    told = ", ".join(f"{panel.name} {panel.latest}" for panel in shown)
    note = "faint: single steps, strong: mean of ten"
    if not pace.emulated:
        note += " · click a step to see its samples"
        if told_of := held_out_told(frame.run.job):
            note += f" · {told_of}"
    if split:
        note += " · solid: capped, dotted: clipped"
    return chart(
        figure,
        label=f"{'Emulated speed' if pace.emulated else 'Learning beside speed'} over {len(frame.steps)} steps: {told}",
        as_of=frame.steps[-1].t_end,
        frozen="" if frame.live else "whole run",
        note=note,
        clicks=not pace.emulated,
    )


def excluded(run: RunRow, steps: list[StepRow]) -> None:
    """Groups that taught nothing: without signal, and excluded by reason."""
    groups, silent = sum(s.groups for s in steps), sum(s.no_signal for s in steps)
    told = [f"**{silent:,}** of {groups:,} consumed groups carried no signal" if groups else "no group was consumed"]
    reasons = sorted(run.excluded.items(), key=lambda item: -item[1])
    if reasons:
        told += [f"**{number:,}** excluded: {literal(name.replace('_', ' '))}" for name, number in reasons]
    else:
        told.append("none was excluded")
    st.markdown(" · ".join(told), help=helps_of("no_signal_groups", "excluded_groups"))


def samples_part(run: RunRow) -> None:
    """Prompts and answers, read when the reader asks."""
    frame: Frame | None = st.session_state.get(f"_learning_frame:{run.run_id}")
    if frame is not None:
        excluded(frame.run, frame.steps)
    if WANTED_STEP in st.session_state:
        st.session_state["samples_step"] = st.session_state.pop(WANTED_STEP)
    try:
        with TelemetryReader(session.data_dir().telemetry_db) as reader:
            samples_view.samples(reader, run, session.page_clock())
    except StorageError as error:
        st.error(literal(str(error)), icon=symbol("database_off"))


def page() -> None:
    """The whole page, top to bottom."""
    named = session.run_in_url()
    try:
        runs, run, devices = chosen(named)
    except StorageError:
        kept: Frame | None = st.session_state.get(f"_learning_frame:{named}")
        runs, run, devices = ([kept.run], kept.run, kept.devices) if kept else ([], None, 0)
    frame = read(run.run_id)[0] if run is not None else None
    if run is None or frame is None:
        without_run(named, TITLE, QUESTION)
        return
    header.title_and_picker(TITLE, QUESTION, runs, run, session.page_clock())
    session.look_at(run.run_id)
    interval = max(LEARNING_EVERY_S, detail.refresh_interval_s(devices)) if frame.live else None
    every(interval, head_part, run.run_id, frame.state)
    with st.container(border=True, key="learning"):
        every(interval, charts_part, run.run_id)
    if not frame.pace.emulated:
        with st.container(border=True, key="samples"):
            st.markdown("**Samples** · prompts, answers and rewards", help=helps_of("group_reward", "group_lag"))
            every(None, samples_part, run)
