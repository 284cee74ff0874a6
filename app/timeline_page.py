"""Timeline: where is time lost? Any window of a run that is live or long over, down to single spans and decisions.

    URL --read_view--> View --read_scene--> Scene --> charts, sums, worst bubbles
     ^                                                  |
     +---- put: a control, a zoom, a click -------------+

The URL holds every choice. The controls are drawn once a run of the script; what changes by itself refreshes below.
"""

from __future__ import annotations

from dataclasses import replace

import streamlit as st

from app import control_view, detail, header, session, states, timeline_chosen, timeline_lost
from app.command_words import History
from app.key_figures import seconds_left
from app.ledger_view import distrusted
from app.live_page import chosen, every, without_run
from app.markup import literal
from app.modelled import pace_of
from app.price import read_price
from app.run_job import deterministic
from app.runs_table import state_of
from app.status import symbol
from app.timeline_cards import chosen_card, heatmap_card, read_chosen, timeline_card
from app.timeline_controls import controls, of_url, put, written_since, zoomed
from app.timeline_frame import Scene, read_scene
from app.timeline_url import SUMS, View
from app.timeline_worst import EVERY_S, Worst, read_worst
from storage.database import StorageError
from storage.reader import TelemetryReader
from storage.records import RunRow
from storage.words import TERMINAL

TITLE, QUESTION = "Timeline", "Where is time lost?"

LATE_S = 8.0
"""Workers report about every second; telemetry this old while the engine beats is late."""


def default_window(run: RunRow) -> str:
    """Of a live run the last minutes, of one played faster the last one; one that is over is looked at as a whole."""
    if run.state in TERMINAL:
        return "all"
    return "1m" if pace_of(run).rate(1.0) < 1 else "5m"


def read(run_id: str, view: View) -> tuple[Scene | None, StorageError | None]:
    """The newest scene, or the last good one and why it is not newer. A run that is over is read once per view, and
    what the page has just read is not read again by its parts."""
    slot = f"_scene:{run_id}"
    last: Scene | None = st.session_state.get(slot)
    fresh = st.session_state.pop(f"_scene_fresh:{run_id}", False)
    if last is not None and last.view == view and (fresh or last.run.state in TERMINAL):
        return last, None
    try:
        with TelemetryReader(session.data_dir().telemetry_db) as reader:
            run = reader.run(run_id)
            if run is None or (last is not None and last.final and (last.view, last.run.state) == (view, run.state)):
                return last, None
            scene = read_scene(reader, run, view, now=session.now(), last=last)
    except StorageError as error:
        return last, error
    st.session_state[slot] = scene
    return scene, None


def head_part(run_id: str, drawn_state: str) -> None:
    """Status and banners; draws the page again when the run's state is another one."""
    scene: Scene | None = st.session_state.get(f"_scene:{run_id}")
    if scene is None:
        return
    run, engine, now = scene.run, scene.engine, session.now()
    try:
        with TelemetryReader(session.data_dir().telemetry_db) as reader:
            run, engine = reader.run(run_id) or run, reader.engine()
    except StorageError as error:
        with st.container(key="banners"):
            states.storage_problem(error, kept_frame=True)
    state = state_of(run, engine, now)
    if state != drawn_state:
        st.rerun()
    rest = seconds_left(run, scene.steps) if state not in TERMINAL else None
    header.status_line(run, state, engine, now, rest, deterministic=deterministic(run.job))
    with st.container(key="notices"):
        if state == "failed":
            ended = (
                f" · the last step ended at {session.page_clock().time(scene.steps[-1].t_end)}" if scene.steps else ""
            )
            why = literal(run.error or "no reason was given")
            st.error(f"**The run failed** · {why}{ended}", icon=symbol("error"))
        elif scene.engine_silent:
            states.engine_silent(engine, scene.as_of, now, session.page_clock(), session.data_dir().root)
        elif state == "running" and scene.as_of is not None and scene.read_at - scene.as_of > LATE_S:
            states.telemetry_late(scene.read_at - scene.as_of, engine)
        distrusted(run)


