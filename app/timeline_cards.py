"""Draws the Timeline's first cards: the timeline with what is chosen in it, and the bubble heatmap.

A click or a choice writes another view into the URL; what was chosen is read here, for nobody else needs it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import streamlit as st

from app import session, states, timeline_chosen
from app.command_words import History
from app.figures.command_marks import stamp
from app.glossary import help_of
from app.live_chart import kept_chart, live_chart
from app.markup import literal
from app.status import symbol
from app.timeline_block import Chosen, read_block, read_lease
from app.timeline_controls import chart_key, put
from app.timeline_frame import Scene
from app.timeline_link import copy_window
from app.timeline_rows import coarser
from app.timeline_url import SHORTEST_S, Block, View
from app.timeline_view import heatmap_bin_s, heatmap_chart, period, timeline_chart
from storage.database import StorageError
from storage.reader import TelemetryReader


def timeline_card(scene: Scene, commands: History, chosen_here: Chosen | None) -> None:
    """The timeline, or why there is none."""
    run_id, clock, view = scene.run.run_id, session.page_clock(), scene.view
    with st.container(horizontal=True, vertical_alignment="center", horizontal_alignment="distribute"):
        st.markdown(
            f"**Device timeline** · {period(scene.window, clock)}{scene.pace.badge}",
            width="content",
            help=help_of("bin_width"),
        )
        with st.container(horizontal=True, vertical_alignment="center", width="content"):
            if view.opened is not None:
                st.button(
                    "All rows",
                    icon=symbol("arrow_back"),
                    key="timeline_all_rows",
                    on_click=lambda: put(run_id, replace(view, opened=None)),
                )
            copy_window(run_id, scene.window)
    if not scene.devices and scene.as_of is None:
        states.no_spans(scene.run)
        return
    for note in (scene.scheme_note, coarser(scene.devices, view.rows, scene.rows)):
        if note:
            st.caption(f"{symbol('info')} {literal(note)}")
    if scene.known.sum() <= 0:
        _nothing_here(scene)
    key = chart_key(run_id)
    marks = (stamp(commands), chosen_here)
    shown = kept_chart(key, (scene.read_at, view, marks), lambda: timeline_chart(scene, commands, chosen_here, clock))
    click = live_chart(shown, key=key).click
    picked = clicked(scene, click) if click else None
    if picked is not None:
        put(run_id, picked)
        st.rerun()


def _nothing_here(scene: Scene) -> None:
    """A window without any telemetry, such as one beyond the run."""
    clock, run_id = session.page_clock(), scene.run.run_id
    st.info(
        f"**Nothing is known of this window** · The run went from {clock.moment(scene.begin)} "
        f"({clock.time(scene.begin)}) to {clock.moment(scene.end)} ({clock.time(scene.end)}).",
        icon=symbol("search_off"),
    )
    whole = replace(scene.view.following(), window="all", block=None, lease=None)
    if whole != replace(scene.view, block=None, lease=None):
        st.button("Show the whole run", key="timeline_whole_run", on_click=lambda: put(run_id, whole, moved=True))


def clicked(scene: Scene, click: dict[str, Any]) -> View | None:
    """The view with what was clicked on; None for a place that is nothing."""
    lease = click.get("customdata")
    if isinstance(lease, int) and not isinstance(lease, bool):
        return replace(scene.view, lease=lease, block=None)
    place = _place(scene, click)
    if place is None:
        return None
    row, at = place
    return replace(scene.view, block=Block(row=scene.rows[row].key, at=round(at, 3)), lease=None)


def _place(scene: Scene, click: dict[str, Any]) -> tuple[int, float] | None:
    """Which row was clicked on, and when in its time, unix seconds; None for a place that is none."""
    y = click.get("y")
    if click.get("curve") != 0 or not isinstance(y, int | float) or not 0 <= round(y) < len(scene.rows):
        return None
    try:
        return round(y), session.page_clock().from_axis(click.get("x"))
    except ValueError:
        return None


def read_chosen(scene: Scene) -> Chosen | None:
    """What the URL chooses, read again only while it goes on."""
    view, run = scene.view, scene.run
    if view.block is None and view.lease is None:
        return None
    slot, what = f"_chosen:{run.run_id}", (view.block, view.lease)
    kept: tuple[Any, Chosen | None] | None = st.session_state.get(slot)
    if kept is not None and kept[0] == what and kept[1] is not None and not (scene.live and _goes_on(kept[1])):
        return kept[1]
    try:
        with TelemetryReader(session.data_dir().telemetry_db) as reader, reader.one_moment():
            if view.lease is not None:
                found = read_lease(reader, run, view.lease)
            else:
                assert view.block is not None
                found = read_block(reader, run, view.block, scene.devices, scene.steps)
    except StorageError:
        return None
    if found is None:
        what_is = f"lease {view.lease}" if view.lease is not None else f"row {view.block.row if view.block else ''}"
        st.warning(f"The URL chooses {literal(what_is)}, which this run does not have.", icon=symbol("link_off"))
    st.session_state[slot] = (what, found)
    return found


def _goes_on(kept: Chosen) -> bool:
    lease_open = kept.lease is not None and kept.lease.released_at is None
    return lease_open or (kept.work is not None and kept.work.open) or (kept.work is None and not kept.others)


def chosen_card(scene: Scene, chosen_here: Chosen) -> None:
    """What was clicked on."""
    run_id, view = scene.run.run_id, scene.view
    row = view.block.row if view.block is not None else ""
    opens = row if len(chosen_here.devices) > 1 and row.partition(":")[0] in ("node", "pool") else None

    def close(opened: str | None = None) -> None:
        put(run_id, replace(view, block=None, lease=None, opened=opened or view.opened))

    timeline_chosen.chosen_card(
        chosen_here,
        run_id,
        scene.pace,
        session.page_clock(),
        opens=None if opens == view.opened else opens,
        close=close,
    )


def heatmap_card(scene: Scene, commands: History) -> None:
    """Exact idle share of each row over the window."""
    key = f"where_bubbles:{scene.run.run_id}"
    kept = (scene.read_at, scene.view, stamp(commands))
    if scene.known.sum() <= 0:
        st.markdown(f"**Bubble heatmap**{scene.pace.badge}", help=help_of("row_idle_share"))
        st.caption("No device time is known here.")
        return
    clock = session.page_clock()
    st.markdown(
        f"**Bubble heatmap** · idle share of each row, {period((scene.counted.t0, scene.counted.t1), clock)}"
        f"{scene.pace.badge}",
        help=help_of("row_idle_share"),
    )
    click = live_chart(kept_chart(key, kept, lambda: heatmap_chart(scene, commands, clock)), key=key).click
    picked = cell_clicked(scene, click, heatmap_bin_s(scene)) if click else None
    if picked is not None:
        put(scene.run.run_id, picked, moved=True)
        st.rerun()


def cell_clicked(scene: Scene, click: dict[str, Any], bin_s: float) -> View | None:
    """The view of the cell of the heatmap that was clicked on, with as much of the run on either side; None for a place
    that is none. bin_s: length of a cell, seconds."""
    place = _place(scene, click)
    if place is None:
        return None
    row, at = place
    begin = at // bin_s * bin_s
    low, high = max(begin - bin_s, scene.begin), min(begin + 2 * bin_s, scene.end)
    if high - low < SHORTEST_S:
        return None
    block = Block(row=scene.rows[row].key, at=round(begin + bin_s / 2, 3))
    return replace(scene.view.showing(low, high), block=block, lease=None)
