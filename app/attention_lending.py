"""Findings about lending: a direction that the guard switched off, and leases that lose time. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from app.card import Card
from app.lending import DIRECTION_WORDS
from app.markup import literal
from storage.records import LeaseOutcome, RunRow
from storage.words import TERMINAL

LOST_SHARE = 1 / 3
"""A gate that is right on average still loses some; when a third loses, its model or its costs are wrong."""

MIN_JUDGED = 4
"""Measured leases before their share means anything: of three, one unlucky one would be a third."""
OTHER_DIRECTION = {"rollout_on_train": "train_on_rollout", "train_on_rollout": "rollout_on_train"}


def guard_off(run: RunRow) -> list[Card]:
    """Directions that the never-slower guard has switched off, with its sentence."""
    return [
        Card(
            key=f"guard_{direction}",
            tone="warning",
            icon="shield",
            title=f"The guard switched a direction off: {DIRECTION_WORDS[direction]}",
            text=f"{_sentence(told)} It tries again by itself; if it stays off, {_without(run, direction)}.",
        )
        for direction, told in sorted(run.guards.items())
        if direction in DIRECTION_WORDS
    ]


def leases_lost_time(run: RunRow, outcomes: Mapping[str, LeaseOutcome]) -> list[Card]:
    """Directions whose leases, as measured, too often lost time."""
    return [
        Card(
            key=f"lost_time_{direction}",
            tone="warning",
            icon="trending_down",
            title=f"{found.lost} of {found.judged} measured leases lost time: {DIRECTION_WORDS[direction]}",
            text="Compare predicted and measured under Decisions. Costs and speeds are fitted again from every lease; "
            f"if it goes on, {_without(run, direction)}.",
        )
        for direction, found in outcomes.items()
        if found.judged >= MIN_JUDGED and found.lost > LOST_SHARE * found.judged
    ]


def _without(run: RunRow, direction: str) -> str:
    """How to go on without a direction; a run that is over can only be launched otherwise."""
    if run.state not in TERMINAL:
        return f"switch {literal(direction)} off in Control"
    one_way = run.arm == direction
    arm = "no_borrow" if one_way else OTHER_DIRECTION[direction]
    return f"launch with arm {arm}, which lends {'nothing' if one_way else 'only the other way'}"


def _sentence(text: str) -> str:
    """`text` with a full stop."""
    text = text.strip()
    return text if text.endswith((".", "!", "?")) else f"{text}."
