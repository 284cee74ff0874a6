"""What the engine needs of a trainer, whatever computes underneath.

Not thread-safe: one thread owns a trainer. Gradients are sums, divided once when a step ends, so the groups of a
step may arrive in any number of chunks and on any number of replicas.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np
import numpy.typing as npt

from engine.learning.sequences import FinishedGroup
from engine.learning.snapshot import Arrays, Snapshot
from engine.learning.stats import ChunkStats

GroupKey = tuple[int, int]
"""(epoch, position): where a group stands in the data order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gradient:
    """What one replica accumulated in the step under way, not yet divided."""

    vector: npt.NDArray[np.float32]
    """[parameters] gradient of the summed token losses, in the order of `weights.flatten`; from a deterministic trainer
    [groups, parameters], one row per group that carried a gradient."""
    tokens: int
    """Response tokens that carried it: the normaliser's summand."""
    keys: tuple[GroupKey, ...] = ()
    """Of a deterministic trainer: which group each row is of."""


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
    divisor: float | None = None
    """What the summed gradient was divided by, and the summed loss is to be; None when no token carried a gradient."""


class Trainer(Protocol):
    """A primary owns an optimizer. An auxiliary has none: it becomes the step's version by `take`, accumulates, and
    ships its gradient; `finish_step`, `save`, `load`, `snapshot` and `restore` raise RuntimeError there."""

    @property
    def version(self) -> int:
        """Optimizer updates in the weights."""

    @property
    def nbytes(self) -> int:
        """Bytes of the parameters, the gradient and the optimizer state that it holds or will hold."""

    def accumulate(self, groups: Sequence[FinishedGroup]) -> ChunkStats:
        """Add the gradient of these scored groups to that of the step under way.

        Raises ValueError for a group without rewards or of a newer version than the trainer's.
        """

    def accumulate_until(self, groups: Sequence[FinishedGroup], stop: Callable[[], bool]) -> tuple[ChunkStats, int]:
        """As `accumulate`, in order and in bundles of whole groups of about one forward pass each.

        `stop` is asked before every bundle but the first. Returns the sums of what was trained and how many groups,
        from the first on, that was. Groups that cannot be trained on are refused before anything is added.
        """

    def gradient(self) -> Gradient:
        """A copy of what was accumulated since the last `finish_step` or `discard`; zeros when nothing was."""

    def finish_step(self, parts: Sequence[Gradient] | None = None) -> StepStats:
        """Divide as the loss has it, clip, update, and start the next step.

        `parts` are the gradients of all replicas, this one's included, in the same order on each of them: then the
        replicas end bitwise equal. None: this replica is alone. A deterministic trainer ends bitwise equal for any
        order and any split of the same groups, and raises ValueError for a group that came twice.
        """

    def discard(self) -> None:
        """Forget what was accumulated since the last update."""

    def vector(self) -> npt.NDArray[np.float32]:
        """[parameters] a copy of the weights, in the order of `weights.flatten`."""

    def take(self, vector: npt.NDArray[np.float32], version: int) -> None:
        """Become exactly this version of the weights and forget what was accumulated; optimizer state and reference
        stay. The vector may be read-only. Raises ValueError when its size is not the model's."""

    def reference_vector(self) -> npt.NDArray[np.float32] | None:
        """[parameters] a copy of the policy that the KL term pulls towards; None when kl_coef is 0."""

    def set_reference(self, vector: npt.NDArray[np.float32]) -> None:
        """Pull towards these weights from now on. Raises ValueError when kl_coef is 0 or the size is not the model's.

        Needed wherever the model held something else than the run's first weights when the trainer was made.
        """

    def snapshot(self, parameters: npt.NDArray[np.float32] | None = None, arrays: Arrays | None = None) -> Snapshot:
        """A copy of weights, optimizer state and version, from which `restore` continues bitwise.

        `parameters`: what `vector` gave of this version, which is then not copied once more. `arrays`: where the copy
        of the optimizer state goes, in place of the trainer's own memory. Neither a gradient under way nor the
        reference is part of it.
        """

    def restore(self, snapshot: Snapshot) -> None:
        """Continue from there and forget what was accumulated; its arrays may be read-only. Raises ValueError on wrong
        sizes."""

    def save(self, folder: Path) -> None:
        """Write a folder that `AutoModelForCausalLM.from_pretrained` loads and that `load` resumes from.

        The folder appears whole or not at all; an existing one is replaced. A gradient under way is
        not part of it: the groups of an unfinished step are trained again by whoever resumes.
        """

    def load(self, folder: Path) -> tuple[str, ...]:
        """Take weights, optimizer state, reference and version from a folder that `save` wrote; returns what the log
        should say, one sentence each.

        Raises ValueError otherwise, when adapters in it were trained on another base model, and when kl_coef is not 0
        and the folder has no reference.
        """
