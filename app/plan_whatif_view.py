"""Draws what a recorded run would have done otherwise: which run and which settings, the replays as they are played,
and each of them beside what was measured.

    settings --Replay--> what the run recorded --a slice with each refresh--> table and chart, the model's error first
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import streamlit as st

from app import plan_played, plan_replay, plan_whatif_rows, session
from app.clock import DASH
from app.figures.plan_replays import replays
from app.glossary import help_of, helps_of
from app.live_chart import chart, live_chart
from app.live_page import every
from app.markup import literal
from app.modelled import pace_of
from app.plan_launch import Point, launch_button
from app.plan_played import Todo
from app.plan_replay import AS_IS, Alternative, NotReplayable, Past
from app.plan_view import SIMULATED
from app.plan_whatif_rows import partitions_of
from app.run_job import job_of
from app.status import symbol
from engine.config.job import ARMS, MAX_STALENESS
from engine.config.recorded import GroupLike
from storage.database import StorageError
from storage.reader import TelemetryReader
from storage.records import RunRow

TICK_S = 0.2
"""Between two slices of playing."""

READ_S = 20.0
"""Seconds that reading a run's groups may take: one with more is replayed by the command line."""

ASKED, PLAYING = "_plan_whatif_asked", "_plan_whatif_playing"
STALENESS = ("0", "0.5", "1", "2", "4")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Asked:
    """A replay that was asked for."""

    past: Past
    others: tuple[Alternative, ...]
    todo: dict[str, Todo]
    """What is played, by label."""
    refused: dict[str, str]
    """Label -> why it cannot be played."""


class Paced:
    """Reads groups, tells how many, and gives up in time."""

    def __init__(self, reader: TelemetryReader, bar: Any) -> None:
        self._reader, self._bar, self._began = reader, bar, time.monotonic()

    def groups(self, run_id: str, /, *, limit: int, offset: int) -> Sequence[GroupLike]:
        """As the reader does. Raises NotReplayable after READ_S."""
        if time.monotonic() - self._began > READ_S:
            raise NotReplayable(
                f"reading its groups takes more than {READ_S:g} s, after {offset:,} of them: bidirl simulate --like "
                "reads them all"
            )
        self._bar.progress(0.0, f"Reading what the run recorded: {offset:,} groups")
        return self._reader.groups(run_id, limit=limit, offset=offset)


def part(runs: Sequence[RunRow], own: str | None) -> None:
    """The whole of it; refreshes by itself while runs are played. own: the run whose job is planned."""
    every(TICK_S if st.session_state.get(PLAYING) else None, draw, runs, own)


def draw(runs: Sequence[RunRow], own: str | None) -> None:
    """One picture, and a slice of playing where that goes on."""
    st.markdown(
        f"**What would a recorded run have done otherwise?** {SIMULATED}",
        width="content",
        help=help_of("plan_replayed"),
    )
    able = [run for run in runs if run.profile is not None]
    if not able:
        st.info(
            "**No run can be replayed** · none has measured all of its speeds, response lengths and both switch costs. "
            "A run of an arm that lends both ways does, after some steps.",
            icon=symbol("history_toggle_off"),
        )
        return
    run = _choose_run(able, len(runs), own)
    job = job_of(run.job)
    if job is None:
        st.warning("The run's job was written for another version of the program.", icon=symbol("data_object"))
        return
    _form(run, partitions_of(run, job))
    asked: Asked | None = st.session_state.get(ASKED)
    if asked is None or asked.past.run.run_id != run.run_id:
        return
    _play(asked)
    _told(asked)


def _choose_run(able: Sequence[RunRow], known: int, own: str | None) -> RunRow:
    by_id = {run.run_id: run for run in able}
    ids = list(by_id)
    left = known - len(able)
    chosen = st.selectbox(
        "Recorded run",
        ids,
        index=ids.index(own) if own in by_id else 0,
        format_func=lambda run_id: f"{run_id} · {by_id[run_id].arm} · {by_id[run_id].partition or 'no pools'}",
        key=f"plan_whatif_run:{own if own in by_id else ''}",
        help=f"{left} of {known} runs have not measured a whole profile and cannot be replayed." if left else None,
    )
    return by_id[chosen] if chosen in by_id else able[0]


def _form(run: RunRow, partitions: Sequence[str]) -> None:
    """Which settings are tried, every combination of them."""
    one, two, three = st.columns(3, gap="small")
    own = plan_replay.own_of(run)
    own_staleness = f"{own.staleness:g}"
    arms = one.multiselect("Arms", ARMS, default=[own.arm], key=f"plan_arms:{run.run_id}")
    splits = two.multiselect(
        "Partitions, rollout:train",
        partitions,
        default=[run.partition] if run.partition in partitions else [],
        key=f"plan_partitions:{run.run_id}",
    )
    typed = three.multiselect(
        "Staleness",
        sorted({*STALENESS, own_staleness}, key=float),
        default=sorted({"0", "1", "2", own_staleness}, key=float),
        accept_new_options=True,
        key=f"plan_stalenesses:{run.run_id}",
    )
    staleness, problem = plan_whatif_rows.staleness_of(typed, MAX_STALENESS)
    others = plan_replay.alternatives(own, arms, splits, staleness)
    if not problem and len(others) > plan_replay.MOST_ALTERNATIVES:
        problem = (
            f"{len(others)} combinations are asked for; at most {plan_replay.MOST_ALTERNATIVES} are replayed at once"
        )
    if not problem and not others:
        problem = "nothing differs from the run as it was: choose another arm, partition or staleness"
    with st.container(horizontal=True, vertical_alignment="center", gap="small"):
        pressed = st.button(
            f"Replay as it was and {len(others)} otherwise" if not problem else "Replay",
            type="primary",
            icon=symbol("replay"),
            key="plan_whatif_play",
            disabled=bool(problem),
        )
        if problem:
            st.caption(literal(problem), width="content")
    if pressed and not problem:
        _ask(run, others)


