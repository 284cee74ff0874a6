"""What a reward is given and what it may give: a finite number, or a failure that is told. Never a 0 for a fault."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from numbers import Real
from typing import Any, Protocol

FAILED, TIMED_OUT, NOT_A_NUMBER = "reward_failed", "reward_timeout", "reward_not_a_number"
"""Why a group has no reward; the word that is counted and shown."""

SHOWN = 200
"""Characters of an answer that a message quotes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What was asked, as far as scoring an answer needs it."""

    item: int
    """Number of the item in its task."""
    prompt: str
    """As the model was asked it."""
    entry: Mapping[str, Any]
    """The item: question, answer, and metadata with its other fields."""

    @property
    def answer(self) -> Any:
        """The right one."""
        return self.entry["answer"]

    @property
    def fields(self) -> Mapping[str, Any]:
        """What else the item says."""
        return self.entry.get("metadata") or {}


class Reward(Protocol):
    def __call__(self, question: Question, text: str) -> object:
        """What an answer earns; whatever it raises, and anything but a finite number, is a failure."""


class RewardFailed(RuntimeError):
    """An answer could not be scored, so that its group has no reward. Survives pickling."""

    def __init__(self, reason: str, name: str, item: int, text: str, detail: str) -> None:
        """`reason` is one of the words above, `name` the reward's."""
        self.reason = reason
        self.name = name
        self.item = item
        self.text = text
        self.detail = detail
        super().__init__(reason, name, item, text, detail)

    def __str__(self) -> str:
        detail = " ".join(self.detail.split())
        return f"{self.name} failed on item {self.item} and the answer {self.text[:SHOWN]!r}: {detail}"


class NotANumber(ValueError):
    """A reward gave something, and it is no reward."""


def as_number(value: object) -> float:
    """The reward as a float. Raises NotANumber for anything but a finite number."""
    if not isinstance(value, Real):
        raise NotANumber(f"it gave {type(value).__name__} {repr(value)[:60]}; allowed: a finite number")
    if not math.isfinite(value):
        raise NotANumber(f"it gave {value}; allowed: a finite number")
    return float(value)