def main_part(run_id: str, default: str) -> None:
    """The timeline, what is chosen in it, the heatmap and what was lost."""
    if written_since():
        st.rerun()
    view, _ = of_url(default)
    moved = zoomed(run_id, view)
    if moved is not None:
        put(run_id, moved)
        st.rerun()
    scene, problem = read(run_id, view)
    if problem is not None:
        with st.container(key="main_problem"):
            states.storage_problem(problem, kept_frame=scene is not None)
    if scene is None:
        return
    commands, price = _history(scene), read_price(session.data_dir())
    chosen_here = read_chosen(scene)
    with st.container(border=True, key="where_timeline"):
        timeline_card(scene, commands, chosen_here)
    if chosen_here is not None:
        with st.container(border=True, key="where_chosen"):
            chosen_card(scene, chosen_here)
    left, right = st.columns([5, 4], gap="small")
    with left, st.container(border=True, height="stretch", key="where_bubbles"):
        heatmap_card(scene, commands)
    with right, st.container(border=True, height="stretch", key="where_lost"):
        timeline_lost.lost_card(scene, commands, price, session.page_clock(), lambda: _summed_over(run_id, default))


def _history(scene: Scene) -> History:
    """What the run's commands changed; nothing when they cannot be read, which is no reason to show no timeline."""
    try:
        return control_view.history_of(scene.run, control_view.commands_of(scene.run.run_id))
    except StorageError:
        return History()


def _summed_over(run_id: str, default: str) -> None:
    value = st.session_state.get(f"timeline_sums:{run_id}")
    view, _ = of_url(default)
    if value in SUMS:
        put(run_id, replace(view, sums=value))


def worst_part(run_id: str) -> None:
    """The worst bubbles. A part of its own, for the search reads raw spans and must not hold up the picture."""
    if written_since():
        st.rerun()
    scene: Scene | None = st.session_state.get(f"_scene:{run_id}")
    if scene is None or (not scene.devices and scene.as_of is None):
        return
    slot, price = f"_worst:{run_id}", read_price(session.data_dir())
    worst: Worst | None = st.session_state.get(slot)
    devices = frozenset(device for row in scene.rows for device in row.devices)
    try:
        with TelemetryReader(session.data_dir().telemetry_db) as reader:
            worst = read_worst(
                reader,
                scene.run,
                scene.listed,
                scene.opened,
                devices,
                sliding=scene.live and scene.view.exact is None,
                now=session.now(),
                last=worst,
            )
        st.session_state[slot] = worst
    except StorageError:
        pass  # the part above says so, and the last list stays
    if worst is not None:
        with st.container(border=True, key="where_worst"):
            timeline_lost.worst_card(scene, worst, price, session.page_clock())


def _view_of(run: RunRow) -> tuple[View, list[str]]:
    """The view of the URL. One of another run, which the picker left, keeps only what means the same here."""
    view, problems = of_url(default_window(run))
    before = st.session_state.get("_timeline_of")
    st.session_state["_timeline_of"] = run.run_id
    if before in (None, run.run_id):
        return view, problems
    view = replace(view.following(), block=None, lease=None, opened=None, window=default_window(run))
    put(run.run_id, view, moved=True)
    return view, []


def page() -> None:
    """The whole page, top to bottom."""
    written_since()
    named = session.run_in_url()
    try:
        runs, run, devices = chosen(named)
    except StorageError:
        kept: Scene | None = st.session_state.get(f"_scene:{named}")
        runs, run, devices = ([kept.run], kept.run, len(kept.devices)) if kept else ([], None, 0)
    if run is None:
        without_run(named, TITLE, QUESTION, here=session.TIMELINE_PAGE)
        return
    st.html(f"<style>{timeline_chosen.STYLE}</style>")
    header.title_and_picker(TITLE, QUESTION, runs, run, session.page_clock())
    session.look_at(run.run_id)
    view, problems = _view_of(run)
    scene, _ = read(run.run_id, view)
    st.session_state[f"_scene_fresh:{run.run_id}"] = True
    live = scene.live if scene is not None else run.state not in TERMINAL
    interval = detail.refresh_interval_s(devices) if live else None
    every(interval, head_part, run.run_id, scene.state if scene is not None else run.state)
    for problem in problems:
        st.error(f"The address holds what cannot be shown: {literal(problem)}.", icon=symbol("link_off"))
    if scene is not None:
        controls(
            run,
            view,
            default_window(run),
            live=live,
            whole=(scene.begin, scene.end),
            price=read_price(session.data_dir()),
        )
    every(interval, main_part, run.run_id, default_window(run))
    every(EVERY_S if live else None, worst_part, run.run_id)
