"""AdamW's state as plain arrays and back, in the order of `weights.flatten`.

All parameters have made the same number of steps, as every update gives all of them a gradient. Refuses arrays that do
not fit the model, before anything is written.
"""

from __future__ import annotations

import numpy as np
import torch

from engine.learning.snapshot import Arrays, Snapshot
from engine.learning.weights import Vector, as_array, copy_in, flatten, load_flat, parameter_count, trained

MOMENTS = ("exp_avg", "exp_avg_sq")
"""Torch's names, in the order of the rows."""


def take_snapshot(
    model: torch.nn.Module,
    optimizer: torch.optim.AdamW,
    *,
    version: int,
    parameters: Vector | None,
    arrays: Arrays,
) -> Snapshot:
    """Copies, that of the moments in `arrays`; `parameters`, where the caller has them already, is not one more."""
    moments, steps = _moments(model, optimizer, arrays)
    held = flatten(model) if parameters is None else parameters
    return Snapshot(version=version, parameters=held, moments=moments, optimizer_steps=steps)


def restore_snapshot(model: torch.nn.Module, optimizer: torch.optim.AdamW, snapshot: Snapshot) -> None:
    """Copies from arrays that may be read-only. Raises ValueError on wrong sizes or types."""
    moments, steps = snapshot.moments, snapshot.optimizer_steps
    shape = (2, parameter_count(model)) if steps else (0, 0)
    if moments.shape != shape or moments.dtype != np.float32:
        raise ValueError(
            f"moments of {moments.dtype} {moments.shape} after {steps} optimizer steps do not fit the model: "
            f"float32 {shape} would"
        )
    load_flat(model, snapshot.parameters)
    if not steps:
        optimizer.state.clear()
        return
    offset = 0
    for _, parameter in trained(model):
        state = optimizer.state[parameter]
        state["step"] = torch.tensor(float(steps), dtype=torch.float32, device=parameter.device)
        for row, name in zip(moments, MOMENTS, strict=True):
            if name not in state:
                state[name] = torch.empty_like(parameter, requires_grad=False)
            piece = row[offset : offset + parameter.numel()]
            copy_in(state[name], piece.reshape(tuple(parameter.shape)))
        offset += parameter.numel()


def _moments(model: torch.nn.Module, optimizer: torch.optim.AdamW, arrays: Arrays) -> tuple[Vector, int]:
    """float32 [2, parameters] and the steps made; [0, 0] before the first."""
    if not optimizer.state:
        return np.zeros((0, 0), dtype=np.float32), 0
    moments = arrays.empty((2, parameter_count(model)))
    steps = set()
    offset = 0
    for _, parameter in trained(model):
        state = optimizer.state[parameter]
        steps.add(int(state["step"]))
        for row, name in zip(moments, MOMENTS, strict=True):
            row[offset : offset + parameter.numel()] = as_array(state[name]).reshape(-1)
        offset += parameter.numel()
    assert len(steps) == 1, f"parameters have made {sorted(steps)} steps"
    return moments, steps.pop()
