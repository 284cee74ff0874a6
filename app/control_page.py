"""Control: what will happen if I change X? Settings of a running job, their predicted effect, and the log of commands.

    form --Review--> prediction --Confirm--> mailbox --engine--> answer --steps--> measured effect

Each part of the page refreshes by itself; the form does not, so that nothing is taken from under a hand.
"""

from __future__ import annotations

from dataclasses import dataclass

import streamlit as st

from app import control_form, control_log, control_review, control_view, detail, header, prediction, session, states
from app.command_words import History, began_with
from app.governing import asked_of, lines
from app.key_figures import seconds_left
from app.live_page import chosen, control_interval, every, without_run
from app.markup import literal
from app.modelled import Pace, pace_of
from app.picture import Picture, read_kept
from app.run_job import deterministic
from app.runs_table import state_of
from app.status import symbol
from app.wanted import job_now
from engine.config.whatif import idle_shares
from storage.database import StorageError
from storage.liveness import is_silent
from storage.reader import TelemetryReader
from storage.records import Command, DeviceRow, LeaseRow, StepRow

TITLE, QUESTION = "Control", "What will happen if I change X?"

SPANS_KEPT = 200
"""Of time whose idle shares a session keeps: two for each of a hundred changes."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Seen(Picture):
    """What the page shows of a run at one moment. Its state is what can be steered: the stored one while its engine is
    merely silent, else what that means now."""

    shown_state: str
    """The effective state."""
    commands: list[Command]
    """Newest first."""
    history: History
    """What they changed."""

    @property
    def drawn(self) -> tuple[object, ...]:
        """What the parts that do not refresh were drawn from: a change of it draws the page again."""
        settings = tuple((self.run.settings or {}).items())
        return self.state, self.shown_state, self.run.config_version, settings, control_view.any_open(self.commands)


def read(run_id: str) -> tuple[Seen | None, StorageError | None]:
    """What there is now, or the last good picture and why it is not newer."""
    return read_kept(f"_control_seen:{run_id}", lambda reader: _look(reader, run_id))


def _look(reader: TelemetryReader, run_id: str) -> Seen | None:
    run, engine = reader.run(run_id), reader.engine()
    if run is None:
        return None
    commands, now = control_view.commands_of(run_id), session.now()
    shown = state_of(run, engine, now)
    silent = is_silent(engine.beat_at if engine else None, now)
    return Seen(
        run=run,
        engine=engine,
        state=control_view.steerable(run, shown, engine, silent=silent),
        shown_state=shown,
        now=now,
        commands=commands,
        history=control_view.history_of(run, commands),
    )


def head_part(run_id: str, drawn: tuple[object, ...]) -> None:
    """Status and banners; draws the page again when something was changed that the other parts were drawn from."""
    seen, problem = read(run_id)
    with st.container(key="banners"):
        if problem is not None:
            states.storage_problem(problem, kept_frame=seen is not None)
    if seen is None:
        return
    if problem is None and seen.drawn != drawn:
        st.rerun()
    steps = _steps(run_id)
    rest = seconds_left(seen.run, steps) if seen.live else None
    header.status_line(
        seen.run, seen.shown_state, seen.engine, seen.now, rest, deterministic=deterministic(seen.run.job)
    )
    with st.container(key="notices"):
        if seen.engine_silent:
            states.engine_silent(seen.engine, None, seen.now, session.page_clock(), session.data_dir().root)
            st.caption(f"A command that no engine takes within {session.COMMAND_EXPIRES_S / 60:.0f} minutes expires.")
        allowed, lacks = session.may_command()
        if not allowed:
            st.info(f"**You see and do not command** · {literal(lacks)}", icon=symbol("visibility_lock"))


def _steps(run_id: str) -> list[StepRow]:
    """All steps of a run, reading only those that are new; what was read last when they cannot be read."""
    slot = f"_control_steps:{run_id}"
    known: list[StepRow] = st.session_state.get(slot, [])
    since = known[-1].step + 1 if known else 0
    try:
        with TelemetryReader(session.data_dir().telemetry_db) as reader:
            known = [*known, *reader.steps(run_id, since=since)]
    except StorageError:
        return known
    st.session_state[slot] = known
    return known


def form_part(run_id: str) -> None:
    """The form, or why there is none."""
    seen, _ = read(run_id)
    if seen is None:
        return
    run = seen.run
    job = job_now(run)
    if seen.live and run.arm != "colocated" and job is not None:
        control_form.form(run, seen.state, job, asked_of(run, began_with(run)))
        return
    st.markdown(f"**Change settings**{pace_of(run).badge}")
    if not seen.live:
        st.caption("The run is over; there is nothing left to steer.")
        control_view.go_on(run, seen.state)
    elif run.arm == "colocated":
        st.info(
            "**A colocated run has no pools** · its staleness is 0 by construction, and there is nothing to split or "
            "to lend. It can be paused, resumed and stopped.",
            icon=symbol("join"),
        )
    else:
        st.warning(
            "The run's job was written for another version of the program, so its settings cannot be checked here.",
            icon=symbol("data_object"),
        )


def side_part(run_id: str) -> None:
    """What was asked for against what is in effect, and the buttons."""
    seen, _ = read(run_id)
    if seen is None:
        return
    run, pace = seen.run, pace_of(seen.run)
    asked = asked_of(run, began_with(run))
    with st.container(border=True, key="governs"):
        st.markdown(f"**Asked for and in effect**{pace.badge}")
        if asked:
            devices, leases = _places(run_id)
            st.html(
                control_log.governs(
                    lines(
                        run,
                        asked,
                        found=seen.history,
                        devices=devices,
                        steps=_steps(run_id),
                        leases=leases,
                        pace=pace,
                    )
                )
            )
        else:
            st.caption("The run's job cannot be read by this version of the program.")
    if not seen.live:
        return
    with st.container(border=True, key="control"):
        st.markdown("**Steer**")
        control_view.buttons(run, seen.state, seen.commands, seen.history)
        control_view.told_why()


def _places(run_id: str) -> tuple[list[DeviceRow], list[LeaseRow]]:
    """Devices and open leases; none when they cannot be read, which the head of the page says."""
    try:
        with TelemetryReader(session.data_dir().telemetry_db) as reader:
            return reader.devices(run_id), reader.leases_open(run_id)
    except StorageError:
        return [], []


def outcome_part(run_id: str) -> None:
    """What became of the commands that this session sent last, or of the newest one of anybody."""
    seen, _ = read(run_id)
    if seen is None or not seen.live:
        return
    by_id = seen.history.by_id()
    newest = seen.commands[0].id if seen.commands else None
    sent = tuple(i for i in st.session_state.get(control_review.sent_slot(seen.run.run_id), ()) if i in by_id)
    shown = sent if sent and newest == sent[-1] else () if newest is None else (newest,)
    news = [number for number in shown if control_view.worth_telling(by_id[number].command, seen.now)]
    if news:
        with st.container(key="last_command"):
            for number in news:
                control_view.outcome(by_id[number])


def review_part(run_id: str) -> None:
    """The change that waits to be confirmed."""
    review = control_review.of(run_id)
    seen, _ = read(run_id)
    if review is None or seen is None:
        return
    with st.container(border=True, key="control_review_card"):
        control_review.review_card(seen.run, review)


def log_part(run_id: str) -> None:
    """Every command with what it did."""
    seen, _ = read(run_id)
    if seen is None:
        return
    pace, steps = pace_of(seen.run), _steps(run_id)
    slot = f"_control_measured:{run_id}"
    stamp = (len(steps), tuple((c.id, c.state) for c in seen.commands))
    kept = st.session_state.get(slot)
    if kept is None or kept[0] != stamp:
        kept = (stamp, _measured(run_id, steps, seen.commands, pace))
        st.session_state[slot] = kept
    with st.container(border=True, key="commands"):
        control_log.command_log(seen.history, kept[1], session.page_clock(), pace, live=seen.live)


def _measured(run_id: str, steps: list[StepRow], commands: list[Command], pace: Pace) -> dict[int, prediction.Measured]:
    """What the commands did; without idle time where that cannot be read."""
    shares: dict[tuple[float, float], prediction.Shares] = st.session_state.setdefault(f"_control_idle:{run_id}", {})
    if len(shares) > SPANS_KEPT:
        shares.clear()
    try:
        with TelemetryReader(session.data_dir().telemetry_db) as reader:

            def idle(begin: float, end: float) -> prediction.Shares:
                if (begin, end) not in shares:
                    shares[begin, end] = idle_shares(reader.kind_seconds(run_id, begin, end))
                return shares[begin, end]

            return prediction.measured(steps, commands, pace, idle=idle)
    except StorageError:
        return prediction.measured(steps, commands, pace)


def page() -> None:
    """The whole page, top to bottom."""
    named = session.run_in_url()
    try:
        runs, run, devices = chosen(named)
    except StorageError:
        kept: Seen | None = st.session_state.get(f"_control_seen:{named}")
        runs, run, devices = ([kept.run], kept.run, 0) if kept else ([], None, 0)
    seen = read(run.run_id)[0] if run is not None else None
    if run is None or seen is None:
        without_run(named, TITLE, QUESTION, here=session.CONTROL_PAGE)
        return
    st.html(f"<style>{control_log.STYLE}</style>")
    header.title_and_picker(TITLE, QUESTION, runs, run, session.page_clock())
    session.look_at(run.run_id)
    interval = detail.refresh_interval_s(devices) if seen.live else None
    soon = control_interval(seen.live, control_view.any_open(seen.commands))
    every(interval, head_part, run.run_id, seen.drawn)
    left, right = st.columns([5, 6], gap="small")
    with left, st.container(border=True, height="stretch", key="control_form"):
        every(None, form_part, run.run_id)
        every(soon, outcome_part, run.run_id)
    with right:
        every(soon, side_part, run.run_id)
    every(None, review_part, run.run_id)
    every(soon, log_part, run.run_id)
