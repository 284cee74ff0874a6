"""When the step being filled will end, under a division of the devices: what the gates below s = 1 compare.

Below s = 1 a step's groups are generated and trained within the step, so the question is not which role is slower on
average but which division ends this step first. The estimate is fluid: rollout work flows at the slope of M_r with its
intercept as the tail, groups become trainable evenly between the first and the last one, trainers are limited by both.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

FIRST_GROUP = 0.6
"""The first group of a batch is finished after about this share of the batch's tail (the intercept of M_r)."""

Schedule = Sequence[tuple[float, int]]
"""(seconds from now, replicas from then on), by time; the first one begins at 0."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepWork:
    """What is left of the step."""

    rollout: float
    """groups' worth of tokens that the step's groups still need"""
    tail_s: float
    """seconds that the last group takes beyond an even share of the work: what is ahead of the intercept of M_r"""
    trainable: float
    """groups that may be trained now"""
    untrained: float
    """groups whose gradient is missing, the trainable ones included"""
    group_s: float
    """seconds of rollout per group and replica: the slope of M_r"""
    train_s: float
    """seconds of training per group and replica"""
    helpers: int
    """trainers that the RollPool adds once all groups are generated"""
    helpers_in_s: float
    """seconds that their preparation takes"""
    spare_s: float = 0.0
    """seconds after this step's last group until the next step has one to train"""

    @property
    def first_s(self) -> float:
        """Seconds until the first group in flight is finished."""
        return self.tail_s * FIRST_GROUP


def rolled_in(work: StepWork, rollouters: Schedule) -> float:
    """Seconds until the step's last group is generated."""
    if work.rollout <= 0:
        return 0.0
    left = work.rollout * work.group_s
    for place, (start, replicas) in enumerate(rollouters):
        end = rollouters[place + 1][0] if place + 1 < len(rollouters) else math.inf
        if replicas > 0 and left <= replicas * (end - start):
            return start + left / replicas + work.tail_s
        left -= replicas * (end - start) if replicas > 0 else 0.0
    return math.inf


def step_end(work: StepWork, rollouters: Schedule, trainers: Schedule) -> float:
    """Seconds until the step's last group is trained."""
    rolled_s = rolled_in(work, rollouters)
    if math.isinf(rolled_s):
        return math.inf
    first_s = min(work.first_s, rolled_s)
    helped_s = rolled_s + work.helpers_in_s
    coming = work.untrained - work.trainable
    marks = sorted({0.0, first_s, rolled_s, helped_s, *(at for at, _ in trainers if math.isfinite(at))})
    trained = 0.0
    for place, start in enumerate(marks):
        end = marks[place + 1] if place + 1 < len(marks) else math.inf
        count = next(count for at, count in reversed(trainers) if at <= start)
        count += work.helpers if start >= helped_s else 0
        if count <= 0:
            continue
        rate = count / work.train_s
        if start < rolled_s:
            share = max(0.0, min(1.0, (end - first_s) / max(rolled_s - first_s, 1e-9)))
            trained = min(trained + rate * (end - start), work.trainable + coming * share)
        elif work.untrained - trained <= rate * (end - start):
            return max(start + (work.untrained - trained) / rate, rolled_s + (work.train_s if work.rollout > 0 else 0))
        else:
            trained += rate * (end - start)
    return math.inf
