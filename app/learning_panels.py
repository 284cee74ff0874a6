"""What the Learning page draws: learning, the health of its correction, and speed, panel by panel. Pure.

A figure that a step did not report is a gap, never 0; a part of a step (a lag, a role) that had no groups is one too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from app import palette
from app.clock import DASH, count
from app.figures.learning import MAX_POINTS, SMOOTHING_STEPS, lag_cap, lag_mean, number, smooth
from app.figures.panels import Panel, Series
from app.modelled import Pace
from app.step_speed import Axis
from storage.records import EvalRow, StepRow

SPLITS = {"": "all groups", "by_lag": "by lag", "by_role": "primary or auxiliary"}
"""How the correction's figures are told apart -> what the reader calls it."""

ROLES = {"primary": "primary trainers", "auxiliary": "auxiliary trainers"}

PARTS = ("reward", "length", "control", "accuracy", "loss")
"""Colours of lags 0, 1, ...; a larger lag has the last one."""

MAX_LAGS = 5
"""Lines that can be told apart; larger lags are left to the table of a step."""

CAP = ("#8A909C", "#8A909C")


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """What the panels are made of, step by step."""

    steps: Sequence[StepRow]
    """In order."""
    evals: Sequence[EvalRow]
    """In order."""
    axis: Axis
    """Positions of the steps."""
    speed: Sequence[float | None]
    """Tokens per second of each step."""
    idle: Sequence[float | None]
    """Idle share of each step."""


def colours(series: str) -> tuple[str, str]:
    """On a light page and on a dark one."""
    return palette.SERIES[series], palette.SERIES_DARK[series]


def of_learning(seen: Seen, split: str, pace: Pace) -> list[Panel]:
    """Every panel, learning beside speed. split: one of `SPLITS`."""
    thin = _thin(seen)
    return [
        _reward(thin),
        *speed(thin, pace),
        _accuracy(seen),
        _simple(thin, "Response length", "length", lambda s: s.response_len_mean, "{:.1f} tokens",
                {"rangemode": "tozero"}),
        _lag(thin),
        _simple(thin, "Loss", "loss", lambda s: s.loss, "{:.4f}"),
        _simple(thin, "Entropy", "accuracy", lambda s: s.entropy, "{:.2f} nats", {"rangemode": "tozero"}),
        _simple(thin, "Gradient norm", "control", lambda s: s.grad_norm, "{:.3g}", {"rangemode": "tozero"}),
        _of_parts(thin, "Mismatch KL", (("mismatch_kl", "solid"),), split, "{:.2g} nats", {"rangemode": "tozero"}),
        _of_parts(
            thin, "Capped and clipped", (("capped_share", "solid"), ("clip_share", "dot")), split, "{:.2%}",
            {"rangemode": "tozero", "tickformat": ".2%"},
        ),
        _of_parts(thin, "Effective sample size", (("ess", "solid"),), split, "{:.1%}",
                  {"range": [-0.03, 1.05], "tickformat": ".0%"}),
        _simple(
            thin, "Groups without signal", "loss", lambda s: s.no_signal / s.groups if s.groups else None, "{:.0%}",
            {"range": [-0.03, 1.05], "tickformat": ".0%"},
        ),
        _simple(thin, "Learning rate", "length", lambda s: number(s.metrics.get("learning_rate")), "{:.3g}",
                {"rangemode": "tozero", "tickformat": ".1e"}),
    ]  # fmt: skip


def of_speed(seen: Seen, pace: Pace) -> list[Panel]:
    """The panels of devices that learn nothing."""
    thin = _thin(seen)
    return [*speed(thin, pace), _lag(thin)]


