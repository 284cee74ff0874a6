"""How the policy learns: reward, held-out accuracy, response length, loss, mismatch KL and lag per step. Pure.

One figure with a shared step axis, so that zooming into one panel zooms all of them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import plotly.graph_objects as go

from app import palette
from app.figures.command_marks import LANE_PX, CommandMarks, drawn
from storage.records import EvalRow, StepRow

SMOOTHING_STEPS = 10
"""A reward is a mean over a few hundred answers: ten steps show the trend that one hides."""

MAX_POINTS = 1200
"""More points than pixels cost and show nothing."""

LOW_ACCURACY = 0.2
"""A label below a point lower than this would leave its panel."""

EARLY_SHARE = 0.4
"""A label of a point further left than this would leave its panel."""

HEIGHT_PX = 480

COLUMNS = ((0.0, 0.292), (0.354, 0.646), (0.708, 1.0))
ROWS = ((0.585, 0.96), (0.0, 0.375))
"""Domains of the panels, in parts of the figure: room between them for titles and ticks."""

NAMES = ("Reward", "Held-out accuracy", "Response length", "Loss", "Mismatch KL", "Lag against its cap")
REWARD, ACCURACY, LENGTH, LOSS, KL, LAG = range(1, 7)
"""Panels, numbered row by row as Plotly numbers their axes."""

CAP_COLOUR = "#8A909C"

PANEL_PX = 330
"""About the width of a panel on a screen: labels of commands are kept apart by it."""

TITLE_PX = 26
"""From a panel to the middle of its title; labels of commands stand between the two."""


def learning(steps: Sequence[StepRow], evals: Sequence[EvalRow], commands: CommandMarks | None = None) -> go.Figure:
    """Six panels over the step. Gaps stay gaps: a figure that a step did not report is not drawn as 0."""
    shown = thin(steps)
    x = [s.step for s in shown]
    rewards = [s.reward_mean for s in shown]
    lines = [
        _line(REWARD, x, rewards, "reward", "reward", faint=True),
        _line(REWARD, x, smooth(rewards), f"reward, mean of {SMOOTHING_STEPS}", "reward"),
        *_accuracy(evals, max(x, default=0)),
        _line(LENGTH, x, [s.response_len_mean for s in shown], "tokens per response", "length"),
        _line(LOSS, x, [s.loss for s in shown], "loss", "loss"),
        _line(KL, x, [number(s.metrics.get("mismatch_kl")) for s in shown], "mismatch KL", "control"),
        *_lag(x, shown),
    ]
    marks = commands or CommandMarks()
    layout = _layout(shown, steps, evals, marks.height_px)
    panel_px = (layout["height"] - layout["margin"]["t"] - layout["margin"]["b"]) * (ROWS[0][1] - ROWS[0][0])
    for panel in range(1, 7):
        on = _suffix(panel)
        crossing = drawn(
            marks, x=f"x{on}", y=f"y{on} domain", y0=0, y1=lambda lane: 1 + (lane + 0.55) * LANE_PX / panel_px, edge=1
        )
        layout["annotations"] += crossing["annotations"]
        layout["shapes"] += crossing["shapes"]
    return go.Figure({"data": lines, "layout": layout})


def step_span(steps: Sequence[StepRow], evals: Sequence[EvalRow]) -> tuple[float, float]:
    """What the axes of steps show."""
    known = max(steps[-1].step if steps else 0, *(e.step for e in evals), 1)
    # a change governs the step that is being made from its first moment on
    return 0.0, max(known * 1.02, known + 1.0)


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


def number(value: object) -> float | None:
    """A finite number, or None for anything else that a step may report."""
    return float(value) if isinstance(value, int | float) and math.isfinite(value) else None


def _accuracy(evals: Sequence[EvalRow], last: int) -> list[dict[str, Any]]:
    both = len({e.name for e in evals}) > 1
    lines = []
    # beside the newest point, on the side where there is room
    early = max((e.step for e in evals), default=0) < EARLY_SHARE * last
    for name, series, title in (("held_out", "accuracy", "held-out"), ("control", "control", "control")):
        rows = sorted((e for e in evals if e.name == name), key=lambda e: e.step)
        if rows:
            x, y = [e.step for e in rows], [e.accuracy for e in rows]
            # below its line, unless that is below the axis
            low = name == "held_out" and y[-1] > LOW_ACCURACY
            place = f"{'bottom' if low else 'top'} {'right' if early else 'left'}"
            told = title if both else ""
            lines.append(_line(ACCURACY, x, y, title, series, markers=True, told=told, place=place))
    return lines


def _lag(x: Sequence[int], steps: Sequence[StepRow]) -> list[dict[str, Any]]:
    cap = {
        **_axes(LAG), "type": "scatter", "x": list(x), "y": [lag_cap(s.staleness) for s in steps], "name": "cap",
        "mode": "lines", "line": {"dash": "dash", "width": 1.5, "shape": "hv", "color": CAP_COLOUR},
        "hovertemplate": "%{y}",
    }  # fmt: skip
    return [
        cap,
        _line(LAG, x, [s.lag_max for s in steps], "largest lag", "loss", dots=True, told="largest"),
        _line(LAG, x, [lag_mean(s) for s in steps], "mean lag", "reward", told="mean", place="bottom left"),
    ]


def _line(
    panel: int,
    x: Sequence[int],
    y: Sequence[float | None],
    name: str,
    series: str,
    *,
    faint: bool = False,
    markers: bool = False,
    dots: bool = False,
    told: str = "",
    place: str = "top left",
) -> dict[str, Any]:
    """`told` is written at the newest point, so that no legend is needed."""
    colour, dark = palette.SERIES[series], palette.SERIES_DARK[series]
    known = sum(value is not None for value in y)
    # a single point has no line, and would be invisible
    mode = "markers" if dots or known == 1 else "lines+markers" if markers else "lines"
    line: dict[str, Any] = {
        **_axes(panel),
        "type": "scatter",
        "x": list(x),
        "y": list(y),
        "name": name,
        "mode": mode + ("+text" if told else ""),
        "opacity": 0.35 if faint else 1.0,
        "line": {"color": colour, "width": 1.2 if faint else 2.0},
        "marker": {"color": colour, "size": 4 if dots else 6},
        "meta": {"dark": {"line": {"color": dark}, "marker": {"color": dark}, "textfont": {"color": dark}}},
        "hovertemplate": "%{y:.4g}",
    }
    if told:
        line["text"] = [*[""] * (len(x) - 1), told]
        line["textposition"] = place
        line["textfont"] = {"color": colour, "size": 12}
    return line


def _suffix(panel: int) -> str:
    return "" if panel == 1 else str(panel)


def _axes(panel: int) -> dict[str, str]:
    return {"xaxis": f"x{_suffix(panel)}", "yaxis": f"y{_suffix(panel)}"}


def _layout(
    shown: Sequence[StepRow], steps: Sequence[StepRow], evals: Sequence[EvalRow], lanes_px: int
) -> dict[str, Any]:
    """lanes_px: room for labels between each panel and its title, in both rows."""
    span = list(step_span(steps, evals))
    above = max(0, lanes_px - (TITLE_PX - LANE_PX))
    highest = max((c for s in shown if (c := lag_cap(s.staleness)) is not None), default=0)
    special: dict[int, dict[str, Any]] = {
        REWARD: {"rangemode": "tozero"},
        ACCURACY: {"range": [0, 1.08], "tickformat": ".0%"},
        LENGTH: {"rangemode": "tozero"},
        LAG: {"range": [-0.1, max(1, highest) + 0.5], "dtick": max(1, highest // 4)},
    }
    axes: dict[str, Any] = {}
    for panel in range(1, 7):
        across, down = COLUMNS[(panel - 1) % 3], ROWS[(panel - 1) // 3]
        axes[f"xaxis{_suffix(panel)}"] = {
            "domain": list(across), "anchor": f"y{_suffix(panel)}", "range": span, "zeroline": False,
            "showgrid": False, "ticks": "outside", "ticklen": 4, **({} if panel == 1 else {"matches": "x"}),
            **({"title": {"text": "step", "standoff": 4}} if panel > 3 else {}),
        }  # fmt: skip
        axes[f"yaxis{_suffix(panel)}"] = {
            "domain": list(down), "anchor": f"x{_suffix(panel)}", "zeroline": False, "nticks": 5, "fixedrange": True,
            **special.get(panel, {}),
        }  # fmt: skip
    latest = _latest(steps, evals)
    titles = [
        {
            "text": f"<b>{name}</b>  {told}", "xref": f"x{_suffix(panel)} domain", "yref": f"y{_suffix(panel)} domain",
            "x": 0, "y": 1, "yshift": TITLE_PX + above, "xanchor": "left", "yanchor": "middle", "showarrow": False,
            "font": {"size": 13},
        }
        for panel, (name, told) in enumerate(zip(NAMES, latest, strict=True), start=1)
    ]  # fmt: skip
    return {
        "height": HEIGHT_PX + 2 * lanes_px,
        "margin": {"l": 48, "r": 12, "t": 20 + above, "b": 40},
        "showlegend": False,
        "hovermode": "x unified",
        "uirevision": "learning",
        "meta": {"index": "step"},
        "annotations": titles,
        "shapes": [],
        **axes,
    }


def _latest(steps: Sequence[StepRow], evals: Sequence[EvalRow]) -> tuple[str, ...]:
    """What each panel's title says, in the order of `NAMES`."""
    last = steps[-1] if steps else None
    newest = {name: max((e for e in evals if e.name == name), key=lambda e: e.step, default=None)
              for name in ("held_out", "control")}  # fmt: skip
    held_out, control = newest["held_out"], newest["control"]
    accuracy = f"{held_out.accuracy:.1%}" if held_out else "–"
    if control:
        accuracy += f" · control {control.accuracy:.1%}"
    reward = (smooth([s.reward_mean for s in steps[-SMOOTHING_STEPS:]]) or [None])[-1]
    kl = number(last.metrics.get("mismatch_kl")) if last else None
    length = last.response_len_mean if last else None
    return (
        "–" if reward is None else f"{reward:.2f}",
        accuracy,
        "–" if length is None else f"{length:.1f} tokens",
        "–" if last is None or last.loss is None else f"{last.loss:.4f}",
        "–" if kl is None else f"{kl:.2g}",
        "–" if last is None or last.lag_max is None else f"{last.lag_max} / {lag_cap(last.staleness)}",
    )
