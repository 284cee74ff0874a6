"""Whether a run learns as it should, in sentences with their numbers. Pure; the Live page's rules are part of it."""

from __future__ import annotations

from collections.abc import Sequence

from app.attention_learning import no_signal_or_capped, reward_fell
from app.card import Card
from app.figures.learning import number
from app.key_figures import RECENT_STEPS
from storage.records import StepRow

MISMATCH_KL = 0.1
"""Nats per token: importance weights then spread by about a half (their variance is twice the KL), and few tokens carry
the update. Runs of small staleness lie at a thousandth."""

EFFECTIVE_SHARE = 0.5
"""When half of the sample counts, half of the rollout work is lost."""

ENTROPY_SHARE = 0.1
"""A policy with a tenth of its first entropy gives nearly the same answer to each response of a group."""

NORM_TIMES = 10.0
"""A gradient ten times its usual size is an accident of one step, or the beginning of a divergence."""

MIN_STEPS = 5
"""Steps before a mean of them means anything."""


def health(steps: Sequence[StepRow]) -> list[Card]:
    """Findings, the gravest first; none when all is well."""
    return [
        *mismatch(steps),
        *reward_fell(steps),
        *no_signal_or_capped(steps),
        *sample(steps),
        *entropy(steps),
        *norm(steps),
    ]


def mismatch(steps: Sequence[StepRow]) -> list[Card]:
    """Rollouter and trainer disagree by more than correcting for it can bear."""
    last = steps[-RECENT_STEPS:]
    known = [kl for s in last if (kl := number(s.metrics.get("mismatch_kl"))) is not None]
    if not known or (mean := sum(known) / len(known)) <= MISMATCH_KL:
        return []
    worst = _worst_part(last, "mismatch_kl")
    return [
        Card(
            key="mismatch_kl",
            tone="warning",
            icon="call_split",
            title=f"Mismatch KL {mean:.2g} > {MISMATCH_KL:g}",
            text=f"Mean of the last {len(known)} steps, nats per token{worst}: the policy that samples is no longer "
            "the one that is trained. Lower the staleness or the learning rate.",
        )
    ]


def sample(steps: Sequence[StepRow]) -> list[Card]:
    """Importance weights so unequal that few tokens carry the update."""
    last = steps[-RECENT_STEPS:]
    known = [ess for s in last if (ess := number(s.metrics.get("ess"))) is not None]
    if not known or (mean := sum(known) / len(known)) >= EFFECTIVE_SHARE:
        return []
    return [
        Card(
            key="ess",
            tone="warning",
            icon="filter_alt",
            title=f"Effective sample size {mean:.0%} < {EFFECTIVE_SHARE:.0%}",
            text=f"Mean of the last {len(known)} steps{_worst_part(last, 'ess', least=True)}: so much of the tokens "
            "counts after correcting for older weights. Lower the staleness.",
        )
    ]


def entropy(steps: Sequence[StepRow]) -> list[Card]:
    """A policy that has stopped exploring while its reward is not perfect."""
    known = [s.entropy for s in steps if s.entropy is not None]
    if len(known) < 2 * MIN_STEPS:
        return []
    first, now = sum(known[:MIN_STEPS]) / MIN_STEPS, sum(known[-MIN_STEPS:]) / MIN_STEPS
    if first <= 0 or now >= ENTROPY_SHARE * first:
        return []
    return [
        Card(
            key="entropy",
            tone="warning",
            icon="compress",
            title=f"Entropy fell from {first:.2g} to {now:.2g} nats",
            text=f"Means of the first and the last {MIN_STEPS} steps. Answers of a group become alike, and groups lose "
            "their signal. Lower the learning rate, or raise the temperature or clip_high.",
        )
    ]


def norm(steps: Sequence[StepRow]) -> list[Card]:
    """A gradient far beyond its usual size."""
    known = [(s.step, s.grad_norm) for s in steps[-RECENT_STEPS:] if s.grad_norm is not None]
    if len(known) < MIN_STEPS:
        return []
    usual = sorted(value for _, value in known)[len(known) // 2]
    step, largest = max(known, key=lambda item: item[1])
    if usual <= 0 or largest <= NORM_TIMES * usual:
        return []
    return [
        Card(
            key="grad_norm",
            tone="warning",
            icon="trending_up",
            title=f"Gradient norm {largest:.3g} in step {step}, {largest / usual:.0f} times the usual",
            text=f"The median of the last {len(known)} steps is {usual:.3g}. Gradients are clipped; if it comes again, "
            "lower the learning rate.",
        )
    ]


def _worst_part(steps: Sequence[StepRow], key: str, *, least: bool = False) -> str:
    """ ", worst at lag 2 (0.4)" where lags are told apart."""
    values: dict[str, list[float]] = {}
    for step in steps:
        by_lag = step.metrics.get("by_lag")
        for lag, part in by_lag.items() if isinstance(by_lag, dict) else ():
            if (value := number(part.get(key))) is not None:
                values.setdefault(lag, []).append(value)
    if len(values) < 2:
        return ""
    means = {lag: sum(found) / len(found) for lag, found in values.items()}
    worst = (min if least else max)(means, key=lambda lag: means[lag])
    return f", worst at lag {worst} ({means[worst]:.2g})"