def speed(seen: Seen, pace: Pace) -> list[Panel]:
    """Tokens per second and idle share of each step."""
    x, steps = seen.axis.x, _numbers(seen)
    rate, idle = (smooth(seen.speed) or [None])[-1], (smooth(seen.idle) or [None])[-1]
    series = [
        Series(name=f"tokens/s{pace.unit}", x=x, y=seen.speed, colours=colours("reward"), faint=True, customdata=steps),
        Series(
            name=f"tokens/s, mean of {SMOOTHING_STEPS}",
            x=x,
            y=smooth(seen.speed),
            colours=colours("reward"),
            customdata=steps,
        ),
    ]
    lost = [
        Series(name="idle share", x=x, y=seen.idle, colours=colours("loss"), faint=True, customdata=steps),
        Series(
            name=f"idle share, mean of {SMOOTHING_STEPS}",
            x=x,
            y=smooth(seen.idle),
            colours=colours("loss"),
            customdata=steps,
        ),
    ]
    return [
        Panel(name="Tokens/s", latest=DASH if rate is None else count(rate) + pace.unit, series=series,
              axis={"rangemode": "tozero"}),
        Panel(name="Idle share", latest=DASH if idle is None else f"{idle:.0%}", series=lost,
              axis={"range": [-0.03, 1.05], "tickformat": ".0%"}),
    ]  # fmt: skip


def legend(steps: Sequence[StepRow], split: str) -> list[dict[str, str]]:
    """What the colours of the parts mean; none where nothing is told apart."""
    names = parts(steps, split).values() if split else ()
    return [{"name": name, "colour": palette.SERIES[PARTS[place]], "shape": "box"} for place, name in enumerate(names)]


def parts(steps: Sequence[StepRow], split: str) -> dict[str, str]:
    """Key -> name of the parts that any of these steps tells apart; empty where none does."""
    found: dict[str, int] = {}
    for step in steps:
        for key in _split(step, split):
            found[key] = found.get(key, 0) + 1
    if split == "by_role":
        return {role: name for role, name in ROLES.items() if role in found}
    return {key: f"lag {key}" for key in sorted(found, key=int)[:MAX_LAGS]}


def _split(step: StepRow, split: str) -> Mapping[str, Any]:
    found = step.metrics.get(split)
    return found if isinstance(found, Mapping) else {}


def _numbers(seen: Seen) -> list[float]:
    """Sent back by a click."""
    return [float(step.step) for step in seen.steps]


