"""Draws a plan: the best splits, and all of them as a chart and as a table with figures or reasons."""

from __future__ import annotations

from typing import Any

import streamlit as st

from app import plan_grid, plan_rows
from app.clock import DASH, count
from app.figures.plan import SplitPoint, splits
from app.glossary import help_of
from app.live_chart import chart, kept_chart, live_chart
from app.markup import literal
from app.plan_times import Times
from engine.config import Job
from engine.config.planning import Planned
from planner.partitions import Candidate
from planner.stage_model import StageModel

PREDICTED, SIMULATED = ":violet-badge[PREDICTED]", ":violet-badge[SIMULATED]"
"""Behind every heading whose figures no device made."""

MOST_DRAWN = 400
"""Splits in the chart; between them there is nothing to see."""


def headline(job: Job, planned: Planned, times: Times) -> None:
    """The best splits in four numbers."""
    plan, group_size = planned.plan, job.algorithm.group_size
    tokens = plan_rows.tokens_per_group(planned.known.profile, group_size)
    one, two, three, four = st.columns(4, gap="small")
    best, lending = plan.best, plan.best_borrowing
    one.metric(
        "Best split, rollout:train",
        DASH if best is None else plan_rows.split_of(best),
        None if best is None else f"{count((best.rate or 0) * tokens)} tokens/s · step {seconds(best.step_s)}",
        delta_color="off",
        delta_arrow="off",
        help=help_of("plan_best"),
    )
    two.metric(
        "Best split with borrowing",
        DASH if lending is None else plan_rows.split_of(lending),
        None if lending is None else f"step {seconds(lending.borrowing_step_s)}",
        delta_color="off",
        delta_arrow="off",
        help=help_of("plan_best_borrowing"),
    )
    idle = None if best is None else best.idle_fraction
    three.metric(
        "Structural idle of the best",
        DASH if idle is None else f"{idle:.1%}",
        "without borrowing",
        delta_color="off",
        delta_arrow="off",
        help=help_of("plan_idle"),
    )
    feasible = sum(each.feasible for each in plan.candidates)
    four.metric(
        "Feasible splits",
        f"{feasible:,} of {len(plan.candidates):,}",
        f"{planned.devices:,} devices",
        delta_color="off",
        delta_arrow="off",
        help=help_of("plan_feasible"),
    )
    st.caption(
        f"Seconds of Q groups on d replicas: rollout {model(planned.models.rollout)}, train "
        f"{model(planned.models.train)}; {literal(times.label)}.{error_told(planned)}"
    )


def seconds(value: float | None) -> str:
    """ "118 s", "0.42 s"."""
    return DASH if value is None else f"{value:.3g} s" if value < 100 else f"{value:,.0f} s"


def model(found: StageModel) -> str:
    """ "12.1 + 3.4 Q/d"."""
    return f"{found.a:.3g} + {found.b:.3g} Q/d"


def error_told(planned: Planned) -> str:
    """How far the models were off where they were measured."""
    errors = planned.known.model_error or {}
    told = [
        f"{stage} {found['median']:.1%}"
        for stage in ("rollout", "train")
        if isinstance(found := errors.get(stage), dict) and isinstance(found.get("median"), int | float)
    ]
    return f" Where it was measured its forecasts were off by a median of {' and '.join(told)}." if told else ""


def splits_chart(job: Job, planned: Planned, stamp: object) -> None:
    """Throughput and idle time over the splits."""
    points = split_points(job, planned)
    if len(points) < 2:
        return

    def build() -> Any:
        best = [point for point in points if point.verdict]
        told = "; ".join(f"{point.verdict}: {point.name}" for point in best)
        return chart(
            splits(points),
            label=f"Predicted throughput and structural idle share of {len(points)} splits of the devices; {told}",
            note="PREDICTED from mean stage times: both pools at work all the time",
            table=plan_rows.twin(planned, plan_rows.shown(planned).feasible, job.algorithm.group_size),
        )

    live_chart(kept_chart("plan_splits", stamp, build), key="plan_splits_chart")


def split_points(job: Job, planned: Planned) -> list[SplitPoint]:
    """The feasible splits for the chart, thinned out evenly where they are many."""
    tokens = plan_rows.tokens_per_group(planned.known.profile, job.algorithm.group_size)
    feasible = sorted((e for e in planned.plan.candidates if e.feasible), key=lambda each: each.rollout_devices)
    every = -(-len(feasible) // MOST_DRAWN) or 1
    named = (planned.plan.best, planned.plan.best_borrowing)
    return [
        SplitPoint(
            name=plan_rows.split_of(each),
            rollout_devices=each.rollout_devices,
            rollout=(each.rate_rollout or 0.0) * tokens,
            train=(each.rate_train or 0.0) * tokens,
            borrowing=None
            if each.borrowing_step_s is None
            else job.algorithm.prompts_per_step / each.borrowing_step_s * tokens,
            idle=each.idle_fraction or 0.0,
            verdict=plan_rows.verdict(each, planned),
        )
        for place, each in enumerate(feasible)
        if place % every == 0 or each in named
    ]


def splits_table(job: Job, planned: Planned) -> Candidate | None:
    """The table; the split that was chosen in it, else the proposed one."""
    found = plan_rows.shown(planned)
    config = st.column_config
    chosen = st.dataframe(
        plan_rows.rows(planned, found.all, job.algorithm.group_size),
        hide_index=True,
        on_select="rerun",
        selection_mode="single-row",
        key=f"plan_splits_table:{len(found.all)}",
        placeholder=DASH,
        alt="Every split of the devices with its predicted figures, or the reason why it cannot be",
        height="content" if len(found.all) <= 12 else 460,
        column_config={
            "rollout:train": config.TextColumn(pinned=True),
            "verdict": config.TextColumn(width=430),
            "rollout, groups/s": config.NumberColumn(format="%.3g", help=help_of("plan_rate_rollout")),
            "train, groups/s": config.NumberColumn(format="%.3g", help=help_of("plan_rate_train")),
            "tokens/s": config.NumberColumn(format="%.0f", help=help_of("plan_tokens_per_s")),
            "step, s": config.NumberColumn(format="%.3g", help=help_of("plan_step")),
            "idle": config.ProgressColumn(
                "idle %", min_value=0, max_value=100, format="%.1f", help=help_of("plan_idle")
            ),
            "step with borrowing, s": config.NumberColumn(format="%.3g", help=help_of("plan_borrowing_step")),
        },
    )
    if found.more_feasible or found.more_infeasible:
        st.caption(
            f"And {found.more_feasible:,} more feasible and {found.more_infeasible:,} more infeasible splits; "
            "`bidirl plan --json` lists them all."
        )
    rows = [i for i in chosen["selection"]["rows"] if i < len(found.all)]
    if rows:
        return found.all[rows[0]]
    return plan_grid.proposed(job, planned)


def times_key(chosen: Times | None) -> str:
    """For a stamp: another source, or another measurement of it, is another plan."""
    return "" if chosen is None or chosen.known is None else f"{chosen.key} {chosen.known!r}"
