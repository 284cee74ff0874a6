"""The part of the Live page that ticks, as data for its one element, and what the reader does there."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import streamlit as st

from app import header, live_view, session, states
from app.clock import PageClock
from app.glossary import plains_of
from app.key_figures import seconds_left
from app.live_chart import BoardEvents, Chart
from app.live_frame import Frame, View
from app.modelled import EMULATED, pace_of
from app.run_job import deterministic, prompts_per_step
from storage.records import RunRow
from storage.words import TERMINAL

WINDOWS: dict[str, float | None] = {"15 s": 15.0, "1 min": 60.0, "5 min": 300.0, "30 min": 1800.0, "All": None}


def default_window(run: RunRow) -> str:
    """The last minutes of a live run, of one played faster the last one; one that is over is looked at as a whole."""
    if run.state in TERMINAL:
        return "All"
    return "1 min" if pace_of(run).rate(1.0) < 1 else "5 min"


def view_of(run_id: str, default: str) -> View:
    """What the reader chose, from what was drawn last."""
    window = WINDOWS[window_name(run_id, default)]
    zoom = _chosen(run_id).get("viewport")
    viewport = None
    if zoom:
        low, high = (session.page_clock().from_axis(edge) for edge in zoom)
        viewport = (low, high) if high > low else None
    return View(window_s=window, viewport=viewport, opened=st.session_state.get(opened_key(run_id)))


def window_name(run_id: str, default: str) -> str:
    """The window of the timeline that was chosen."""
    chosen = _chosen(run_id).get("window")
    return chosen if chosen in WINDOWS else default


def _chosen(run_id: str) -> Mapping[str, Any]:
    return st.session_state.get(live_view.timeline_key(run_id)) or {}


def board_parts(frame: Frame, clock: PageClock, timeline: Chart | None) -> dict[str, object]:
    """What ticks beside the timeline's picture, for one element of the page: each costs its browser at each refresh."""
    run = frame.run
    rest = seconds_left(run, frame.steps) if frame.live else None
    return {
        "tag": EMULATED if frame.pace.emulated else "",
        "status": header.status_of(
            run, frame.state, frame.engine, frame.read_at, rest, deterministic=deterministic(run.job)
        ),
        "numbers": live_view.numbers(frame, prompts_per_step(run.job)),
        "timeline": {
            "windows": list(WINDOWS),
            "window": window_name(run.run_id, default_window(run)),
            "opened": timeline is not None and bool(st.session_state.get(opened_key(run.run_id))),
            "help": plains_of("bin_width", "kind_seconds"),
            "none": f"No device time yet · {states.why_no_spans(run)}" if timeline is None else "",
        },
        "attention": live_view.attention_part(frame, clock),
    }


def opened_key(run_id: str) -> str:
    """Where the session keeps which group of rows is open."""
    return f"_opened:{run_id}"


def answer(frame: Frame, timeline: Chart | None, events: BoardEvents) -> None:
    """Open the group of rows that was clicked on, or show all rows again."""
    key = live_view.row_key(frame, events.click) if events.click and timeline is not None and timeline.clicks else None
    if key is None and not events.back:
        return
    grouped = key is not None and not key.startswith("device:")
    st.session_state[opened_key(frame.run.run_id)] = key if grouped else None
    st.rerun()
