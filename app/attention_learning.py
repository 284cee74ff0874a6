"""Findings about learning: signal, correction and reward. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from app.card import Card
from app.key_figures import RECENT_STEPS
from storage.records import StepRow

NO_SIGNAL_SHARE = 0.5
"""When half of the groups teach nothing, half of the rollout work is lost."""

CAPPED_SHARE = 0.05
"""More than a twentieth of the tokens at the cap of the importance weights: the correction no longer corrects."""

REWARD_FALL = 0.25
MIN_REWARD_FALL = 0.05
"""A mean of twenty steps that lost a quarter of its best, and more than noise, has turned."""


def no_signal_or_capped(steps: Sequence[StepRow]) -> list[Card]:
    """Groups that teach nothing, and tokens that the correction cannot mend."""
    last = steps[-RECENT_STEPS:]
    groups = sum(s.groups for s in last)
    silent = sum(s.no_signal for s in last)
    cards = []
    if groups and silent / groups >= NO_SIGNAL_SHARE:
        cards.append(
            Card(
                key="no_signal",
                tone="warning",
                icon="signal_disconnected",
                title=f"{silent / groups:.0%} of groups carried no signal",
                text=f"All rewards of a group were equal, {silent} of {groups} groups in the last {len(last)} "
                "steps. The task is too easy or too hard by now: change it, or raise the group size.",
            )
        )
    capped = [c for s in last if isinstance(c := s.metrics.get("capped_share"), int | float)]
    if capped and (mean := sum(capped) / len(capped)) >= CAPPED_SHARE:
        cards.append(
            Card(
                key="capped",
                tone="warning",
                icon="vertical_align_top",
                title=f"{mean:.0%} of tokens at the importance cap",
                text="Rollouter and trainer disagree more than the correction can mend. Lower staleness.",
            )
        )
    return cards


def reward_fell(steps: Sequence[StepRow]) -> list[Card]:
    """A reward that was clearly higher once: the one thing that a run does not mend by itself."""
    rewards = [(s.step, s.reward_mean) for s in steps if s.reward_mean is not None]
    means = [
        (rewards[i][0], sum(r for _, r in rewards[i - RECENT_STEPS + 1 : i + 1]) / RECENT_STEPS)
        for i in range(RECENT_STEPS - 1, len(rewards))
    ]
    if not means:
        return []
    best_step, best = max(means, key=lambda item: item[1])
    now = means[-1][1]
    if best - now < REWARD_FALL * abs(best) or best - now < MIN_REWARD_FALL:
        return []
    return [
        Card(
            key="reward_fell",
            tone="warning",
            icon="trending_down",
            title=f"Reward fell from {best:.2f} to {now:.2f} since step {best_step}",
            text=f"Means of {RECENT_STEPS} steps. Lower the learning rate or the staleness, and go on from a "
            f"checkpoint before step {best_step}.",
        )
    ]
