"""What a change of a running job's settings is expected to do, from the simulator with the run's own speeds.

    the run's profile, settings now and after --simulator, paired seeds--> ratios --times measured--> Prediction

The model's own bias cancels in the ratio, and its error on this run widens the band. Outside what the simulator was
compared with there is no number but the reason why.
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import Any, Literal

from planner.intervals import mean_interval
from planner.policy.arms import LENDING, consume_of
from planner.policy.improvements import DEFAULT, Improvements
from planner.policy.pulls import OURS
from planner.profile import Profile
from planner.simulator.setup import Setup
from planner.simulator.simulator import Simulator
from planner.simulator.trace import Trace
from planner.throughput import steady

SEEDS = 4
"""Pairs of simulated runs: enough for an interval, and a review is waited for."""

STEPS = 10
"""Steps of each beyond those in which a run fills and drains."""

LEAST_STEPS = 5
"""Measured steps below which nothing is said: the speeds are those of a start."""

MAX_STALENESS = 4.0
"""Simulated and emulated runs were compared up to here."""

MOST_SEQUENCES = 400_000
"""Responses of all simulated runs of one prediction; each costs some ten microseconds."""

CONFIDENCE = 0.9


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """What does not change: the run's speeds and its job."""

    profile: Profile | None
    """As the run measured it; None: not all of it is known."""
    measured: bool = True
    """Whether the run measured that profile itself; otherwise its job gave it."""
    prompts_per_step: int
    group_size: int
    rollout_replica_size: int
    train_replica_size: int
    consume: Literal["stream", "whole_batch"] | None = None
    """stream or whole_batch where the job says so; None follows the arm."""
    improvements: Improvements = DEFAULT
    seed: int = 0
    recorded: tuple[tuple[int, ...], ...] | None = None
    """Response tokens of the run's newest groups; each seed takes them in another order. None: lengths are drawn from
    the profile."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lately:
    """What the run did in its last steps."""

    steps: int
    tokens_per_s: float | None
    idle: Mapping[str, float]
    """Cause -> share of device time."""
    lag: float | None
    """Mean versions that groups were late."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Band:
    """A figure and where it should lie."""

    low: float
    middle: float
    high: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Prediction:
    """Before and after a change."""

    why_not: str | None = None
    """Why nothing is said; everything below is empty then."""
    measured: bool = True
    """Whether the speeds are those that the run measured; otherwise its job gave them."""
    ratio: Band | None = None
    """Throughput after over throughput now."""
    tokens_per_s: Band | None = None
    now: Lately | None = None
    idle: Mapping[str, float] = field(default_factory=dict)
    """Cause -> expected share of device time."""
    idle_bands: Mapping[str, Band] = field(default_factory=dict)
    """The same with where it should lie."""
    idle_total: Band | None = None
    """Of all causes together."""
    lag: float | None = None
    """Mean versions that groups will be late."""
    lag_band: Band | None = None
    model_error: float | None = None
    """Simulated over measured throughput with the settings as they are, less 1."""


def predict(work: Work, before: Mapping[str, Any], after: Mapping[str, Any], now: Lately) -> Prediction:
    """The effect of going from one set of settings to another (both as `engine.config.settings_of` writes them)."""
    if why := _why_not(work, before, after, now):
        return Prediction(why_not=why, now=now)
    assert work.profile is not None
    assert now.tokens_per_s is not None
    steps = STEPS + 2 * math.ceil(max(before["staleness"], after["staleness"], 1))
    sequences = 2 * SEEDS * steps * work.prompts_per_step * work.group_size
    if sequences > MOST_SEQUENCES:
        return Prediction(
            why_not=f"a step of {work.prompts_per_step} x {work.group_size} responses is too much to simulate while "
            "somebody waits",
            now=now,
        )
    try:
        pairs = [
            tuple(_play(_setup(work, settings, steps, work.seed + place)) for settings in (before, after))
            for place in range(SEEDS)
        ]
    except (ValueError, RuntimeError) as reason:
        return Prediction(why_not=f"the simulator cannot play it: {reason}", now=now)
    rates = [(one.throughput, two.throughput) for one, two in pairs]
    if any(not one or not two for one, two in rates):
        return Prediction(why_not="the simulated runs have no steady part", now=now)
    logs = [math.log(two / one) for one, two in rates if one and two]
    middle = fmean(logs)
    bounds = mean_interval(logs, CONFIDENCE)
    assert bounds is not None, "an interval needs two seeds"
    error = fmean(one for one, _ in rates if one) / now.tokens_per_s - 1
    half = (bounds[1] - bounds[0]) / 2 + abs(math.log1p(error))
    ratio = Band(low=math.exp(middle - half), middle=math.exp(middle), high=math.exp(middle + half))
    one, two = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
    bands = _idle(now.idle, one, two)
    lag = _lag_band(now.lag, one, two, after["staleness"])
    return Prediction(
        measured=work.measured,
        ratio=ratio,
        tokens_per_s=Band(
            low=ratio.low * now.tokens_per_s,
            middle=ratio.middle * now.tokens_per_s,
            high=ratio.high * now.tokens_per_s,
        ),
        now=now,
        idle={cause: band.middle for cause, band in bands.items()},
        idle_bands=bands,
        idle_total=_moved(
            sum(now.idle.values()),
            [sum(_shares(t).values()) for t in one],
            [sum(_shares(t).values()) for t in two],
            1.0,
        ),
        lag=None if lag is None else lag.middle,
        lag_band=lag,
        model_error=error,
    )


