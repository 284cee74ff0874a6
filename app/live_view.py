"""What a frame of the Live page shows: banners, five numbers, timeline and attention cards. It reads nothing."""

from __future__ import annotations

import math
from dataclasses import asdict

import streamlit as st

from app import detail, states
from app.attention import attention
from app.clock import PageClock, duration
from app.command_words import History, told
from app.figures.command_marks import MAX_COMMANDS, command_marks, on_time
from app.figures.lease_marks import lease_marks
from app.figures.timeline import ROWS_PX, timeline
from app.glossary import plain_brief_of, plains_of
from app.key_figures import busy_over_time, five_numbers, total
from app.lending import MAX_LEASE_MARKS
from app.live_chart import Chart, chart
from app.live_frame import Frame
from app.markup import literal
from app.palette import label
from app.session import data_dir
from app.status import symbol
from storage.records import Command
from storage.words import COLUMNS

LOG_ROWS = 8
"""Commands beside the controls; the whole log is on the Control page."""


def banners(frame: Frame, clock: PageClock) -> None:
    """What is wrong or special about what is shown, above everything else."""
    if frame.engine_silent:
        states.engine_silent(frame.engine, frame.as_of, frame.read_at, clock, data_dir().root)
    elif frame.telemetry_late_s is not None:
        states.telemetry_late(frame.telemetry_late_s, frame.engine)
    if frame.state in ("starting", "warming_up"):
        with st.container(border=True, key="warm_start"):
            word = "Warm start" if frame.state == "warming_up" else "Starting"
            told = literal(frame.run.progress or "workers are starting")
            st.progress(
                min(1.0, max(0.0, frame.run.progress_fraction or 0.0)),
                text=f"**{word}** · {told} · numbers begin with the first step",
            )
    elif frame.state in ("queued", "pausing", "stopping") and frame.run.progress:
        st.info(literal(frame.run.progress), icon=symbol("info"))


def numbers(frame: Frame, prompts_per_step: int | None) -> list[dict[str, object]]:
    """Five cards."""
    cards = five_numbers(
        frame.run,
        recent=total(frame.recent),
        whole=total(frame.whole),
        steps=frame.steps,
        prompts_per_step=prompts_per_step,
        busy=busy_over_time(frame.seconds),
    )
    return [asdict(card) for card in cards]


def timeline_chart(frame: Frame, commands: History, clock: PageClock) -> Chart:
    """The timeline with its note and its table."""
    pace = frame.pace
    leases = lease_marks(frame.lending.marked, frame.rows, (frame.plan.t0, frame.plan.t1), clock, pace)
    span = (clock.axis(frame.plan.t0), clock.axis(frame.plan.t1))
    marks = command_marks(on_time(commands, clock, pace), span=span, width_px=ROWS_PX)
    figure = timeline(
        detail.majority(frame.seconds),
        frame.rows,
        frame.plan,
        window=frame.window,
        clock=clock,
        steps=frame.steps,
        commands=marks,
        leases=leases,
        pace=pace,
    )
    cut = f" · only the newest {MAX_LEASE_MARKS} marks of leases are drawn" if leases.cut else ""
    cut += f" · only the newest {MAX_COMMANDS} commands are marked" if marks.cut else ""
    last = f"{clock.time(frame.window[0])} – {clock.time(frame.window[1])}"
    grouped = len(frame.devices) > detail.MAX_DEVICE_ROWS
    return chart(
        figure,
        label=f"{'Emulated timeline' if pace.emulated else 'Timeline'} of {len(frame.rows)} rows, {last}: "
        f"{_summary(frame)}",
        as_of=frame.as_of,
        frozen="" if frame.live else f"ended {clock.time(frame.end)}",
        note=f"a column is {duration(frame.plan.bin_s)}, in the colour of what took most of it · drag to zoom, "
        f"double-click to follow{cut}{pace.wall_time and f' · {pace.wall_time}'}",
        follow="back to live" if frame.live else "reset zoom",
        table=_table(frame),
        scale=True,
        viewport=True,
        clicks=grouped,
    )


def timeline_key(run_id: str) -> str:
    """Key of the timeline, by which its zoom is found before it is drawn."""
    return f"timeline:{run_id}"


def row_key(frame: Frame, click: dict[str, object]) -> str | None:
    """Of the row that was clicked on, None for none."""
    y = click.get("y")
    if not isinstance(y, int | float) or not 0 <= round(y) < len(frame.rows):
        return None
    return frame.rows[round(y)].key


def _summary(frame: Frame) -> str:
    sums = total(frame.recent)
    known = math.fsum(sums.values())
    if known <= 0:
        return "no device time yet"
    shares = sorted(((seconds / known, label(column)) for column, seconds in sums.items()), reverse=True)
    return ", ".join(f"{name} {share:.0%}" for share, name in shares[:4] if share >= 0.005)


def _table(frame: Frame) -> dict[str, list[object]]:
    """Seconds of each kind and row in the last minutes, exact."""
    known = total(frame.recent)
    used = [c for c in COLUMNS if known.get(c, 0.0) > 0]
    rows: list[object] = []
    for row in frame.rows:
        sums = total(frame.recent, row.devices)
        rows.append([row.label, *(f"{sums.get(c, 0.0):.1f} s" for c in used)])
    last = f"last 5 min{' of wall time' if frame.pace.emulated else ''}"
    return {"columns": [last, *(label(c) for c in used)], "rows": rows}


def newest_commands(commands: History, clock: PageClock) -> None:
    """The newest commands in short; with what they were expected to do and did they are on the Control page."""
    st.markdown("**Commands**")
    if not commands.made:
        st.caption("None yet. Every command, its sender and its answer is kept here.")
        return
    st.dataframe(
        [
            {
                "no.": made.command.id,
                "sent": clock.time(made.command.created_at),
                "who": made.command.who,
                "command": told(made),
                "state": command_state(made.command),
                "answer": made.command.answer or "",
            }
            for made in commands.made[: -LOG_ROWS - 1 : -1]
        ],
        hide_index=True,
        height="content",
        column_config={
            "no.": st.column_config.NumberColumn(width=40),
            "state": st.column_config.TextColumn(width=130),
            "answer": st.column_config.TextColumn(width="large"),
        },
        key="command_log",
    )


def command_state(command: Command) -> str:
    """ "applied in 0.3 s", or the state alone."""
    if command.state == "applied" and command.applied_at is not None:
        return f"applied in {duration(max(0.0, command.applied_at - command.created_at))}"
    return command.state


def attention_part(frame: Frame, clock: PageClock) -> dict[str, object]:
    """Cards with a number and the next step, or one quiet line."""
    cards = attention(
        frame.run,
        state=frame.state,
        engine=frame.engine,
        devices=frame.devices,
        recent=frame.recent,
        steps=frame.steps,
        outcomes=frame.lending.outcomes,
        clock=clock,
    )
    quiet = told = ""
    if not cards:
        lost = "groups or leases are lost" + ("" if frame.pace.emulated else ", or learning stalls")
        quiet = f"Nothing. Cards appear here when devices wait{' or' if frame.pace.emulated else ','} {lost}."
    if frame.engine is not None:
        lag = frame.engine.flush_lag_s
        behind = f"telemetry lag {duration(lag)} · " if lag is not None else ""
        told = f"{behind}{frame.engine.spans_dropped or 0:,} dropped spans"
    return {
        "cards": [asdict(card) for card in cards],
        "help": plain_brief_of("no_signal_groups", "capped_share", "excluded_groups"),
        "quiet": quiet,
        "engine": told,
        "engine_help": plains_of("telemetry_lag", "dropped_spans"),
    }
