"""Live: is my job healthy? Numbers, timeline, attention and learning of one run, and the controls to steer it."""

from __future__ import annotations

from collections.abc import Callable

import streamlit as st

from app import (
    control_view,
    decisions_view,
    detail,
    header,
    history_view,
    live_chart,
    live_view,
    one_click,
    samples_view,
    session,
    states,
)
from app.command_words import History
from app.ledger_view import ledger, logs
from app.live_board import answer, board_parts, default_window, view_of
from app.live_frame import Frame, View, read_frame, refreshed
from app.modelled import LEARNS_NOTHING, is_emulated
from app.runs_table import state_of
from app.status import symbol
from storage.database import StorageError, TelemetryMissing
from storage.reader import TelemetryReader
from storage.records import Command, RunRow
from storage.words import TERMINAL

LEARNING_EVERY_S = 2.0
"""Learning is judged over minutes; six panels redrawn every second would only cost."""

COMMAND_EVERY_S = 0.5
"""The engine takes a command within a quarter of a second, and its sender is looking."""

OTHERS_EVERY_S = 4.0
"""Commands of other people and of the command line."""

LOWER_EVERY_S, LOWER_EVERY = 3.0, 2
"""What is below the timeline is drawn again after so many seconds, and so many refreshes of the timeline, at least."""

WAITING_EVERY_S = 2.0
"""How soon an empty page notices that there is something to show."""

STYLE = """
.st-key-decisions, .st-key-bubbles, .st-key-lost_time, .st-key-commands, .st-key-learning, .st-key-samples,
.st-key-logs {
  content-visibility: auto; contain-intrinsic-size: auto 24rem;
}
[data-testid="stMain"] [data-testid="stElementContainer"][data-stale="true"] { opacity: 1; transition: none; }
"""
"""What is out of sight is not painted: each mark of a chart costs whenever anything on the page is painted anew. What
waits for its refresh does not fade: charts say how old they are."""

TITLE, QUESTION = "Live", "Is my job healthy?"


def read(run_id: str) -> tuple[Frame | None, StorageError | None]:
    """The newest frame, or the last good one and why it is not newer. A run that is over is read once per view."""
    slot = f"_frame:{run_id}"
    last, last_view = st.session_state.get(slot, (None, None))
    now = session.now()
    if last is not None and last.run.state in TERMINAL and view_of(run_id, default_window(last.run)) == last_view:
        return refreshed(last, now), None
    try:
        with TelemetryReader(session.data_dir().telemetry_db) as reader:
            run = reader.run(run_id)
            if run is None:
                return last, None
            view = view_of(run_id, default_window(run))
            frame = read_frame(reader, run, view, now=now, last=last)
    except StorageError as error:
        return last, error
    st.session_state[slot] = (frame, view)
    return frame, None


def mailbox(run_id: str) -> list[Command]:
    """The run's commands, and none when the mailbox cannot be read: the panel says so where it sends."""
    slot = f"_commands:{run_id}"
    try:
        st.session_state[slot] = control_view.commands_of(run_id)
    except StorageError as error:
        st.error(f"Commands cannot be read: {error}", icon=symbol("database_off"))
        st.session_state[slot] = []
    return list(st.session_state[slot])


def history(run_id: str) -> History:
    """What the run's commands, as they were read last, changed, from what to what; nothing before the first frame."""
    kept: tuple[Frame, View] | None = st.session_state.get(f"_frame:{run_id}")
    commands = st.session_state.get(f"_commands:{run_id}", [])
    return History() if kept is None else control_view.history_of(kept[0].run, commands)


def now_part(run_id: str, drawn_state: str) -> None:
    """Status, banners, numbers, timeline and attention: what changes every second."""
    frame, problem = read(run_id)
    commands = history(run_id)
    # a container that is always there: what is above a chart may come and go without the chart being made anew
    above = st.container(key="banners")
    if problem is not None:
        with above:
            states.storage_problem(problem, kept_frame=frame is not None)
    if frame is None:
        return
    if frame.state != drawn_state and problem is None:
        st.rerun()
    clock = session.page_clock()
    # made before anything is sent: the browser looks through the page for each batch that comes
    known = bool(frame.devices) or frame.as_of is not None
    timeline = live_view.timeline_chart(frame, commands, clock) if known else None
    parts = board_parts(frame, clock, timeline)
    with above:
        live_view.banners(frame, clock)
    events = live_chart.board(parts, timeline, key=live_view.timeline_key(run_id))
    answer(frame, timeline, events)


def lower_part(run_id: str, drawn_open: bool, drawn_others: tuple[str, ...]) -> None:
    """What changes more slowly, in one part: each run of a part costs the browser a look at the whole page."""
    kept: tuple[Frame, View] | None = st.session_state.get(f"_frame:{run_id}")
    if kept is None:
        return
    frame, commands = kept[0], mailbox(run_id)
    if control_view.any_open(commands) != drawn_open or one_click.others(run_id) != drawn_others:
        st.rerun()
    changes, clock = history(run_id), session.page_clock()
    # across the page, for its reasons are sentences
    with st.container(border=True, key="decisions"):
        decisions_view.decisions(frame, clock)
    left, right = st.columns([5, 2], gap="small")
    with left, st.container(border=True, height="stretch", key="bubbles"):
        history_view.heatmap(frame, changes, clock)
    with right, st.container(border=True, height="stretch", key="lost_time"):
        history_view.lost(frame)
    left, right = st.columns([2, 3], gap="small")
    with left, st.container(border=True, height="stretch", key="control"):
        control_view.control_panel(frame.run, steerable_state(frame), commands)
    with right, st.container(border=True, height="stretch", key="commands"):
        live_view.newest_commands(changes, clock)
    if not is_emulated(frame.run):
        with st.container(border=True, key="learning"):
            history_view.how_it_learns(frame, changes, clock)