def _why_not(work: Work, before: Mapping[str, Any], after: Mapping[str, Any], now: Lately) -> str | None:
    if work.profile is None:
        return "the run has not measured all of its speeds and switch costs"
    if now.steps < LEAST_STEPS or not now.tokens_per_s:
        return f"{now.steps} steps were made with the present settings; {LEAST_STEPS} are needed"
    for settings in (before, after):
        if settings["partition"] is None:
            return "a run without pools is not predicted"
        if not 0 <= settings["staleness"] <= MAX_STALENESS:
            return f"staleness {settings['staleness']:g} is outside 0 to {MAX_STALENESS:g}, where the model was tested"
    return None


def _setup(work: Work, settings: Mapping[str, Any], steps: int, seed: int) -> Setup:
    rollout, train = (int(part) for part in str(settings["partition"]).split(":"))
    arm = settings["arm"]
    assert work.profile is not None
    setup = Setup(
        profile=work.profile,
        arm=arm,
        streaming=consume_of(arm, work.consume) == "stream",
        staleness=settings["staleness"],
        rollout_devices=rollout,
        train_devices=train,
        rollout_replica_size=work.rollout_replica_size,
        train_replica_size=work.train_replica_size,
        prompts_per_step=work.prompts_per_step,
        group_size=work.group_size,
        steps=steps,
        seed=seed,
        improvements=work.improvements if arm in OURS else DEFAULT,
        rollout_on_train=settings["rollout_on_train"],
        train_on_rollout=settings["train_on_rollout"],
        lend_cap=settings["lend_cap"],
        min_lease_s=settings["min_lease_s"],
        recorded=None if work.recorded is None else _shuffled(work.recorded, seed),
    )
    if arm in LENDING and not setup.lendable:
        raise ValueError(f"partition {settings['partition']} has no whole blocks that could be lent")
    return setup


def _shuffled(groups: Sequence[tuple[int, ...]], seed: int) -> tuple[tuple[int, ...], ...]:
    """The same work in another order, the same for both settings of a pair: what the next steps bring is not known."""
    return tuple(random.Random(seed).sample(groups, len(groups)))


def _play(setup: Setup) -> Trace:
    return Simulator(setup).run()


def _idle(measured: Mapping[str, float], before: Sequence[Trace], after: Sequence[Trace]) -> dict[str, Band]:
    """Cause -> share, the largest first."""
    one, two = [_shares(trace) for trace in before], [_shares(trace) for trace in after]
    bands = {
        cause: _moved(
            measured.get(cause, 0.0),
            [each.get(cause, 0.0) for each in one],
            [each.get(cause, 0.0) for each in two],
            1.0,
        )
        for cause in {*measured, *(cause for each in (*one, *two) for cause in each)}
    }
    return {cause: band for cause, band in sorted(bands.items(), key=lambda item: -item[1].middle) if band.middle > 0}


def _moved(measured: float, before: Sequence[float], after: Sequence[float], most: float) -> Band:
    """What was measured, moved by what the simulator says will change, from 0 to `most`. The band: that of the paired
    differences, and as much more as the simulator is off with the settings as they are."""
    moves = [two - one for one, two in zip(before, after, strict=True)]
    bounds = mean_interval(moves, CONFIDENCE)
    assert bounds is not None, "an interval needs two seeds"
    half = (bounds[1] - bounds[0]) / 2 + abs(fmean(before) - measured)
    middle = measured + fmean(moves)
    low, middle, high = (min(most, max(0.0, value)) for value in (middle - half, middle, middle + half))
    return Band(low=low, middle=middle, high=high)


def _shares(trace: Trace) -> dict[str, float]:
    return {cause: seconds / trace.account.total_s for cause, seconds in trace.account.idle.items()}


def _lag_band(measured: float | None, before: Sequence[Trace], after: Sequence[Trace], staleness: float) -> Band | None:
    one, two = [_lag(trace) for trace in before], [_lag(trace) for trace in after]
    return _moved(fmean(one) if measured is None else measured, one, two, float(math.ceil(staleness)))


def _lag(trace: Trace) -> float:
    """Mean versions late of the groups of the steady part."""
    counts = [pair for step in steady(trace.steps, trace.staleness) for pair in step.lags.items()]
    return sum(lag * count for lag, count in counts) / sum(count for _, count in counts)
