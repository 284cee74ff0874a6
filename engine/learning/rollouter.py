"""What the engine needs of a rollouter, whatever generates underneath.

Not thread-safe: one thread owns a rollouter and calls everything on it. Between two calls of `step` it may be given
groups, given other weights, or relieved of groups; nothing it holds is lost by that.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Protocol

import numpy as np
import numpy.typing as npt

from engine.learning.prompts import PromptRefused
from engine.learning.sequences import FinishedGroup, GroupRequest, PartialGroup


class Rollouter(Protocol):
    @property
    def version(self) -> int:
        """Version of the loaded weights; tokens sampled from now on carry it."""

    @property
    def active_groups(self) -> int:
        """Groups added and neither finished nor aborted."""

    @property
    def active_sequences(self) -> int:
        """Responses that still grow; each holds one slot."""

    def free_slots(self) -> int:
        """Sequences that can be added now."""

    def load(self, vector: npt.NDArray[np.float32], version: int) -> None:
        """Copy these weights in; running groups continue under them. The vector may be read-only.

        Raises ValueError when its size is not the model's.
        """

    def add(self, request: GroupRequest) -> None:
        """Take a group; its first tokens come with the next `step`.

        Raises RuntimeError when the free slots do not hold its unfinished responses or the group is held already, and
        PromptRefused when the model cannot be asked its prompt; then nothing is left of the group.
        """

    def refusal(self, prompt: str, prefix: str = "") -> PromptRefused | None:
        """Why the model cannot be asked this, with answers that start with `prefix`; None: it can."""

    def step(self) -> list[FinishedGroup]:
        """One token for every active sequence; returns the groups that this finished, unscored, oldest added first.

        Without active groups it returns at once.
        """

    def abort(self, group_ids: Collection[int] | None = None) -> list[PartialGroup]:
        """Take groups back (None: all) with their prefixes. Raises KeyError for a group that is not held."""

    def greedy(self, prompts: Sequence[str], prefix: str = "") -> list[str]:
        """The most likely answers, each made to start with `prefix`, which is part of the text returned.

        For evaluation; independent of the running groups. Runs to the end: call it with few prompts at a time (at most
        `free_slots` or so) where the caller must stay interruptible. Raises PromptRefused before the first token where
        the model cannot be asked one of them.
        """

    def sampled(self, prompts: Sequence[str], prefix: str = "", first: int = 0) -> list[str]:
        """As `greedy`, drawn at the sampling temperature; prompt i uses the evaluation stream `first + i`."""
