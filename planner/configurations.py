"""What a comparison is made of: configurations from their labels, and the trials that they make. Pure.

A comparison always has both baselines, no_borrow with a whole batch and streaming, since a claim is made against the
better one only. It refuses an arm, a way to consume and a partition that do not exist.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from planner.policy.arms import ARMS, consume_of
from planner.policy.improvements import IMPROVEMENTS
from planner.policy.pulls import OURS

CONSUME = ("stream", "whole_batch")
BASELINES = ("no_borrow", "no_borrow:stream")

FORM = (
    "ARM, ARM-IMPROVEMENT (without it), either with :stream or :whole_batch, with @ROLLOUT:TRAIN, such as "
    "no_borrow:stream@8:8"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Configuration:
    """One way to run the job. Equal ones have one label."""

    arm: str
    consume: str
    """stream or whole_batch"""
    partition: str | None = None
    """devices of the pools where they are not the job's own, such as "4:12" """
    without: tuple[str, ...] = ()
    """improvements of the arm that are taken away"""

    @property
    def label(self) -> str:
        """What it is called on the command line; what follows from the arm and the job is left out."""
        consume = "" if self.consume == consume_of(self.arm, None) else f":{self.consume}"
        away = "".join(f"-{name}" for name in self.without)
        return f"{self.arm}{away}{consume}{f'@{self.partition}' if self.partition else ''}"

    @classmethod
    def parse(cls, text: str, *, place: str = "--arms") -> Configuration:
        """Read a label. Raises ValueError with the value, its place and what is allowed."""
        front, at, partition = text.strip().partition("@")
        named, colon, consume = front.partition(":")
        arm, *without = named.split("-")
        if arm not in ARMS:
            raise ValueError(f"{place}: arm must be one of {', '.join(ARMS)}, got {arm!r} in {text!r}; write {FORM}")
        unknown = [name for name in without if name not in IMPROVEMENTS]
        if unknown or (without and arm not in OURS):
            allowed = f"{', '.join(IMPROVEMENTS)}, of {', '.join(OURS)}"
            raise ValueError(f"{place}: after '-' comes an improvement ({allowed}), got {text!r}")
        if colon and consume not in CONSUME:
            raise ValueError(f"{place}: after ':' comes {' or '.join(CONSUME)}, got {consume!r} in {text!r}")
        if arm == "colocated" and (at or consume == "stream"):
            raise ValueError(f"{place}: colocated has no pools, so no partition and no streaming, got {text!r}")
        return cls(
            arm=arm,
            consume=consume or consume_of(arm, None),
            partition="{}:{}".format(*pools_of(partition, place=place)) if at else None,
            without=tuple(sorted(set(without))),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """A configuration in a cell: what runs once in every repeat."""

    configuration: Configuration
    staleness: float
    """0 for colocated, which is on-policy and stands in every cell with the same runs"""


def pools_of(text: str, *, place: str) -> tuple[int, int]:
    """Devices of `ROLLOUT:TRAIN`, each at least 1. Raises ValueError otherwise."""
    match = re.fullmatch(r"0*([1-9]\d*):0*([1-9]\d*)", text.strip())
    if match is None:
        raise ValueError(f"{place}: a partition is ROLLOUT:TRAIN, both at least 1, such as 12:4, got {text!r}")
    return int(match[1]), int(match[2])


def trials(found: Iterable[Configuration], staleness: Sequence[float]) -> tuple[Trial, ...]:
    """What a repeat runs: every configuration in every cell, colocated once."""
    each_cell = [
        Trial(configuration=each, staleness=0.0 if each.arm == "colocated" else value)
        for value in staleness
        for each in found
    ]
    return tuple(dict.fromkeys(each_cell))


def planned_runs(plan: Mapping[str, Any]) -> int:
    """Runs of the whole comparison."""
    found = [Configuration.parse(label) for label in plan["labels"]]
    return len(trials(found, plan["staleness"])) * int(plan["repeats"])
