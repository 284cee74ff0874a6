"""What a comparison runs and in which order: configurations from their labels, cells, the job of each run. Pure.

    --arms, --splits --> Configuration (arm, consume, partition) --> Trial (at a staleness) --> settings of its job

A comparison always has both baselines, no_borrow with a whole batch and streaming, since a claim is made against the
better one only. It refuses an arm, a way to consume and a split that the job cannot run.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from engine.config import ARMS, Partition, ScheduleConfig
from engine.config.job import MAX_STALENESS
from planner.policy.improvements import IMPROVEMENTS
from planner.policy.pulls import OURS

CONSUME = ("stream", "whole_batch")
BASELINES = ("no_borrow", "no_borrow:stream")
DEFAULT_ARMS = ("no_borrow", "no_borrow:stream", "bidirectional")

REPEATS = 3
"""Unless told otherwise: the fewest whose interval is of some use (with two, t is 12.7)."""

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
        consume = "" if self.consume == _consume_of(self.arm) else f":{self.consume}"
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
            consume=consume or _consume_of(arm),
            partition=str(parse_partition(partition, place=place)) if at else None,
            without=tuple(sorted(set(without))),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """A configuration in a cell: what runs once in every repeat."""

    configuration: Configuration
    staleness: float
    """0 for colocated, which is on-policy and stands in every cell with the same runs"""


def parse_partition(text: str, *, place: str) -> Partition:
    """`ROLLOUT:TRAIN`, each at least 1. Raises ValueError otherwise."""
    match = re.fullmatch(r"0*([1-9]\d*):0*([1-9]\d*)", text.strip())
    if match is None:
        raise ValueError(f"{place}: a partition is ROLLOUT:TRAIN, both at least 1, such as 12:4, got {text!r}")
    return Partition(rollout=int(match[1]), train=int(match[2]))


def parse_splits(text: str, *, place: str = "--splits") -> tuple[str, ...]:
    """Partitions, each once. Raises ValueError for what is none."""
    return tuple(dict.fromkeys(str(parse_partition(part, place=place)) for part in text.split(",")))


def parse_staleness(text: str, *, place: str = "--staleness") -> tuple[float, ...]:
    """Values of staleness, each once. Raises ValueError for what is none."""
    values = []
    for part in text.split(","):
        try:
            value = float(part)
        except ValueError:
            value = -1.0
        if not 0 <= value <= MAX_STALENESS:
            raise ValueError(f"{place}: must be numbers from 0 to {MAX_STALENESS:g} such as 0,0.5,1, got {part!r}")
        values.append(value)
    return tuple(dict.fromkeys(values))


def configurations(arms: str, *, own: Partition, splits: Iterable[str] = ()) -> tuple[Configuration, ...]:
    """What is asked for, each once, with the baselines that are missing before it and those at `splits` after it.

    `own`: the job's partition. Raises ValueError for a split of another number of devices: that is no fair comparison.
    """
    asked = [Configuration.parse(text) for text in arms.split(",")]
    labels = {_at_home(each, own).label for each in asked}
    missing = [Configuration.parse(label) for label in BASELINES if label not in labels]
    at_splits = [Configuration.parse(f"{label}@{split}", place="--splits") for split in splits for label in BASELINES]
    for each, place in [*((each, "--arms") for each in asked), *((each, "--splits") for each in at_splits)]:
        if each.partition is not None and parse_partition(each.partition, place=place).total != own.total:
            raise ValueError(
                f"{place}: a partition of {own.total} devices is needed, as the job's {own}, got {each.partition!r}"
            )
    return tuple(dict.fromkeys(_at_home(each, own) for each in (*missing, *asked, *at_splits)))


def trials(found: Iterable[Configuration], staleness: Sequence[float]) -> tuple[Trial, ...]:
    """What a repeat runs: every configuration in every cell, colocated once."""
    each_cell = [
        Trial(configuration=each, staleness=0.0 if each.arm == "colocated" else value)
        for value in staleness
        for each in found
    ]
    return tuple(dict.fromkeys(each_cell))


def order(planned: Sequence[Trial], repeat: int) -> tuple[Trial, ...]:
    """The order of a repeat (from 1): moved on by one each time, so that over as many repeats as there are trials each
    has every place once, and a machine that slows down favours none."""
    first = (repeat - 1) % len(planned)
    return (*planned[first:], *planned[:first])


def settings_of(trial: Trial, own: Partition) -> list[str]:
    """What makes the job that of this trial; the rest, its seed included, stays as it is."""
    configuration = trial.configuration
    pools = configuration.arm != "colocated"
    settings = [
        f"schedule.arm={configuration.arm}",
        f"schedule.consume={configuration.consume}",
        f"schedule.staleness={trial.staleness!r}",
        f"devices.count={own.total}",
        f"devices.partition={configuration.partition or own if pools else 'auto'}",
    ]
    if trial.staleness == 0:
        settings.append("schedule.in_flight_updates=null")  # true is impossible there, and null means false
    if configuration.without:
        settings.append(f"schedule.improvements={{{', '.join(f'{name}: false' for name in configuration.without)}}}")
    elif configuration.arm not in OURS:
        settings.append("schedule.improvements={}")  # of our arms only
    return settings


def plan_of(
    found: Iterable[Configuration], *, staleness: Sequence[float], repeats: int, own: Partition, split: dict[str, Any]
) -> dict[str, Any]:
    """What the whole comparison is to be, as it is stored with each of its runs.

    `split`: `chosen_by` and `why`, how the splits of the baselines were found.
    """
    return {
        "repeats": repeats,
        "labels": [each.label for each in found],
        "staleness": list(staleness),
        "partition": str(own),
        "split": split,
    }


def planned_runs(plan: dict[str, Any]) -> int:
    """Runs of the whole comparison."""
    found = [Configuration.parse(label) for label in plan["labels"]]
    return len(trials(found, plan["staleness"])) * int(plan["repeats"])


def _consume_of(arm: str) -> str:
    return ScheduleConfig(arm=arm).consume_resolved


def _at_home(each: Configuration, own: Partition) -> Configuration:
    """The same without a partition that is the job's own."""
    if each.partition != str(own):
        return each
    return replace(each, partition=None)
