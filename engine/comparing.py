"""What a comparison runs and in which order: configurations from their labels, cells, the job of each run. Pure.

    --arms, --splits --> Configuration (arm, consume, partition) --> Trial (at a staleness) --> settings of its job

A comparison always has both baselines, no_borrow with a whole batch and streaming, since a claim is made against the
better one only. It refuses an arm, a way to consume and a split that the job cannot run.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from engine.config import Partition
from engine.config.job import MAX_STALENESS
from planner.configurations import BASELINES, Configuration, Trial, pools_of
from planner.policy.pulls import OURS

DEFAULT_ARMS = ("no_borrow", "no_borrow:stream", "bidirectional")

REPEATS = 3
"""Unless told otherwise: the fewest whose interval is of some use (with two, t is 12.7)."""


def parse_partition(text: str, *, place: str) -> Partition:
    """`ROLLOUT:TRAIN`, each at least 1. Raises ValueError otherwise."""
    rollout, train = pools_of(text, place=place)
    return Partition(rollout=rollout, train=train)


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


def _at_home(each: Configuration, own: Partition) -> Configuration:
    """The same without a partition that is the job's own."""
    if each.partition != str(own):
        return each
    return replace(each, partition=None)
