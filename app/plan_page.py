"""Plan: how should I split my devices? Every split with its reasons, split and staleness together, and what a recorded
run would have done otherwise; each of them leads to Launch.

    job, stage times --at once--> splits and an estimate --asked for, a slice at a time--> the simulator

Nothing here was measured but what says so. A page without a database still plans the presets.
"""

from __future__ import annotations

from collections.abc import Sequence

import streamlit as st

from app import (
    header,
    plan_grid,
    plan_job_view,
    plan_points_view,
    plan_state,
    plan_times,
    plan_view,
    plan_whatif_view,
    session,
    states,
)
from app.live_page import every, without_run
from app.markup import literal
from app.plan_grid import Grid
from app.plan_launch import Point, launch_button
from app.plan_rows import split_of
from app.plan_times import Times
from app.plan_view import PREDICTED
from app.status import symbol
from engine.config import Job, JobError, parse_job
from engine.config.planning import Planned, plan_job
from storage.database import StorageError, TelemetryMissing
from storage.reader import TelemetryReader
from storage.records import RunRow

TITLE, QUESTION = "Plan", "How should I split my devices?"

KEPT = "_plan_planned"
RUNS = "_plan_runs"


def read_runs() -> tuple[list[RunRow], StorageError | None]:
    """The newest runs, or those of the last look and why there are no newer ones; none where no engine ever ran."""
    named = session.run_in_url()
    try:
        with TelemetryReader(session.data_dir().telemetry_db) as reader:
            runs = reader.runs()
            asked = reader.run(named) if named and all(run.run_id != named for run in runs) else None
    except TelemetryMissing:
        return [], None
    except StorageError as error:
        return st.session_state.get(RUNS, []), error
    st.session_state[RUNS] = runs = [*runs, *([asked] if asked is not None else [])]
    return runs, None


def planned_of(job: Job, times: Times) -> tuple[Planned, Grid]:
    """The plan and its points; the last ones again while nothing is different. Raises JobError for what cannot be
    planned."""
    assert times.known is not None
    asked = plan_times.planned_by(job, times)
    stamp = (job, times.key, times.known)
    kept = st.session_state.get(KEPT)
    if kept is None or kept[0] != stamp:
        planned = plan_job(asked, measured=times.known)
        kept = (stamp, planned, plan_grid.grid_of(asked, planned))
        st.session_state[KEPT] = kept
    return kept[1], kept[2]


def checked() -> tuple[Job | None, dict[str, str]]:
    """The job, or what is wrong with its text by path."""
    try:
        return parse_job(plan_state.JOB.text()), {}
    except JobError as error:
        return None, error.problems


def job_card(job: Job | None, problems: dict[str, str], runs: Sequence[RunRow]) -> Times | None:
    """What is planned; the source of its stage times, None where there is none that can be used."""
    emulated = job is not None and job.emulated
    st.markdown(f"**The job**{' :violet-badge[EMULATED]' if emulated else ''}")
    plan_job_view.job_fields(problems)
    if job is None:
        plan_job_view.editor(problems)
        return None
    found = plan_times.sources(job, session.data_dir(), runs, plan_state.own_run())
    times = plan_times.chosen(found, st.session_state.get(plan_state.TIMES))
    plan_job_view.times_picker(found, times)
    plan_job_view.editor(problems)
    return times if times is not None and times.known is not None else None


def splits_part(job: Job, planned: Planned, times: Times) -> None:
    """The plan itself, and the split that leads to Launch."""
    st.markdown(f"**Every split of {planned.devices:,} devices** {PREDICTED}")
    plan_view.headline(job, planned, times)
    plan_view.splits_chart(job, planned, (job, times.key, times.known))
    chosen = plan_view.splits_table(job, planned)
    for note in planned.notes:
        st.caption(literal(note[:1].upper() + note[1:]) + ".")
    if planned.plan.best is None:
        st.warning("**No split of these devices is feasible** · the table says why for each.", icon=symbol("block"))
    if chosen is None:
        return
    with st.container(horizontal=True, vertical_alignment="center", gap="small"):
        launch_button(
            Point(
                arm=job.schedule.arm,
                partition=split_of(chosen),
                staleness=job.schedule.staleness_resolved,
                devices=planned.devices,
            ),
            key="plan_launch",
            job=job.name,
            text=plan_state.JOB.text(),
            base_dir=plan_state.JOB.source().base_dir,
            problem=f"{split_of(chosen)} is not feasible: {chosen.reason}" if chosen.reason else "",
        )
        st.caption(
            "The best split for this arm, of those that tie the job’s own; or the one chosen in the table.",
            width="content",
        )


def unplanned(error: JobError) -> None:
    """A valid job that cannot be planned, and why."""
    told = "  \n".join(
        literal(f"{path}: {sentence}" if path else sentence) for path, sentence in error.problems.items()
    )
    st.info(f"**This job cannot be planned**  \n{told}", icon=symbol("block"))


def page() -> None:
    """The whole page, top to bottom."""
    runs, problem = read_runs()
    named = session.run_in_url()
    if named and problem is None and all(run.run_id != named for run in runs):
        without_run(named, TITLE, QUESTION, here=session.PLAN_PAGE)
        return
    header.who_looks()
    plan_state.prepare(runs)
    left, right = st.columns([5, 4], vertical_alignment="bottom", gap="medium")
    with left:
        st.title(TITLE, anchor=False)
        st.caption(QUESTION)
    with right:
        plan_job_view.picker(runs)
    if problem is not None:
        states.storage_problem(problem, kept_frame=bool(runs))
    job, problems = checked()
    with st.container(border=True, key="plan_job"):
        times = job_card(job, problems, runs)
    if job is not None and times is not None:
        try:
            planned, grid = planned_of(job, times)
        except JobError as error:
            unplanned(error)
        else:
            with st.container(border=True, key="plan_splits"):
                every(None, splits_part, job, planned, times)
            if grid.splits:
                with st.container(border=True, key="plan_points"):
                    plan_points_view.part(job, planned, grid)
    with st.container(border=True, key="plan_whatif"):
        plan_whatif_view.part(runs, plan_state.own_run())