def _thin(seen: Seen) -> Seen:
    """Every n-th step, counted from the newest so that it is always there; at most `MAX_POINTS`."""
    stride = -(-len(seen.steps) // MAX_POINTS) or 1
    if stride == 1:
        return seen

    def some(values: Sequence[Any]) -> list[Any]:
        return list(values[::-1][::stride])[::-1]

    axis = Axis(title=seen.axis.title, x=some(seen.axis.x), zero=seen.axis.zero)
    return Seen(
        steps=some(seen.steps), evals=seen.evals, axis=axis, speed=some(seen.speed), idle=some(seen.idle)
    )  # fmt: skip


def _reward(seen: Seen) -> Panel:
    x, rewards = seen.axis.x, [step.reward_mean for step in seen.steps]
    last = (smooth(rewards) or [None])[-1]
    return Panel(
        name="Reward",
        latest=DASH if last is None else f"{last:.2f}",
        series=[
            Series(name="reward", x=x, y=rewards, colours=colours("reward"), faint=True, customdata=_numbers(seen)),
            Series(
                name=f"reward, mean of {SMOOTHING_STEPS}",
                x=x,
                y=smooth(rewards),
                colours=colours("reward"),
                customdata=_numbers(seen),
            ),
        ],
        axis={"rangemode": "tozero"},
    )


def _accuracy(seen: Seen) -> Panel:
    """Of the versions that were evaluated; version 0 stands where the run began."""
    at = [float(step.step) for step in seen.steps]
    series, told = [], []
    for name, colour, title in (("held_out", "accuracy", "held-out"), ("control", "control", "control")):
        rows = sorted((e for e in seen.evals if e.name == name), key=lambda e: e.step)
        if rows:
            x = [_position(e.step, at, seen.axis) for e in rows]
            y = [e.accuracy for e in rows]
            series.append(
                Series(name=f"{title} accuracy", x=x, y=y, colours=colours(colour), markers=True,
                       dash="dot" if name == "control" else "solid",
                       customdata=[float(e.step) for e in rows])
            )  # fmt: skip
            told.append(f"{y[-1]:.1%}" if name == "held_out" else f"control (dotted) {y[-1]:.1%}")
    return Panel(
        name="Held-out accuracy",
        latest=" · ".join(told) or DASH,
        series=series,
        axis={"range": [-0.03, 1.08], "tickformat": ".0%"},
    )


def _position(version: int, at: Sequence[float], axis: Axis) -> float:
    """Where a version lies on the axis: at the end of the step that made it."""
    first = (at[0] if at else 1.0) - 1.0
    return float(np.interp(version, [first, *at], [axis.zero, *axis.x]))


def _lag(seen: Seen) -> Panel:
    x, last = seen.axis.x, seen.steps[-1] if seen.steps else None
    caps = [lag_cap(step.staleness) for step in seen.steps]
    highest = max((cap for cap in caps if cap is not None), default=0)
    return Panel(
        name="Lag against its cap",
        latest=DASH if last is None or last.lag_max is None else f"{last.lag_max} / {lag_cap(last.staleness)}",
        series=[
            Series(name="cap", x=x, y=caps, colours=CAP, dash="dash", customdata=_numbers(seen)),
            Series(name="largest lag", x=x, y=[s.lag_max for s in seen.steps], colours=colours("loss"),
                   told="largest", customdata=_numbers(seen)),
            Series(name="mean lag", x=x, y=[lag_mean(s) for s in seen.steps], colours=colours("reward"), told="mean",
                   place="bottom left",
                   customdata=_numbers(seen)),
        ],
        axis={"range": [-0.1, max(1, highest) + 0.5], "dtick": max(1, highest // 4)},
    )  # fmt: skip


def _simple(
    seen: Seen,
    name: str,
    colour: str,
    value: Callable[[StepRow], float | None],
    told: str,
    axis: dict[str, Any] | None = None,
) -> Panel:
    """One figure of each step."""
    values = [value(step) for step in seen.steps]
    last = values[-1] if values else None
    line = Series(name=name.lower(), x=seen.axis.x, y=values, colours=colours(colour), customdata=_numbers(seen))
    return Panel(name=name, latest=DASH if last is None else told.format(last), series=[line], axis=axis or {})


def _of_parts(
    seen: Seen, name: str, figures: Sequence[tuple[str, str]], split: str, told: str, axis: dict[str, Any]
) -> Panel:
    """A figure of all groups of each step, or of each part of them."""
    series: list[Series] = []
    last = [number(seen.steps[-1].metrics.get(key)) if seen.steps else None for key, _ in figures]
    for key, dash in figures:
        what = {"mismatch_kl": "mismatch KL", "capped_share": "capped", "clip_share": "clipped", "ess": "ESS"}[key]
        if not split:
            values = [number(step.metrics.get(key)) for step in seen.steps]
            series.append(
                Series(name=what, x=seen.axis.x, y=values, colours=colours("control"), dash=dash,
                       customdata=_numbers(seen))
            )  # fmt: skip
            continue
        for place, (part, called) in enumerate(parts(seen.steps, split).items()):
            values = [number(_split(step, split).get(part, {}).get(key)) for step in seen.steps]
            series.append(
                Series(name=f"{what}, {called}", x=seen.axis.x, y=values, colours=colours(PARTS[place]), dash=dash,
                       customdata=_numbers(seen))
            )  # fmt: skip
    latest = " · ".join(DASH if value is None else told.format(value) for value in last)
    return Panel(name=name, latest=latest, series=series, axis=axis)
