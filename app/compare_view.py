"""Runs beside each other: which settings differ, what that did to the key figures, to reward and to idle time.

Every figure has a table twin; what stands in the address (`compare`, `baseline`, `axis`, `unit`) shows the same to
whoever is sent it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import streamlit as st

from app import compare_rows, runs_url, session
from app.compare_read import AXES, Compared, read_compared
from app.compare_rows import UNITS
from app.figures import compare as figures
from app.glossary import help_of, helps_of
from app.ledger_view import distrusted
from app.live_chart import Chart, chart, kept_chart, live_chart
from app.markup import literal
from app.modelled import LEARNS_NOTHING
from app.price import Price
from app.runs_table import Figures, Listed
from app.status import symbol
from planner import side_by_side
from storage.database import StorageError

MOST = 16
"""Runs that are compared at once: more lines than that tell nothing."""

FIRST_COLUMN_PX = 220
"""The longest name of a figure."""

HEAD_CHARS = 30
"""Of an id above a column."""

_SLOT = "_compared"


def comparison(listed: Sequence[Listed], chosen: runs_url.Chosen, price: Price | None) -> None:
    """The whole comparison. listed: the chosen runs, the baseline first, at least two."""
    shown = listed[:MOST]
    try:
        runs = read_compared(session.data_dir(), shown, session.now())
        st.session_state[_SLOT] = runs
    except StorageError as error:
        runs = st.session_state.get(_SLOT, [])
        st.warning(f"The runs cannot be read now: {literal(str(error))}", icon=symbol("database_off"))
    if not runs:
        return
    with st.container(key="compare"):
        left, right = st.columns([5, 4], vertical_alignment="bottom", gap="medium")
        left.subheader(f"Compared with {literal(figures.short(runs[0].run_id, 44))}{badge(runs)}", anchor=False)
        with right:
            baseline_picker([each.run.run_id for each in listed], chosen)
        if len(listed) > MOST:
            st.caption(f"{len(listed)} runs are chosen; the baseline and the next {MOST - 1} of them are compared.")
        for run in runs:
            distrusted(run.run, named=True)
        tables(runs)
        over_time(runs)
        losses(runs, shown, price)


def baseline_picker(ids: Sequence[str], chosen: runs_url.Chosen) -> None:
    """Which of them the others are compared with."""
    picked = st.selectbox("Baseline", ids, index=0, key=f"compare_baseline:{hash(tuple(ids))}")
    if picked and picked != chosen.base:
        runs_url.write(runs_url.Chosen(ids=chosen.ids, baseline=picked))
        st.rerun()


def tables(runs: Sequence[Compared]) -> None:
    """Settings that differ, and key figures with their difference to the baseline."""
    with st.container(border=True, key="compare_settings"):
        st.markdown("**Settings that differ**")
        if rows := compare_rows.settings_table(runs):
            _table(rows, "setting", "compare_settings_table")
            many = f"{len(rows)} settings differ" if len(rows) > 1 else "1 setting differs"
            st.caption(f"{many}. An arrow is a change by an operator: launched with → governs now.")
        else:
            st.caption("None: all of them ran the same job.")
    with st.container(border=True, key="compare_figures"):
        st.markdown(f"**Key figures**{badge(runs)}", help=help_of("compared_difference"))
        _table(compare_rows.figures_table(runs), "figure", "compare_figures_table")
        st.caption("In brackets the difference to the baseline, which is the first run.")
        if not all(side_by_side.comparable([run.result for run in runs])):
            st.info(f"{side_by_side.NOT_COMPARABLE.capitalize()}.", icon=symbol("rule"))


def badge(runs: Sequence[Compared]) -> str:
    """What follows the heading of figures of which some are not measurements."""
    return next((run.pace.badge for run in runs if run.pace.emulated), "")


def _table(rows: list[dict[str, str]], first: str, key: str) -> None:
    """A row a setting or a figure, a column a run; long ids are cut in the heads. As high as it has rows, which are
    fifty at most: one that ends within a row looks as if it had no more."""
    heads = {name: st.column_config.TextColumn(figures.short(name, HEAD_CHARS)) for name in rows[0] if name != first}
    st.dataframe(
        rows,
        hide_index=True,
        key=key,
        height="content",
        column_config={first: st.column_config.TextColumn(pinned=True, width=FIRST_COLUMN_PX), **heads},
    )


def over_time(runs: Sequence[Compared]) -> None:
    """Reward and idle time over one axis."""
    axis = st.segmented_control(
        "Over", list(AXES), default="step", format_func=AXES.__getitem__, required=True, key="axis", bind="query-params"
    )
    axis = str(axis) if axis in AXES else "step"
    rewarded = any(run.reward.values for run in runs)
    left, right = st.columns(2, gap="small") if rewarded else (None, st.container())
    if left is not None:
        with left, st.container(border=True, height="stretch", key="compare_reward"):
            st.markdown("**Reward**", help=help_of("reward_smoothed"))
            live_chart(_lines(runs, "reward", axis), key="compare_reward_chart")
            if any(run.pace.emulated for run in runs):
                st.caption(LEARNS_NOTHING)
    with right, st.container(border=True, height="stretch", key="compare_idle"):
        st.markdown(f"**Idle share over the run**{badge(runs)}", help=help_of("idle_share"))
        if any(run.idle.values for run in runs):
            live_chart(_lines(runs, "idle", axis), key="compare_idle_chart")
        else:
            st.caption("No device time of these runs is stored any more.")
        if not rewarded:
            st.caption(LEARNS_NOTHING if all(run.pace.emulated for run in runs) else "No step of them has a reward.")


def _lines(runs: Sequence[Compared], what: str, axis: str) -> Chart:
    def build() -> Chart:
        lines, title = compare_rows.drawn(runs, what, axis)
        top = max((y for line in lines for y in line.y if y is not None), default=1.0)
        figure = figures.lines(
            lines,
            x_title=title,
            y_format=".0%" if what == "idle" else ".2f",
            key=f"compare_{what}_{axis}",
            y_range=(0.0, min(1.0, top * 1.08) or 1.0) if what == "idle" else None,
        )
        word = "idle share" if what == "idle" else "mean reward of ten steps"
        return chart(
            figure,
            label=f"{word.capitalize()} of {len(runs)} runs over {title}",
            table=compare_rows.lines_table(lines, title, word),
        )

    return kept_chart(f"compare_{what}", (axis, _stamp(runs)), build)


def _stamp(runs: Sequence[Compared]) -> tuple[object, ...]:
    return tuple((run.run_id, run.state, run.run.steps, run.run.measured_until) for run in runs)


def losses(runs: Sequence[Compared], listed: Sequence[Listed], price: Price | None) -> None:
    """Lost time by cause, structural and residual bubbles, idle time against staleness."""
    measured = [(n, r) for n, r in zip(compare_rows.names(runs), runs, strict=True) if r.figures.idle is not None]
    if not measured:
        return
    with st.container(border=True, key="compare_lost"):
        amounts = [(name, run.figures, run.device_s) for name, run in measured]
        lost_chart(amounts, price, badge=badge(runs), key="compare_lost_chart")
    left, right = st.columns(2, gap="small")
    with left, st.container(border=True, height="stretch", key="compare_bubbles"):
        st.markdown(
            f"**Structural and residual bubbles**{badge(runs)}", help=helps_of("structural_bubble", "residual_bubble")
        )
        bars = compare_rows.bubble_bars(runs)
        if bars:
            shown = chart(
                figures.bubbles(bars, x_format=".0%", x_title="share of the run's device time"),
                label=f"Structural and residual bubbles of {len(bars)} runs, in share of device time",
                table={
                    "columns": ["run", "structural", "residual"],
                    "rows": [[b.name, *(f"{b.parts[part]:.2%}" for part in ("structural", "residual"))] for b in bars],
                },
            )
            live_chart(shown, key="compare_bubbles_chart")
        else:
            st.caption("Runs without pools, or without steps, have no split to blame.")
    with right, st.container(border=True, height="stretch", key="compare_staleness"):
        called = dict(zip([run.run_id for run in runs], compare_rows.names(runs), strict=True))
        staleness_chart(listed, called, badge=badge(runs), key="compare_staleness_chart")


def lost_chart(runs: Sequence[tuple[str, Figures, float | None]], price: Price | None, *, badge: str, key: str) -> None:
    """Stacked bars of lost time by cause: name, figures and device-seconds of each run, in the unit that is chosen."""
    units = [unit for unit in UNITS if unit != "money" or price is not None]
    with st.container(horizontal=True, vertical_alignment="center", horizontal_alignment="distribute"):
        st.markdown(f"**Lost device time by cause, per run**{badge}", width="content", help=help_of("lost_by_cause"))
        unit = st.segmented_control(
            "Unit",
            units,
            default="share",
            required=True,
            key="unit",
            bind="query-params",
            label_visibility="collapsed",
        )
    unit = str(unit) if unit in units else "share"
    bars = compare_rows.loss_bars(runs, unit, price)
    most = max((sum(bar.parts.values()) for bar in bars), default=0.0)
    shown = chart(
        figures.lost_by_cause(bars, **compare_rows.unit_format(unit, most, price)),
        label=f"Lost device time by cause of {len(bars)} runs, in {unit}",
        table=compare_rows.loss_table(bars, unit),
        note="from the first possible rollout to the last step",
    )
    live_chart(shown, key=key)


def staleness_chart(listed: Sequence[Listed], called: Mapping[str, str], *, badge: str, key: str) -> None:
    """Idle time against staleness, a dot a run. called: run id -> name, where it is not the id."""
    st.markdown(f"**Idle against staleness**{badge}", help=help_of("idle_share"))
    dots = compare_rows.dots(listed, called)
    if not dots:
        st.caption("No run has both a staleness and a measured idle share.")
        return
    shown = chart(
        figures.idle_against_staleness(dots, named=len(dots) <= MOST),
        label=f"Idle share of device time against staleness, {len(dots)} runs",
        table={
            "columns": ["run", "arm", "staleness", "idle"],
            "rows": [[dot.name, dot.arm, dot.staleness, f"{dot.idle:.2%}"] for dot in dots],
        },
    )
    live_chart(shown, key=key)
