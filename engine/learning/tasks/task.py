"""What a run asks its model: numbered items, some of them held out. How answers are scored is another matter."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from engine.config.task import SLOT

HELD_OUT_SEED = 987_654_321
"""Held-out items do not depend on the run's seed, so that accuracies of different runs compare."""


class Task(Protocol):
    @property
    def size(self) -> int:
        """Training items, numbered from 0."""

    @property
    def held_out(self) -> int:
        """Held-out items, numbered from -1 downwards, so that one index names either kind."""

    @property
    def sha256(self) -> str | None:
        """Of all items, where they are read from a file; None where they are made from a seed."""

    @property
    def notes(self) -> tuple[str, ...]:
        """What the log should say of the items, one sentence each."""

    def entry(self, item: int) -> Mapping[str, Any]:
        """`question` and `answer` as the source has them, and under `metadata` everything else it says."""

    def prompt(self, item: int) -> str:
        """The question as the model is asked it."""

    def place(self, item: int) -> str:
        """Where the item comes from, as messages call it: its source, and the line or row."""


def asked(question: str, template: str | None) -> str:
    """The question within the job's prompt template."""
    return question if template is None else template.replace(SLOT, question)
