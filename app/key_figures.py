"""The key figures of the Live page: five numbers and the time left. Pure: records and exact sums in, text out.

A figure that cannot be known yet is a dash, never 0.
"""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from app.clock import DASH, count, device_time
from app.glossary import plain_of
from app.modelled import EMULATED, Pace, pace_of
from planner.policy.bound import Bound
from planner.throughput import throughput
from storage.records import RunRow, StepRow
from storage.words import COLUMNS, IDLE_COLUMNS, TERMINAL

RECENT_S = 300.0
"""Window of "now": long enough to hold several steps of a big job, short enough to show a change."""

RECENT_STEPS = 20
"""Steps behind the lag, the rate and the time left: one step is too noisy."""

SPARK_POINTS = 40
"""Points of a small line under a number."""

STEADY = 0.03
"""Rates of ten steps differ by this much by chance."""

Sums = Mapping[str, float]
"""Rollup column -> device-seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Number:
    """One card."""

    key: str
    """Stable name: busy, idle, tokens, lag, buffer."""
    label: str
    """What it is."""
    value: str
    """With its unit, or a dash."""
    note: str = ""
    """What to compare it with."""
    tone: str = "off"
    """good, bad, or off for neither."""
    help: str = ""
    """How it is computed."""
    exact: float | None = None
    """The unrounded figure: a share, device-seconds, tokens per second, versions or groups."""
    spark: tuple[float, ...] = ()
    """Recent values, oldest first."""
    tag: str = ""
    """What kind of figure it is, where it is not a measurement: EMULATED."""


def total(per_device: Mapping[int, Sums], devices: Iterable[int] | None = None) -> dict[str, float]:
    """Column -> seconds, summed over `devices` (all when None)."""
    result: dict[str, float] = {}
    for device in per_device if devices is None else devices:
        for column, seconds in per_device.get(device, {}).items():
            result[column] = result.get(column, 0.0) + seconds
    return result


def idle_seconds(sums: Sums) -> float:
    """Device-seconds of bubbles, whatever the cause."""
    return math.fsum(sums.get(column, 0.0) for column in IDLE_COLUMNS)


def idle_fraction(sums: Sums) -> float | None:
    """Idle over known device time; None when nothing is known."""
    known = math.fsum(sums.values())
    return idle_seconds(sums) / known if known > 0 else None


def lag_percentile(steps: Iterable[StepRow], share: float = 0.95) -> int | None:
    """The smallest lag, in versions, that at least `share` of the consumed groups do not exceed."""
    histogram: dict[int, int] = {}
    for step in steps:
        for lag, groups in step.lag.items():
            histogram[lag] = histogram.get(lag, 0) + groups
    needed = share * sum(histogram.values())
    reached = 0
    for lag in sorted(histogram):
        reached += histogram[lag]
        if reached >= needed:
            return lag
    return None


def step_times(steps: Sequence[StepRow]) -> list[tuple[int, float]]:
    """(tokens, seconds) of each step in order; a step begins when the one before it ends, so that waiting counts."""
    return [(s.prompt_tokens + s.response_tokens, s.t_end - s.t_start) for s in sorted(steps, key=lambda s: s.step)]


def tokens_per_s(steps: Sequence[StepRow], staleness: float) -> float | None:
    """Steady throughput of the run so far (design.md section 8)."""
    return throughput(step_times(steps), staleness)


def recent_rates(steps: Sequence[StepRow]) -> tuple[float, ...]:
    """Tokens per second of the last steps."""
    return tuple(tokens / seconds for tokens, seconds in step_times(steps)[-SPARK_POINTS:] if seconds > 0)


def seconds_left(run: RunRow, steps: Sequence[StepRow]) -> float | None:
    """Steps still to do times the median time between the last ends of steps; None before two steps ended."""
    if run.steps_target is None or run.state in TERMINAL:
        return None
    ends = sorted(s.t_end for s in steps)[-RECENT_STEPS - 1 :]
    if len(ends) < 2:
        return None
    pace = statistics.median(b - a for a, b in itertools.pairwise(ends))
    return max(0, run.steps_target - done(run)) * pace


def done(run: RunRow) -> int:
    """Steps behind the run's present weights, those before it was resumed included."""
    return (run.start_step or 0) + (run.steps or 0)


def busy_over_time(seconds: np.ndarray) -> tuple[float, ...]:
    """Busy share of all rows in about `SPARK_POINTS` parts of a window, unknown parts left out.

    seconds: float64 [rows, bins, COLUMNS].
    """
    parts = np.array_split(seconds.sum(axis=0), min(SPARK_POINTS, max(1, seconds.shape[1])))
    idle = [COLUMNS.index(column) for column in IDLE_COLUMNS]
    return tuple(1.0 - float(part[:, idle].sum() / known) for part in parts if (known := part.sum()) > 0)


