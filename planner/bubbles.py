"""How much of the devices' idle time a better split would have avoided, and how much no split could (section 8).

Structural bubbles come from pools whose mean rates differ; residual ones are the rest: response-length tails and
drift, the staleness limit, whole-replica granularity. Rates are handed in: from the planner's models, or measured here.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

ROLLOUT_WORK = ("rollout", "scoring")
TRAIN_WORK = ("train", "optimizer", "grad_merge")
"""Columns of device time in which a pool's own devices do their stage's work."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bubbles:
    """The idle share of all device time, in two parts that add up to it."""

    structural: float
    """fraction of device time, 0 to 1"""
    residual: float
    """fraction of device time, 0 to 1"""


def bubbles(
    *, rollout_devices: int, train_devices: int, rate_rollout: float, rate_train: float, idle_fraction: float
) -> Bubbles:
    """Split the idle fraction: structural = sum over the pools of g_p * (1 - lambda / lambda_p) / G, at most all of it.

    `rate_rollout`, `rate_train`: lambda_p, groups per second that each pool reaches when it never waits; lambda is the
    lower one. Raises ValueError for an empty pool, a rate that is not above 0, or an idle fraction outside 0 to 1.
    """
    if rollout_devices < 1 or train_devices < 1:
        raise ValueError(f"each pool must have at least 1 device, got {rollout_devices} and {train_devices}")
    if not (0 < rate_rollout < math.inf and 0 < rate_train < math.inf):
        raise ValueError(f"the rates must be numbers above 0 groups/s, got {rate_rollout!r} and {rate_train!r}")
    if not 0 <= idle_fraction <= 1:
        raise ValueError(f"the idle fraction must be within 0 to 1, got {idle_fraction!r}")
    rate = min(rate_rollout, rate_train)
    waiting = rollout_devices * (1 - rate / rate_rollout) + train_devices * (1 - rate / rate_train)
    structural = min(waiting / (rollout_devices + train_devices), idle_fraction)
    return Bubbles(structural=structural, residual=idle_fraction - structural)


def busy_rate(*, groups: int, devices: int, busy_device_s: float) -> float | None:
    """Groups per second that a pool would reach at the pace of its busy time; None before it did anything.

    `busy_device_s`: device-seconds in which the pool's devices did the work of these groups. A half-empty rollouter
    counts as busy, so the rate of a starved RollPool comes out low and its structural share with it.
    """
    return groups * devices / busy_device_s if groups > 0 and busy_device_s > 0 else None


def measured_bubbles(
    seconds: Mapping[int, Mapping[str, float]], pools: Mapping[int, str | None], *, groups: int, idle_fraction: float
) -> Bubbles | None:
    """The same from a run: each pool's rate is measured at the pace of its busy time. None without two pools that did
    any work.

    seconds: device -> column of device time -> seconds; pools: device -> "rollout", "train" or None; groups: consumed.
    """
    sizes = {name: [d for d, pool in pools.items() if pool == name] for name in ("rollout", "train")}
    rates = []
    for name, columns in (("rollout", ROLLOUT_WORK), ("train", TRAIN_WORK)):
        busy_s = sum(seconds.get(d, {}).get(column, 0.0) for d in sizes[name] for column in columns)
        rates.append(busy_rate(groups=groups, devices=len(sizes[name]), busy_device_s=busy_s))
    rollout, train = rates
    if rollout is None or train is None:
        return None
    return bubbles(
        rollout_devices=len(sizes["rollout"]),
        train_devices=len(sizes["train"]),
        rate_rollout=rollout,
        rate_train=train,
        idle_fraction=idle_fraction,
    )
