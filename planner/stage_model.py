"""The base form of a stage-time model: how long `d` replicas need for a workload (design section 6)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol


class StageTime(Protocol):
    """Any stage-time model: the gates and the planner ask nothing else of one."""

    def seconds(self, workload: float, replicas: int) -> float:
        """Seconds that `replicas` replicas need for `workload` group-equivalents; 0 when there is no work."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StageModel:
    """`M(W, d) = a + b * W / d`, and 0 when W is 0. Raises ValueError for coefficients that are no time."""

    a: float
    """seconds, whatever the workload"""
    b: float
    """seconds per group-equivalent and replica"""

    def __post_init__(self) -> None:
        for name, value in (("a", self.a), ("b", self.b)):
            if not 0 <= value < math.inf:
                raise ValueError(f"{name} of a stage-time model must be a number of seconds >= 0, got {value!r}")

    def seconds(self, workload: float, replicas: int) -> float:
        """Seconds for `workload` groups on `replicas` replicas; infinite when there is work and no replica."""
        if workload == 0:
            return 0.0
        return self.a + self.b * workload / replicas if replicas > 0 else math.inf


def slope(model: StageTime) -> float:
    """Seconds per group and replica of a stage-time model, its fixed part left out."""
    return (model.seconds(64, 1) - model.seconds(32, 1)) / 32
