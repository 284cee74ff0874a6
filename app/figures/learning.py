"""How the policy learns: reward, held-out accuracy, response length, loss, mismatch KL and lag per step. Pure.

One figure with a shared step axis, so that zooming into one chart zooms all of them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from app import palette
from storage.records import EvalRow, StepRow

SMOOTHING_STEPS = 10
"""A reward is a mean over a few hundred answers: ten steps show the trend that one hides."""

MAX_POINTS = 1200
"""More points than pixels cost and show nothing."""

PANEL_HEIGHT_PX = 210

NAMES = ("Reward", "Held-out accuracy", "Response length", "Loss", "Mismatch KL", "Lag against its cap")


def learning(steps: Sequence[StepRow], evals: Sequence[EvalRow]) -> go.Figure:
    """Six panels over the step. Gaps stay gaps: a figure that a step did not report is not drawn as 0."""
    shown = thin(steps)
    x = [s.step for s in shown]
    figure = make_subplots(rows=2, cols=3, horizontal_spacing=0.06, vertical_spacing=0.2)
    rewards = [s.reward_mean for s in shown]
    _line(figure, 1, 1, x, rewards, "reward", "reward", faint=True)
    _line(figure, 1, 1, x, smooth(rewards), f"reward, mean of {SMOOTHING_STEPS}", "reward")
    both = len({e.name for e in evals}) > 1
    for name, series, title in (("held_out", "accuracy", "held-out"), ("control", "control", "control")):
        rows = sorted((e for e in evals if e.name == name), key=lambda e: e.step)
        if rows:
            x_evals, accuracy = [e.step for e in rows], [e.accuracy for e in rows]
            _line(
                figure,
                1,
                2,
                x_evals,
                accuracy,
                title,
                series,
                markers=True,
                told=title if both else "",
                below=name == "held_out",
            )
    _line(figure, 1, 3, x, [s.response_len_mean for s in shown], "tokens per response", "length")
    _line(figure, 2, 1, x, [s.loss for s in shown], "loss", "loss")
    _line(figure, 2, 2, x, [_number(s.metrics.get("mismatch_kl")) for s in shown], "mismatch KL", "control")
    _lag(figure, x, shown)
    latest = _latest(steps, evals)
    for index, name in enumerate(NAMES):
        axis = "" if index == 0 else str(index + 1)
        figure.add_annotation(
            text=f"<b>{name}</b>  {latest[name]}",
            xref=f"x{axis} domain",
            yref=f"y{axis} domain",
            x=0,
            y=1.16,
            xanchor="left",
            yanchor="middle",
            showarrow=False,
            font={"size": 13},
        )
    figure.update_layout(
        height=2 * PANEL_HEIGHT_PX + 60,
        margin={"l": 48, "r": 12, "t": 40, "b": 40},
        showlegend=False,
        hovermode="x unified",
        uirevision="learning",
        meta={"index": "step"},
    )
    last = max([*x, *(e.step for e in evals), 1])
    figure.update_xaxes(matches="x", zeroline=False, showgrid=False, range=[0, last * 1.02], ticks="outside", ticklen=4)
    figure.update_yaxes(zeroline=False, nticks=5, fixedrange=True)
    figure.update_yaxes(range=[0, 1.08], tickformat=".0%", row=1, col=2)
    highest = max((c for s in shown if (c := lag_cap(s.staleness)) is not None), default=0)
    figure.update_yaxes(range=[-0.1, max(1, highest) + 0.5], dtick=1, row=2, col=3)
    for row, column in ((1, 1), (1, 3)):
        figure.update_yaxes(rangemode="tozero", row=row, col=column)
    for column in (1, 2, 3):
        figure.update_xaxes(title={"text": "step", "standoff": 4}, row=2, col=column)
    return figure


def thin(steps: Sequence[StepRow]) -> list[StepRow]:
    """Every n-th step, counted from the newest so that it is always there; at most `MAX_POINTS`."""
    stride = -(-len(steps) // MAX_POINTS) or 1
    return list(steps[::-1][::stride])[::-1]


def smooth(values: Sequence[float | None], width: int = SMOOTHING_STEPS) -> list[float | None]:
    """Mean of the last `width` known values at each point; None before the first."""
    result: list[float | None] = []
    window: list[float] = []
    for value in values:
        if value is not None:
            window = [*window, value][-width:]
        result.append(math.fsum(window) / len(window) if window else None)
    return result


def lag_cap(staleness: float | None) -> int | None:
    """Largest lag that a staleness allows, in versions: ceil(s)."""
    return None if staleness is None else math.ceil(staleness)


def lag_mean(step: StepRow) -> float | None:
    """Mean lag of the step's groups, in versions."""
    groups = sum(step.lag.values())
    return sum(lag * n for lag, n in step.lag.items()) / groups if groups else None


