"""Draws split times staleness: the estimate at once, simulated points as they are played, and the chosen one to launch.

grid --click--> a slice of simulated runs with each refresh --> map, fastest point, what is worth its staleness
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import streamlit as st

from app import plan_grid, plan_played, plan_rows, plan_state
from app.clock import DASH, count
from app.figures.plan import Mark, points_map
from app.glossary import help_of
from app.live_chart import chart, live_chart
from app.live_page import every
from app.plan_grid import Grid, Place
from app.plan_launch import Point, launch_button
from app.plan_played import Figures
from app.plan_view import PREDICTED, SIMULATED, seconds
from app.status import symbol
from engine.config import Job
from engine.config.planning import Planned

TICK_S = 0.2
"""Between two slices of playing."""

PLAYING, CHOSEN, SPLIT, STALENESS = "_plan_points_playing", "_plan_points_chosen", "plan_split", "plan_staleness"
MEASURES = {"tokens/s": "tokens/s", "idle": "idle share"}


def part(job: Job, planned: Planned, grid: Grid) -> None:
    """The whole of it; refreshes by itself while runs are played."""
    playing = st.session_state.get(PLAYING) == _stamp(grid)
    every(TICK_S if playing else None, draw, job, planned, grid)


def _stamp(grid: Grid) -> str:
    """Other points are not played because these were asked for."""
    return "".join(content for content, _ in grid.todo.values())


def draw(job: Job, planned: Planned, grid: Grid) -> None:
    """One picture, and a slice of playing where that goes on."""
    known = plan_played.known_of(grid.todo)
    badge = SIMULATED if known else PREDICTED
    with st.container(horizontal=True, vertical_alignment="center", horizontal_alignment="distribute"):
        st.markdown(f"**Split and staleness together** {badge}", width="content", help=help_of("plan_frontier"))
        measure = st.segmented_control(
            "Measure",
            list(MEASURES),
            default="tokens/s",
            required=True,
            format_func=lambda key: MEASURES[key],
            key="plan_points_measure",
            label_visibility="collapsed",
        )
    _play(grid, known)
    known = plan_played.known_of(grid.todo)
    shown, source = (known, "simulated") if known else (grid.estimate, "estimated")
    failed = {found.why_not for found in known.values() if found.why_not}
    _chosen_by_click(grid, _map(job, grid, shown, measure or "tokens/s", source, _chosen(job, planned, grid)))
    if known:
        st.caption(
            f"Arm {job.schedule.arm}, played by the simulator with the times above: {len(known)} of {len(grid.todo)} "
            "points, each of some ten steps of one seed, so that differences of about one percent mean nothing."
        )
    else:
        st.caption(
            "An estimate from mean stage times, without borrowing and tails: it sees no gain above staleness 1. "
            "The simulator plays the arm itself."
        )
    for why in sorted(failed):
        st.caption(f"Some points have no figures: {why}.")
    _launch(job, planned, grid, shown)


def _play(grid: Grid, known: Mapping[Place, Figures]) -> None:
    """The button, or the progress of what is played now."""
    if grid.why_not:
        st.caption(f"The simulator is not asked: {grid.why_not}.")
        return
    left = len(grid.todo) - len(known)
    stamp = _stamp(grid)
    if st.session_state.get(PLAYING) != stamp:
        if left and st.button(
            f"Play {left} {'more ' if known else ''}points in the simulator",
            icon=symbol("play_arrow"),
            key="plan_points_play",
        ):
            st.session_state[PLAYING] = stamp
            st.rerun()
        return
    if st.button("Stop playing", icon=symbol("stop"), key="plan_points_stop"):
        st.session_state[PLAYING] = None
        st.rerun()
    bar = st.progress(len(known) / max(1, len(grid.todo)))

    def tell(place: Place, done: int, share: float) -> None:
        split = next(each for each in grid.splits if each.rollout_devices == place[0])
        point = f"{plan_rows.split_of(split)} at staleness {place[1]:g}"
        bar.progress((done + share) / len(grid.todo), f"Playing point {done + 1} of {len(grid.todo)}: {point}")

    if plan_played.play_some(grid.todo, clock=time.monotonic, tell=tell):
        st.session_state[PLAYING] = None
        st.rerun()


def _map(
    job: Job, grid: Grid, shown: Mapping[Place, Figures], measure: str, source: str, chosen: Place | None
) -> dict[str, Any] | None:
    """The map; what was clicked in it just now."""

    def value(found: Figures | None) -> float | None:
        return None if found is None else found.tokens_per_s if measure == "tokens/s" else found.idle

    columns = {each.rollout_devices: i for i, each in enumerate(grid.splits)}
    rows = {s: i for i, s in enumerate(grid.staleness)}
    values = [[value(shown.get((count_, s))) for count_ in columns] for s in rows]
    best = plan_grid.best_of(shown)
    # what is worth its staleness is known only when every point is
    edge = plan_grid.edge_of(shown) if len(shown) == len(grid.estimate) else []
    marked = [("best", best), ("chosen", chosen), *(("edge", place) for place in edge)]
    marks = [Mark(column=columns[p[0]], row=rows[p[1]], kind=kind) for kind, p in marked if p is not None]
    word = "simulated" if source == "simulated" else "estimated"
    told = ""
    if best is not None and (rate := shown[best].tokens_per_s):
        told = f"; the fastest is {best[0]} rollout devices at staleness {best[1]:g}, {count(rate)} tokens/s"
    return live_chart(
        chart(
            points_map(values, grid.names, grid.staleness, measure=measure, marks=marks, source=word),
            label=f"{MEASURES[measure]} of {len(grid.splits)} splits at {len(rows)} values of staleness, {word}{told}",
            note=f"{source.upper()}, no device ran · click a point to choose it",
            clicks=True,
            table={
                "columns": ["staleness", *grid.names],
                "rows": [[f"{s:g}", *(_cell(v, measure) for v in row)] for s, row in zip(rows, values, strict=True)],
            },
        ),
        key="plan_points_chart",
    ).click


def _cell(value: float | None, measure: str) -> str:
    return DASH if value is None else count(value) if measure == "tokens/s" else f"{value:.1%}"


def _chosen(job: Job, planned: Planned, grid: Grid) -> Place | None:
    """What the reader chose, else the split that the table proposes too, at the job's staleness."""
    kept: Place | None = st.session_state.get(CHOSEN)
    if kept is not None and kept in grid.estimate:
        return kept
    split = plan_grid.proposed(job, planned)
    return None if split is None else (split.rollout_devices, job.schedule.staleness_resolved)


