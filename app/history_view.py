"""Draws where a run lost time and how it learned: bubble heatmap, lost time by cause, learning charts."""

from __future__ import annotations

import streamlit as st

from app import detail
from app.clock import PageClock, device_time, duration
from app.command_words import History
from app.figures.bubbles import ROWS_PX, bubble_heatmap, causes, lost_time
from app.figures.command_marks import fewest_lanes, on_steps, on_time, stamp
from app.figures.learning import NAMES, PANEL_PX, learning, step_span
from app.glossary import brief_of, helps_of
from app.key_figures import Sums, idle_fraction, idle_seconds, total
from app.live_chart import Chart, chart, kept_chart, live_chart
from app.live_frame import IDLE, Bubbles, Frame
from app.run_job import held_out_told

LEARNING_TERMS = (
    "reward",
    "held_out_accuracy",
    "control_accuracy",
    "response_length",
    "loss",
    "mismatch_kl",
    "mean_lag",
    "largest_lag",
    "lag_cap",
)
"""What the learning panels show."""


DRAWN_STEPS = 200
"""Steps that a panel tells apart."""


def heatmap(frame: Frame, commands: History, clock: PageClock) -> None:
    """Exact idle share of each row over the run, with the commands that were applied."""
    bubbles = frame.bubbles
    if bubbles is None:
        st.markdown(f"**Bubble heatmap** · idle share over the run{frame.pace.badge}")
        st.caption("Begins with the first rollout.")
        return
    st.markdown(
        f"**Bubble heatmap** · idle share of each row and {duration(bubbles.plan.bin_s)}, whole run{frame.pace.badge}",
        help=helps_of("row_idle_share", "known_time"),
    )
    key = f"bubbles:{frame.run.run_id}"
    kept = (bubbles.read_at, frame.live, stamp(commands))
    live_chart(kept_chart(key, kept, lambda: _heatmap(frame, bubbles, commands, clock)), key=key)


def _heatmap(frame: Frame, bubbles: Bubbles, commands: History, clock: PageClock) -> Chart:
    span = (clock.axis(bubbles.plan.t0), clock.axis(bubbles.plan.t1))
    marks = fewest_lanes(on_time(commands, clock, frame.pace), span=span, width_px=ROWS_PX)
    pace, mean = frame.pace, idle_fraction(total(frame.whole)) or 0.0
    table: list[object] = []
    for row in bubbles.rows:
        sums = total(frame.whole, row.devices)
        share = idle_fraction(sums)
        table.append([row.label, "–" if share is None else f"{share:.1%}", f"{sum(sums.values()):.1f} s"])
    return chart(
        bubble_heatmap(
            detail.idle_share(bubbles.seconds, IDLE), bubbles.rows, bubbles.plan, clock=clock, commands=marks
        ),
        label=f"Idle share of {len(bubbles.rows)} {'emulated ' if pace.emulated else ''}rows over the run, on average "
        f"{mean:.0%}",
        as_of=bubbles.read_at,
        frozen="" if frame.live else "whole run",
        scale=True,
        note=pace.wall_time,
        table={
            "columns": ["since training began", "idle", f"known {'wall ' if pace.emulated else ''}time"],
            "rows": table,
        },
    )


def lost(frame: Frame) -> None:
    """Idle time by cause, and overhead, since training began; of emulated devices in modelled time."""
    pace = frame.pace
    sums = pace.sums(total(frame.whole))
    share = idle_fraction(sums)
    told = "–" if share is None else f"{device_time(idle_seconds(sums))} idle{pace.unit}, {share:.1%}"
    st.markdown(f"**Lost time by cause** · {told}{pace.badge}", help=helps_of("lost_by_cause", "overhead"))
    if not lost_time(sums) or frame.bubbles is None:
        st.caption("Counted from the first rollout on." if share is None else "Nothing was lost yet.")
        return
    key = f"causes:{frame.run.run_id}"
    kept = (frame.bubbles.read_at, frame.live)
    live_chart(kept_chart(key, kept, lambda: _causes(frame, sums)), key=key)


def _causes(frame: Frame, sums: Sums) -> Chart:
    items = lost_time(sums)
    known = sum(sums.values())
    return chart(
        causes(sums, frame.pace),
        label=f"Lost time by cause{frame.pace.unit}: "
        + ", ".join(f"{name} {device_time(value)}" for name, _, value in items),
        as_of=frame.read_at,
        frozen="" if frame.live else "whole run",
        note=f"grey: overhead, not idle{' · times are modelled' if frame.pace.emulated else ''}",
        table={
            "columns": ["cause", f"device-seconds{frame.pace.unit}", "share"],
            "rows": [[name, f"{value:.2f}", f"{value / known:.2%}"] for name, _, value in items],
        },
    )


def how_it_learns(frame: Frame, commands: History, clock: PageClock) -> None:
    """Six panels with the commands that were applied; a run without a step says what is missing."""
    st.markdown("**Learning** · over the step", help=brief_of(*LEARNING_TERMS))
    if not frame.steps and not frame.evals:
        st.caption("Charts begin with the first step.")
        return
    key = f"learning:{frame.run.run_id}"
    # a step more is less than a pixel of a long run, and six panels are the dearest picture of the page
    apart = max(1, len(frame.steps) // DRAWN_STEPS)
    kept = (len(frame.steps) // apart, len(frame.evals), frame.live, stamp(commands))
    live_chart(kept_chart(key, kept, lambda: _learning(frame, commands, clock)), key=key)


def _learning(frame: Frame, commands: History, clock: PageClock) -> Chart:
    span = step_span(frame.steps, frame.evals)
    marks = fewest_lanes(on_steps(commands, clock), span=span, width_px=PANEL_PX)
    notes = [held_out_told(frame.run.job)]
    if any(e.name == "control" for e in frame.evals):
        notes.append("control: held-out answers made to start with the control text")
    return chart(
        learning(frame.steps, frame.evals, marks),
        label=f"Learning over {len(frame.steps)} steps: {', '.join(NAMES)}",
        as_of=frame.steps[-1].t_end if frame.steps else None,
        frozen="" if frame.live else "whole run",
        note=" · ".join(filter(None, notes)),
    )
