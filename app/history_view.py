"""Draws where a run lost time and how it learned: bubble heatmap, lost time by cause, learning charts."""

from __future__ import annotations

import streamlit as st

from app import detail
from app.clock import PageClock, device_time, duration
from app.figures.bubbles import bubble_heatmap, causes, lost_time
from app.figures.learning import NAMES, learning
from app.live_chart import live_chart
from app.live_frame import IDLE, Frame, binned
from app.numbers import idle_fraction, idle_seconds, total
from storage.reader import TelemetryReader

HEATMAP_BINS = 120
"""A cell wide enough to point at."""


def where_time_is_lost(frame: Frame, reader: TelemetryReader | None, clock: PageClock) -> None:
    """Heatmap and causes since training began. Without a reader the last picture is drawn again."""
    left, right = st.columns([3, 2], gap="small")
    with left, st.container(border=True, height="stretch", key="bubbles"):
        _heatmap(frame, reader, clock)
    with right, st.container(border=True, height="stretch", key="lost_time"):
        sums = total(frame.whole)
        share = idle_fraction(sums)
        told = "–" if share is None else f"{device_time(idle_seconds(sums))} idle · {share:.1%}"
        st.markdown(f"**Lost time by cause** · {told}")
        items = lost_time(sums)
        if not items:
            st.caption("Nothing was lost yet." if share is not None else "Counted from the first rollout on.")
            return
        live_chart(
            causes(sums),
            key=f"causes:{frame.run.run_id}",
            label="Lost time by cause: " + ", ".join(f"{name} {device_time(value)}" for name, _, value in items),
            as_of=frame.as_of,
            frozen="" if frame.live else "whole run",
            table={
                "columns": ["cause", "device-seconds", "share"],
                "rows": [[name, f"{value:.2f}", f"{value / sum(sums.values()):.2%}"] for name, _, value in items],
            },
        )


def _heatmap(frame: Frame, reader: TelemetryReader | None, clock: PageClock) -> None:
    slot = f"_bubbles:{frame.run.run_id}"
    start = frame.run.training_at
    if start is None or frame.end <= start:
        st.markdown("**Bubble heatmap** · idle share of each device over the run")
        st.caption("Begins with the first rollout.")
        return
    if reader is not None:
        st.session_state[slot] = binned(
            reader, frame.run.run_id, frame.rows, (start, frame.end), frame.device_states, frame.end, HEATMAP_BINS
        )
    if slot not in st.session_state:
        return
    plan, seconds = st.session_state[slot]
    if seconds.shape[0] != len(frame.rows):
        return
    st.markdown(f"**Bubble heatmap** · idle share of each row and {duration(plan.bin_s)}")
    share = detail.idle_share(seconds, IDLE)
    worst = total(frame.whole)
    live_chart(
        bubble_heatmap(share, frame.rows, plan, clock=clock),
        key=f"bubbles:{frame.run.run_id}",
        label=f"Idle share of {len(frame.rows)} rows over the run, on average {idle_fraction(worst) or 0:.0%}",
        as_of=frame.as_of,
        frozen="" if frame.live else "whole run",
        table={
            "columns": ["since training began", "idle", "known time"],
            "rows": [
                [row.label, f"{idle_fraction(sums) or 0:.1%}", f"{sum(sums.values()):.1f} s"]
                for row in frame.rows
                if (sums := total(frame.whole, row.devices))
            ],
        },
    )


def how_it_learns(frame: Frame) -> None:
    """Six panels; a run without a step says what is missing."""
    with st.container(border=True, key="learning"):
        if not frame.steps and not frame.evals:
            st.markdown("**Learning**")
            st.caption("Charts begin with the first step.")
            return
        live_chart(
            learning(frame.steps, frame.evals),
            key=f"learning:{frame.run.run_id}",
            label=f"Learning over {len(frame.steps)} steps: {', '.join(NAMES)}",
            as_of=frame.steps[-1].t_end if frame.steps else None,
            frozen="" if frame.live else "whole run",
            note="control: held-out answers made to start with the control text, at the first and last evaluation",
        )