def _lag(figure: go.Figure, x: Sequence[int], steps: Sequence[StepRow]) -> None:
    caps = [lag_cap(s.staleness) for s in steps]
    figure.add_trace(
        go.Scatter(
            x=list(x),
            y=caps,
            name="cap",
            mode="lines",
            line={"dash": "dash", "width": 1.5, "shape": "hv", "color": "#8A909C"},
            hovertemplate="%{y}",
        ),
        row=2,
        col=3,
    )
    _line(figure, 2, 3, x, [s.lag_max for s in steps], "largest lag", "loss", dots=True, told="largest")
    _line(figure, 2, 3, x, [lag_mean(s) for s in steps], "mean lag", "reward", told="mean")


def _line(
    figure: go.Figure,
    row: int,
    column: int,
    x: Sequence[int],
    y: Sequence[float | None],
    name: str,
    series: str,
    *,
    faint: bool = False,
    markers: bool = False,
    dots: bool = False,
    told: str = "",
    below: bool = False,
) -> None:
    """`told` is written at the newest point, so that no legend is needed."""
    colour, dark = palette.SERIES[series], palette.SERIES_DARK[series]
    known = sum(value is not None for value in y)
    # a single point has no line, and would be invisible
    mode = "markers" if dots or known == 1 else "lines+markers" if markers else "lines"
    if told:
        mode += "+text"
    figure.add_trace(
        go.Scatter(
            x=list(x),
            y=list(y),
            name=name,
            mode=mode,
            opacity=0.35 if faint else 1.0,
            line={"color": colour, "width": 1.2 if faint else 2.0},
            marker={"color": colour, "size": 4 if dots else 6},
            text=[*[""] * (len(x) - 1), told] if told else None,
            textposition="bottom left" if below else "top left",
            textfont={"color": colour, "size": 12},
            meta={"dark": {"line": {"color": dark}, "marker": {"color": dark}, "textfont": {"color": dark}}},
            hovertemplate="%{y:.4g}",
        ),
        row=row,
        col=column,
    )


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) and math.isfinite(value) else None


def _latest(steps: Sequence[StepRow], evals: Sequence[EvalRow]) -> dict[str, str]:
    last = steps[-1] if steps else None
    held_out = [e for e in evals if e.name == "held_out"]
    control = [e for e in evals if e.name == "control"]
    kl = _number(last.metrics.get("mismatch_kl")) if last else None
    accuracy = f"{max(held_out, key=lambda e: e.step).accuracy:.1%}" if held_out else "–"
    if control:
        accuracy += f" · control {max(control, key=lambda e: e.step).accuracy:.1%}"
    smoothed = smooth([s.reward_mean for s in steps])
    reward = smoothed[-1] if smoothed else None
    return {
        "Reward": "–" if reward is None else f"{reward:.2f}",
        "Held-out accuracy": accuracy,
        "Response length": "–"
        if not last or last.response_len_mean is None
        else f"{last.response_len_mean:.1f} tokens",
        "Loss": "–" if not last or last.loss is None else f"{last.loss:.4f}",
        "Mismatch KL": "–" if kl is None else f"{kl:.2g}",
        "Lag against its cap": "–"
        if not last or last.lag_max is None
        else f"{last.lag_max} / {lag_cap(last.staleness)}",
    }
