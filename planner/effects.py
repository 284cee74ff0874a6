"""What a change of a running job's settings did: the same number of steps before and after it, nothing else changed.

    steps, changes -> windows (before, after; the transition left out) --idle sums of both spans--> Effect

Pure. Fewer than `LEAST_STEPS` on a side give no number but the reason.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import variance

from planner.intervals import student_t

LEAST_STEPS = 3
MOST_STEPS = 10

CONFIDENCE = 0.9


@dataclass(frozen=True, slots=True, kw_only=True)
class StepTime:
    """One step."""

    step: int
    began_at: float
    ended_at: float
    """unix seconds"""
    tokens: int
    lag: Mapping[int, int] = field(default_factory=dict)
    """versions late -> groups"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One change of the settings."""

    sent_at: float
    """unix seconds"""
    effective_step: int
    """first step that it governs"""
    staleness: float = 0.0
    """that governs afterwards"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Windows:
    """Steps to compare, as many on both sides."""

    before: tuple[StepTime, ...] = ()
    after: tuple[StepTime, ...] = ()
    why_not: str | None = None

    @property
    def spans(self) -> tuple[tuple[float, float], tuple[float, float]] | None:
        """When each side began and ended, unix seconds: what idle time is to be summed over; None without windows."""
        if self.why_not is not None:
            return None
        before, after = self.before, self.after
        return (before[0].began_at, before[-1].ended_at), (after[0].began_at, after[-1].ended_at)


@dataclass(frozen=True, slots=True, kw_only=True)
class Effect:
    """What the steps after the change did against those before it."""

    before_tokens_per_s: float
    after_tokens_per_s: float
    ratio: float
    low: float
    high: float
    """of the ratio, two-sided at 90%"""
    steps: int
    """on each side"""
    before_lag: float | None
    after_lag: float | None
    """mean versions that groups were late; None where it was not stored"""
    before_idle: Mapping[str, float] = field(default_factory=dict)
    after_idle: Mapping[str, float] = field(default_factory=dict)
    """cause -> share of device time; empty where nobody summed it"""


def windows(steps: Sequence[StepTime], changes: Sequence[Change], place: int) -> Windows:
    """The steps before and after `changes[place]`; `changes` are all of the run's, in the order of sending.

    Before: ended before it was sent and governed wholly by what was set until then. After: from the effective step on,
    less the ceil(s) steps whose groups were started before; until the next change was sent.
    """
    change = changes[place]
    since = _settled_all(changes[:place])
    until = changes[place + 1].sent_at if place + 1 < len(changes) else math.inf
    before = [each for each in steps if each.ended_at <= change.sent_at and (since is None or each.step >= since)]
    after = [each for each in steps if each.step >= _settled(change) and each.ended_at <= until]
    count = min(len(before), len(after), MOST_STEPS)
    if count < LEAST_STEPS:
        if len(before) >= LEAST_STEPS and until == math.inf:
            return Windows(why_not=f"{len(after)} of {LEAST_STEPS} steps that it governs wholly have ended")
        side = "before" if len(before) < LEAST_STEPS else "after"
        return Windows(why_not=f"fewer than {LEAST_STEPS} steps lie between it and the change {side} it")
    return Windows(before=tuple(before[-count:]), after=tuple(after[:count]))


def _settled(change: Change) -> int:
    """The first step that the change governs wholly. The step that it came into belongs to neither side."""
    return change.effective_step + max(1, math.ceil(change.staleness))


def _settled_all(changes: Sequence[Change]) -> int | None:
    """The first step that all of them govern wholly: the last one sent need not be the last one to take effect."""
    return max(map(_settled, changes), default=None)


def effect(
    found: Windows, *, before_idle: Mapping[str, float] | None = None, after_idle: Mapping[str, float] | None = None
) -> Effect | None:
    """The comparison; None where the windows say why not. Idle: cause -> share of device time in each of the spans."""
    if found.why_not is not None:
        return None
    one, two = _rates(found.before), _rates(found.after)
    middle = math.log(_rate(found.after) / _rate(found.before))
    count = len(one)
    error = math.sqrt((variance(map(math.log, one)) + variance(map(math.log, two))) / count)
    half = student_t((1 + CONFIDENCE) / 2, 2 * count - 2) * error
    return Effect(
        before_tokens_per_s=_rate(found.before),
        after_tokens_per_s=_rate(found.after),
        ratio=math.exp(middle),
        low=math.exp(middle - half),
        high=math.exp(middle + half),
        steps=count,
        before_lag=mean_lag(found.before),
        after_lag=mean_lag(found.after),
        before_idle=before_idle or {},
        after_idle=after_idle or {},
    )


def mean_lag(steps: Sequence[StepTime]) -> float | None:
    """Versions that a group was late on average; None without groups."""
    groups = sum(sum(step.lag.values()) for step in steps)
    return sum(lag * count for step in steps for lag, count in step.lag.items()) / groups if groups else None


def rate(steps: Sequence[StepTime]) -> float | None:
    """Tokens per second over the steps; None without any time."""
    return _rate(steps) if sum(step.ended_at - step.began_at for step in steps) > 0 else None


def _rate(steps: Sequence[StepTime]) -> float:
    return math.fsum(step.tokens for step in steps) / math.fsum(step.ended_at - step.began_at for step in steps)


def _rates(steps: Sequence[StepTime]) -> list[float]:
    return [step.tokens / max(1e-9, step.ended_at - step.began_at) for step in steps]


def lately(steps: Sequence[StepTime], changes: Sequence[Change]) -> tuple[StepTime, ...]:
    """The last steps that the present settings govern wholly, at most `MOST_STEPS`."""
    since = _settled_all(changes)
    if since is None:
        since = steps[0].step + 1 if steps else 0
    return tuple(step for step in steps if step.step >= since)[-MOST_STEPS:]