def _chosen_by_click(grid: Grid, click: dict[str, Any] | None) -> None:
    if click is None:
        return
    try:
        column, row = round(float(click["x"])), round(float(click["y"]))
        place = (grid.splits[column].rollout_devices, grid.staleness[row])
    except (KeyError, TypeError, ValueError, IndexError):
        return
    if st.session_state.get(CHOSEN) != place and column >= 0 and row >= 0:
        st.session_state[CHOSEN] = place
        st.rerun()


def _launch(job: Job, planned: Planned, grid: Grid, shown: Mapping[Place, Figures]) -> None:
    """The chosen point, by click or by hand, its figures, and the button."""
    chosen = _chosen(job, planned, grid)
    if chosen is None:
        return
    names = {plan_rows.split_of(each): each for each in grid.splits}
    split = next(each for each in grid.splits if each.rollout_devices == chosen[0])
    st.session_state[SPLIT], st.session_state[STALENESS] = plan_rows.split_of(split), chosen[1]

    def by_hand() -> None:
        st.session_state[CHOSEN] = (names[st.session_state[SPLIT]].rollout_devices, st.session_state[STALENESS])

    with st.container(horizontal=True, vertical_alignment="bottom", gap="small"):
        st.selectbox("Split", list(names), key=SPLIT, on_change=by_hand, width=150)
        st.selectbox(
            "Staleness", grid.staleness, key=STALENESS, on_change=by_hand, format_func=lambda s: f"{s:g}", width=150
        )
        launch_button(
            Point(
                arm=job.schedule.arm,
                partition=plan_rows.split_of(split),
                staleness=chosen[1],
                devices=planned.devices,
            ),
            key="plan_points_launch",
            job=job.name,
            text=plan_state.JOB.text(),
            base_dir=plan_state.JOB.source().base_dir,
        )
        found = shown.get(chosen)
        if found is not None and found.tokens_per_s:
            idle = "" if found.idle is None else f", idle {found.idle:.1%}"
            st.markdown(f"{count(found.tokens_per_s)} tokens/s{idle}, step {seconds(found.step_s)}", width="content")
