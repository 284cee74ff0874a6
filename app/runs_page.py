"""Runs: what did past runs lose, and why? Every run of the data folder; open, clone, resume and delete them."""

from __future__ import annotations

from collections import Counter

import streamlit as st

from app import header, session, states
from app.access import NotAllowed
from app.control_view import commands_of
from app.figures.bubbles import causes_by_run
from app.live_chart import chart, live_chart
from app.markup import literal
from app.modelled import EMULATED, KEEPS_NOTHING, LEARNS_NOTHING, is_emulated, pace_of
from app.palette import CAUSE_LABELS
from app.runs_table import Figures, can_delete, can_resume, compared, figures_of, row, state_of
from app.session import RUN_KEY
from app.status import COMMAND_STATUS, OPEN_COMMANDS, symbol
from storage.database import StorageError, TelemetryMissing
from storage.reader import TelemetryReader
from storage.records import Command, RunRow
from storage.words import IDLE_CAUSES

REFRESH_S = 3.0
"""Past runs do not change, and a live one is watched on its own page."""

COMPARED_RUNS = 12
"""Bars that fit without scrolling."""

KEPT_FIGURES = 512
"""Summed runs kept in memory; a run that is over is summed once."""


@st.cache_data(max_entries=KEPT_FIGURES, show_spinner=False)
def figures(path: str, run_id: str, state: str, steps: int | None, ended_at: float | None, _run: RunRow) -> Figures:
    """Sums of a run, kept until the run moves on."""
    with TelemetryReader(session.data_dir().telemetry_db) as reader:
        return figures_of(reader, _run, session.now())


def table() -> None:
    """The runs, and what can be done with the chosen one."""
    try:
        with TelemetryReader(session.data_dir().telemetry_db) as reader:
            engine, runs = reader.engine(), reader.runs(limit=500)
        known = {run.run_id: state_of(run, engine, session.now()) for run in runs}
        summed = [
            figures(str(session.data_dir().telemetry_db), run.run_id, known[run.run_id], run.steps, run.ended_at, run)
            for run in runs
        ]
    except TelemetryMissing as error:
        states.no_database(error)
        return
    except StorageError as error:
        states.storage_problem(error, kept_frame=False)
        return
    if not runs:
        states.no_runs(session.data_dir().root)
        return
    if filtered := comparison_filter(runs):
        kept = [i for i, run in enumerate(runs) if run.comparison == filtered]
        runs, summed = [runs[i] for i in kept], [summed[i] for i in kept]
    emulated = any(map(is_emulated, runs))
    rows = [row(run, known[run.run_id], f, session.page_clock()) for run, f in zip(runs, summed, strict=True)]
    chosen = st.dataframe(
        rows,
        hide_index=True,
        on_select="rerun",
        selection_mode="single-row",
        # what is chosen is a row's number, which means another run among other rows
        key=f"runs_table:{filtered}" if filtered else "runs_table",
        height="content" if len(rows) <= 14 else 530,
        column_config={
            "run": st.column_config.TextColumn(pinned=True),
            "staleness": st.column_config.NumberColumn(format="%.4g"),
            "idle": st.column_config.ProgressColumn("idle %", min_value=0, max_value=100, format="%.1f"),
            "lost device-h": st.column_config.NumberColumn(format="%.3f"),
            "tokens/s": st.column_config.NumberColumn(format="%.0f"),
            # without any there is nothing to tell
            **({} if any(run.comparison for run in runs) else {"comparison": None}),
            **({"reward": None} if all(map(is_emulated, runs)) else {}),
            "reward": st.column_config.LineChartColumn("reward over steps", y_min=0, y_max=1),
        },
    )
    if emulated:
        st.caption(
            f"{EMULATED} runs: tokens/s and lost device-h are modelled, those of the devices that are stood for. "
            f"{LEARNS_NOTHING}"
        )
    picked = [i for i in chosen["selection"]["rows"] if i < len(runs)]
    with st.container(border=True, key="run_actions"):
        if not picked:
            st.caption("Choose a run to open, clone, resume or delete it.")
        else:
            run = runs[picked[0]]
            actions(run, known[run.run_id])
    lost(runs, summed)