def _ask(run: RunRow, others: Sequence[Alternative]) -> None:
    """Read what the run recorded and begin to play."""
    bar = st.progress(0.0, "Reading what the run recorded")
    try:
        with TelemetryReader(session.data_dir().telemetry_db) as reader:
            past = plan_replay.read(reader, run, groups=Paced(reader, bar))
    except (NotReplayable, StorageError) as error:
        bar.empty()
        st.session_state[ASKED] = None
        st.warning(f"**Run {literal(run.run_id)} cannot be replayed** · {literal(str(error))}.", icon=symbol("block"))
        return
    todo, refused = plan_replay.todo_of(past, others)
    st.session_state[ASKED] = Asked(past=past, others=tuple(others), todo=todo, refused=refused)
    st.session_state[PLAYING] = True
    st.rerun()


def _play(asked: Asked) -> None:
    """The progress of what is played now, with a way to stop it."""
    known = plan_played.known_of(asked.todo)
    if not st.session_state.get(PLAYING):
        left = len(asked.todo) - len(known)
        if left and st.button(f"Play the other {left}", icon=symbol("play_arrow"), key="plan_whatif_go_on"):
            st.session_state[PLAYING] = True
            st.rerun()
        return
    if st.button("Stop playing", icon=symbol("stop"), key="plan_whatif_stop"):
        st.session_state[PLAYING] = False
        st.rerun()
    bar = st.progress(len(known) / max(1, len(asked.todo)))

    def tell(name: str, done: int, share: float) -> None:
        count = len(asked.todo)
        bar.progress((done + share) / count, f"Playing {done + 1} of {count}: {literal(name)}")

    if plan_played.play_some(asked.todo, clock=time.monotonic, tell=tell):
        st.session_state[PLAYING] = False
        st.rerun()


def _told(asked: Asked) -> None:
    """The table, the chart, how far to trust them, and the way to Launch."""
    past, pace = asked.past, pace_of(asked.past.run)
    known = plan_played.known_of(asked.todo)
    rows = plan_whatif_rows.rows(past, asked.others, known, asked.refused)
    error, *others = plan_whatif_rows.notes(past, known, asked.others)
    st.markdown(error, help=helps_of("plan_measured", "plan_model_error"))
    st.caption(" ".join(others))
    drawn = plan_whatif_rows.drawn(past, asked.others, known)
    if len(drawn) > 1:
        live_chart(
            chart(
                replays(drawn, unit=pace.unit, hover=pace.hover),
                label=f"Run {past.run.run_id} measured, replayed as it was, and replayed under "
                f"{len(drawn) - 2} other settings: throughput and idle share",
                note="one mark is measured, the others are SIMULATED"
                + (f" · {pace.hover[4:]}" if pace.emulated else ""),
                table=plan_whatif_rows.twin(rows),
            ),
            key=f"plan_whatif_chart:{past.run.run_id}",
        )
    config = st.column_config
    chosen = st.dataframe(
        rows,
        hide_index=True,
        on_select="rerun",
        selection_mode="single-row",
        key=f"plan_whatif_table:{past.run.run_id}:{len(rows)}",
        placeholder=DASH,
        alt="The run as measured, replayed as it was, and replayed under other settings",
        height="content" if len(rows) <= 12 else 460,
        column_config={
            "settings": config.TextColumn(pinned=True, width=250),
            "tokens/s": config.NumberColumn(format="%.0f", help=help_of("plan_replayed")),
            "against as is, %": config.NumberColumn(format="%+.1f"),
            "expected tokens/s": config.TextColumn(help=help_of("plan_expected")),
            "idle, %": config.NumberColumn(format="%.1f", help=help_of("idle_share")),
            "structural, %": config.NumberColumn(format="%.1f", help=help_of("structural_bubble")),
            "residual, %": config.NumberColumn(format="%.1f", help=help_of("residual_bubble")),
            "step, s": config.NumberColumn(format="%.3g"),
            "mean lag": config.NumberColumn(format="%.2f"),
            **({} if any(row["why not"] for row in rows) else {"why not": None}),
        },
    )
    picked = [i for i in chosen["selection"]["rows"] if i < len(rows)]
    _launch(asked, rows[picked[0]]["settings"] if picked else "")


def _launch(asked: Asked, picked: str) -> None:
    """The chosen alternative as a job, and as the command that replays it."""
    past = asked.past
    by_label = {each.label: each for each in asked.others}
    other = by_label.get(picked)
    if other is None and picked != plan_whatif_rows.AS_IS_LABEL:
        st.caption("Choose a row to launch it, or to see the command that replays it.")
        return
    point = other or past.own
    launch_button(
        Point(arm=point.arm, partition=point.partition, staleness=point.staleness, devices=past.job.device_count),
        key="plan_whatif_launch",
        job=past.job.name,
        text=past.run.job,
        base_dir=past.run.base_dir,
        problem=asked.refused.get(AS_IS if other is None else picked, ""),
    )
    st.code(plan_replay.command(past, other), language="bash")
