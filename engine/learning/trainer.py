"""What the engine needs of a trainer, whatever computes underneath.

Not thread-safe: one thread owns a trainer. Gradients are sums, divided once when a step ends, so the groups of a
step may arrive in any number of chunks and on any number of replicas.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np
import numpy.typing as npt

from engine.learning.sequences import FinishedGroup
from engine.learning.stats import ChunkStats


@dataclass(frozen=True, slots=True, kw_only=True)
class Gradient:
    """What one replica accumulated in the step under way, not yet divided."""

    vector: npt.NDArray[np.float32]
    """[parameters] gradient of the summed token losses, in the order of `weights.flatten`."""
    tokens: int
    """Response tokens that carried it: the normaliser's summand."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepStats:
    """One optimizer update."""

    version: int
    """Version after the update."""
    learning_rate: float
    """Rate of this update."""
    grad_norm: float | None
    """L2 norm of the divided gradient before clipping; None when no token carried a gradient."""
    tokens: int
    """Response tokens that carried the gradient, over all replicas."""


class Trainer(Protocol):
    @property
    def version(self) -> int:
        """Optimizer updates in the weights."""

    def accumulate(self, groups: Sequence[FinishedGroup]) -> ChunkStats:
        """Add the gradient of these scored groups to that of the step under way.

        Raises ValueError for a group without rewards or of a newer version than the trainer's.
        """

    def gradient(self) -> Gradient:
        """A copy of what was accumulated since the last `finish_step` or `discard`; zeros when nothing was."""

    def finish_step(self, parts: Sequence[Gradient] | None = None) -> StepStats:
        """Divide by all tokens, clip, update, and start the next step.

        `parts` are the gradients of all replicas, this one's included, in the same order on each of them: then the
        replicas end bitwise equal. None: this replica is alone.
        """

    def discard(self) -> None:
        """Forget what was accumulated since the last update."""

    def vector(self) -> npt.NDArray[np.float32]:
        """[parameters] a copy of the weights, in the order of `weights.flatten`."""

    def save(self, folder: Path) -> None:
        """Write a folder that `AutoModelForCausalLM.from_pretrained` loads and that `load` resumes from.

        The folder appears whole or not at all; an existing one is replaced. A gradient under way is
        not part of it: the groups of an unfinished step are trained again by whoever resumes.
        """

    def load(self, folder: Path) -> None:
        """Take weights, optimizer state and version from a folder that `save` wrote. Raises ValueError otherwise."""