def five_numbers(
    run: RunRow,
    *,
    recent: Sums,
    whole: Sums,
    steps: Sequence[StepRow],
    prompts_per_step: int | None,
    busy: tuple[float, ...] = (),
) -> list[Number]:
    """recent: sums of the last `RECENT_S`; whole: sums since the first rollout could start; busy: recent shares.

    All in the seconds that are stored; what is shown of emulated devices is modelled and says so.
    """
    pace = pace_of(run)
    cards = [
        _busy(recent, whole, busy),
        _idle(whole, pace),
        _tokens(steps, run.staleness or 0.0, pace),
        _lag(run, steps),
        _buffer(run, prompts_per_step),
    ]
    return [replace(card, tag=EMULATED) for card in cards] if pace.emulated else cards


def _busy(recent: Sums, whole: Sums, over_time: tuple[float, ...]) -> Number:
    now, mean = idle_fraction(recent), idle_fraction(whole)
    note, tone = "", "off"
    if now is not None and mean is not None:
        difference = (mean - now) * 100
        note = f"{difference:+.1f} pp against the run's mean" if abs(difference) >= 0.05 else "as the run's mean"
        tone = "good" if difference >= 1 else "bad" if difference <= -1 else "off"
    return Number(
        key="busy",
        label="Busy, last 5 min",
        value=DASH if now is None else f"{(1 - now) * 100:.1f} %",
        note=note,
        tone=tone,
        help=f"{plain_of('busy_now')}\nBelow it: {plain_of('busy_change')}",
        exact=None if now is None else 1 - now,
        spark=over_time,
    )


def _idle(whole: Sums, pace: Pace) -> Number:
    share, lost_s = idle_fraction(whole), pace.seconds(idle_seconds(whole))
    return Number(
        key="idle",
        label=f"Idle so far{pace.unit}",
        value=DASH if share is None else device_time(lost_s),
        note="" if share is None else f"{share * 100:.1f} % of the run",
        exact=None if share is None else lost_s,
        help=plain_of("idle_so_far") + _reckoned(pace),
    )


def _reckoned(pace: Pace) -> str:
    return f"\nIn the time of the devices that are stood for: {pace.second}." if pace.emulated else ""


def _tokens(steps: Sequence[StepRow], staleness: float, pace: Pace) -> Number:
    reached, rates = tokens_per_s(steps, staleness), tuple(pace.rate(rate) for rate in recent_rates(steps))
    rate = None if reached is None else pace.rate(reached)
    note, tone = "", "off"
    if rate and len(rates) >= RECENT_STEPS:
        change = statistics.median(rates[-RECENT_STEPS // 2 :]) / rate - 1
        steady = abs(change) < STEADY
        note = "steady" if steady else f"{change * 100:+.0f} % in the last {RECENT_STEPS // 2} steps"
        tone = "off" if steady else "good" if change > 0 else "bad"
    return Number(
        key="tokens",
        label=f"Tokens/s{pace.unit}",
        value=DASH if rate is None else count(rate),
        note=note,
        tone=tone,
        help=plain_of("tokens_per_s") + _reckoned(pace),
        exact=rate,
        spark=rates,
    )


def _lag(run: RunRow, steps: Sequence[StepRow]) -> Number:
    last = sorted(steps, key=lambda s: s.step)[-RECENT_STEPS:]
    lag = lag_percentile(last)
    cap = math.ceil(run.staleness) if run.staleness is not None else None
    shown = DASH if lag is None else str(lag)
    # a step is measured against the bound that was in force for it, which a change may have lowered since
    over = any(s.lag_max is not None and s.staleness is not None and s.lag_max > math.ceil(s.staleness) for s in last)
    at_cap = lag is not None and cap is not None and cap > 0 and lag >= cap
    return Number(
        key="lag",
        label="Lag p95 / cap",
        value=f"{shown} / {DASH if cap is None else cap}",
        note="over the cap" if over else "at the cap" if at_cap else "below the cap" if lag is not None and cap else "",
        tone="bad" if over else "off",
        help=plain_of("lag_p95"),
        exact=lag,
        spark=tuple(sum(k * n for k, n in s.lag.items()) / max(1, sum(s.lag.values())) for s in last if s.lag),
    )


def _buffer(run: RunRow, prompts_per_step: int | None) -> Number:
    room = None
    if prompts_per_step and run.staleness is not None:
        bound = Bound(staleness=run.staleness, prompts_per_step=prompts_per_step)
        room = bound.start_allowance + prompts_per_step
    filled = run.buffer_groups
    return Number(
        key="buffer",
        label="Buffer, groups",
        value=f"{DASH if filled is None else filled} / {DASH if room is None else room}",
        exact=filled,
        note="" if run.in_flight_groups is None else f"{run.in_flight_groups} in flight",
        help=f"{plain_of('buffer_groups')}\nIn flight: {plain_of('in_flight_groups')}",
    )