def steerable_state(frame: Frame) -> str:
    """The state that buttons go by."""
    return control_view.steerable(frame.run, frame.state, frame.engine, silent=frame.engine_silent)


def samples_part(run: RunRow) -> None:
    """Prompts and answers, read when the reader asks."""
    try:
        with TelemetryReader(session.data_dir().telemetry_db) as reader:
            samples_view.samples(reader, run, session.page_clock())
    except StorageError as error:
        st.error(str(error), icon=symbol("database_off"))


def every(seconds: float | None, part: Callable[..., None], *arguments: object) -> None:
    """Run one part of the page again by itself."""
    st.fragment(part, run_every=seconds)(*arguments)


def condition() -> tuple[str, ...]:
    """What kind of page there is to show when there is no run to show; compared, to notice when that changes."""
    try:
        with TelemetryReader(session.data_dir().telemetry_db) as reader:
            named = session.run_in_url()
            return (
                "runs",
                *(r.run_id for r in reader.runs(limit=states.LISTED_RUNS)),
                str(named and reader.run(named)),
            )
    except StorageError as error:
        return type(error).__name__, str(error)


def waiting_part(drawn: tuple[str, ...]) -> None:
    """Draws the page again as soon as there is something else to show."""
    if condition() != drawn:
        st.rerun()


def control_interval(live: bool, waits: bool) -> float | None:
    """A command that waits is watched closely; otherwise only other senders could change what is shown."""
    return None if not live else COMMAND_EVERY_S if waits else OTHERS_EVERY_S


def lower_interval(interval: float | None, waits: bool) -> float | None:
    """Of what is below the timeline, which is drawn every `interval` seconds, or None once the run is over."""
    if interval is None:
        return None
    return COMMAND_EVERY_S if waits else max(LOWER_EVERY_S, LOWER_EVERY * interval)


def without_run(
    named: str | None, title: str = TITLE, question: str = QUESTION, *, here: str = session.LIVE_PAGE
) -> None:
    """No run to show: why, and what to do. here: the page that is shown, where links to other runs stay."""
    drawn = condition()
    try:
        with TelemetryReader(session.data_dir().telemetry_db) as reader:
            engine, runs = reader.engine(), reader.runs()
    except TelemetryMissing as error:
        header.title_and_picker(title, question, [], None, session.page_clock())
        states.no_database(error)
    except StorageError as error:
        header.title_and_picker(title, question, [], None, session.page_clock())
        states.storage_problem(error, kept_frame=False)
    else:
        header.title_and_picker(title, question, runs, None, session.page_clock())
        if named is not None:
            states.unknown_run(
                named, [(run, state_of(run, engine, session.now())) for run in runs], session.page_clock(), page=here
            )
        else:
            states.no_runs(session.data_dir().root)
    every(WAITING_EVERY_S, waiting_part, drawn)


def chosen(named: str | None) -> tuple[list[RunRow], RunRow | None, int]:
    """The runs to pick from, the one to show, and its devices. Raises what the reader raises."""
    with TelemetryReader(session.data_dir().telemetry_db) as reader:
        runs = reader.runs()
        run = session.choose_run(runs, named) or (reader.run(named) if named else None)
        return runs, run, len(reader.devices(run.run_id)) if run else 0


def page() -> None:
    """The whole page, top to bottom."""
    named = session.run_in_url()
    try:
        runs, run, devices = chosen(named)
    except StorageError:
        kept: tuple[Frame, View] | None = st.session_state.get(f"_frame:{named}")
        if kept is None:
            without_run(named)
            return
        # the last picture stays; the part below says what is wrong with every refresh
        run, runs, devices = kept[0].run, [kept[0].run], len(kept[0].devices)
    if run is None:
        without_run(named)
        return
    st.html(f"<style>{decisions_view.STYLE}{STYLE}</style>")
    header.title_and_picker(TITLE, QUESTION, runs, run, session.page_clock())
    session.look_at(run.run_id)
    frame, _ = read(run.run_id)
    live = frame is None or run.state not in TERMINAL
    interval = detail.refresh_interval_s(devices) if live else None
    # while a run goes on, what is below looks for others too: each part more that runs is a look at the whole page
    others = one_click.others(run.run_id)
    every(None if live and not one_click.waits() else one_click.interval_s(), one_click.switch, run.run_id)
    waits = control_view.any_open(mailbox(run.run_id))
    every(interval, now_part, run.run_id, frame.state if frame else run.state)
    every(lower_interval(interval, waits), lower_part, run.run_id, waits, others)
    if is_emulated(run):
        with st.container(key="learns_nothing"):
            st.caption(LEARNS_NOTHING)
    else:
        with st.expander("Samples: prompts, answers and rewards", icon=symbol("forum"), expanded=True, key="samples"):
            every(None, samples_part, run)
    ledger(frame, session.page_clock())
    with st.expander("Worker log", icon=symbol("article"), key="logs", on_change="rerun") as expander:
        if expander.open:
            every(LEARNING_EVERY_S if live else None, logs, run.run_id, session.page_clock())