def comparison_filter(runs: list[RunRow]) -> str:
    """The comparison whose runs are asked for, "" for all runs; asks only where there is one."""
    counts = Counter(run.comparison for run in runs if run.comparison)
    if not counts:
        return ""
    left, _ = st.columns([2, 3])
    chosen = left.selectbox(
        "Comparison",
        ["", *counts],
        format_func=lambda name: f"{name} · {counts[name]} runs" if name else "all runs",
        key="runs_comparison",
    )
    return chosen or ""


def bar_name(run: RunRow) -> str:
    """How a run is called beside its bar."""
    return f"{run.run_id} · {EMULATED}" if is_emulated(run) else run.run_id


def lost(runs: list[RunRow], summed: list[Figures]) -> None:
    """Lost time by cause of the newest runs that have any."""
    measured = [(run, f.sums) for run, f in zip(runs, summed, strict=True) if f.idle is not None][:COMPARED_RUNS]
    if not measured:
        return
    with st.container(border=True, key="lost_by_run"):
        st.markdown("**Lost device time by cause, per run**")
        shown = chart(
            causes_by_run([(bar_name(run), sums) for run, sums in measured]),
            label=f"Lost device time by cause of {len(measured)} runs, in share of each run's device time",
            table={
                "columns": ["run", *(CAUSE_LABELS[cause] for cause in IDLE_CAUSES)],
                "rows": [
                    [bar_name(run), *(f"{sums.get(f'idle_{c}', 0.0) / sum(sums.values()):.2%}" for c in IDLE_CAUSES)]
                    for run, sums in measured
                ],
            },
            note="share of each run's device time since its first possible rollout",
        )
        live_chart(shown, key="lost_by_run_chart")


def actions(run: RunRow, state: str) -> None:
    """Buttons for one run."""
    cause = f" · {literal(run.error)}" if run.error else ""
    badges = pace_of(run).badge + (f" :gray-badge[{literal(compared(run))}]" if run.comparison else "")
    st.markdown(f"**{literal(run.name)}** · {literal(run.run_id)}{badges}{cause}")
    allowed, lacks = session.may_command()
    with st.container(horizontal=True, vertical_alignment="center", gap="small"):
        if st.button("Open", type="primary", icon=symbol("monitoring"), key="run_open"):
            st.switch_page(session.LIVE_PAGE, query_params={RUN_KEY: run.run_id})
        if st.button("Clone", icon=symbol("content_copy"), key="run_clone"):
            st.switch_page(session.LAUNCH_PAGE, query_params={"clone": run.run_id})
        if st.button(
            "Resume",
            icon=symbol("resume"),
            key="run_resume",
            disabled=not allowed or not can_resume(state) or is_emulated(run),
            help=KEEPS_NOTHING if is_emulated(run) else "Continues from the newest checkpoint, as a new run.",
        ):
            st.switch_page(session.LAUNCH_PAGE, query_params={"resume": run.run_id})
        closed = not allowed or not can_delete(state)
        with st.popover("Delete", icon=symbol("delete"), key="run_delete", disabled=closed):
            st.markdown(f"Delete **{literal(run.run_id)}** with its telemetry and checkpoints? This cannot be undone.")
            if st.button("Delete this run", type="primary", key="run_delete_confirm"):
                delete(run)
        if not allowed:
            st.caption(literal(lacks))
    asked = [c for c in read_commands(run.run_id) if c.kind == "delete"]
    if asked:
        status = COMMAND_STATUS[asked[0].state]
        if asked[0].state in OPEN_COMMANDS:
            st.info("Delete is sent and waits for the engine.", icon=symbol(status.icon))
        elif asked[0].state != "applied":
            st.warning(f"Delete was {status.word}. {literal(asked[0].answer or '')}", icon=symbol(status.icon))


def read_commands(run_id: str) -> list[Command]:
    """Commands of a run, none when the mailbox cannot be read."""
    try:
        return commands_of(run_id, limit=20)
    except StorageError:
        return []


def delete(run: RunRow) -> None:
    """Ask the engine to delete a run: only it writes telemetry."""
    try:
        session.send("delete", {}, run=run)
    except (StorageError, NotAllowed) as error:
        st.error(f"The command was not sent: {literal(str(error))}", icon=symbol("error"))
        return
    st.rerun()


def page() -> None:
    """The whole page."""
    header.title_and_picker("Runs", "What did past runs lose, and why?", [], None, session.page_clock())
    st.fragment(table, run_every=REFRESH_S)()
