"""Gradients of a step added up: as they come, or per group in the order of the data (deterministic mode).

Floating-point sums depend on their order. Rows of single groups, summed in the order of the data in float64, make the
sum a function of the groups alone: not of who trained them, in which chunks, or which arrived first.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from engine.learning.sequences import FinishedGroup
from engine.learning.trainer import Gradient, GroupKey
from engine.learning.weights import Vector


def key_of(group: FinishedGroup) -> GroupKey:
    """Where the group stands in the data order; unique within a run."""
    return group.epoch, group.position


def stack(rows: Mapping[GroupKey, Vector], *, tokens: int, parameters: int) -> Gradient:
    """One replica's rows as what it ships, in key order; copies."""
    keys = tuple(sorted(rows))
    matrix = np.empty((len(keys), parameters), dtype=np.float32)
    for row, key in zip(matrix, keys, strict=True):
        row[:] = rows[key]
    return Gradient(vector=matrix, tokens=tokens, keys=keys)


def sum_as_they_come(parts: Sequence[Gradient]) -> Vector:
    """float32 [parameters], added in the order of the parts."""
    total = np.zeros_like(parts[0].vector)
    for part in parts:
        total += part.vector
    return total


def sum_in_data_order(parts: Sequence[Gradient], *, parameters: int) -> Vector:
    """float32 [parameters], rounded once from a float64 sum of all rows in key order.

    Raises ValueError for a part that is not one row per group, and for a group that came twice.
    """
    rows: dict[GroupKey, Vector] = {}
    for part in parts:
        if part.vector.shape != (len(part.keys), parameters):
            raise ValueError(
                f"a gradient of shape {part.vector.shape} for {len(part.keys)} groups: a deterministic trainer takes "
                f"one row per group, here {(len(part.keys), parameters)}"
            )
        for key, row in zip(part.keys, part.vector, strict=True):
            if key in rows:
                raise ValueError(f"the group of epoch {key[0]}, position {key[1]} was trained twice in this step")
            rows[key] = row
    total = np.zeros(parameters, dtype=np.float64)
    for key in sorted(rows):
        total += rows[key]
    return total.astype(np.float32)
