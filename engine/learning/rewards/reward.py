"""What a reward is given and what it may give: a number that can be trained on, or a failure that is told. Never a 0
for a fault.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

FAILED, TIMED_OUT, NOT_A_NUMBER = "reward_failed", "reward_timeout", "reward_not_a_number"
TOO_LARGE = "reward_too_large"
"""Why a group has no reward; the word that is counted and shown."""

LARGEST = 1e9
"""Of a reward, either way. Without scaling it multiplies the gradient, whose norm adds up squares in float32, which
ends at 3.4e38: 1e18 for the reward leaves room for ten billion parameters and then some."""

BETWEEN = f"allowed: from {-LARGEST:,.0f} to {LARGEST:,.0f}, since squares of gradients must fit float32"

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


class NoReward(ValueError):
    """What a reward gave is none."""

    def __init__(self, reason: str, detail: str) -> None:
        """`reason` is one of the words above."""
        super().__init__(detail)
        self.reason = reason


def as_number(value: object) -> float:
    """The reward as a float: whatever single number says what it is as one (of Python, numpy, torch; True is 1).

    Raises NoReward for anything else (text, nothing, several numbers), for what is not finite, and beyond `LARGEST`.
    """
    try:
        single = hasattr(value, "__float__") and not isinstance(value, str) and getattr(value, "shape", ()) == ()
        number = float(value) if single else None  # type: ignore[arg-type]
    except OverflowError:
        raise NoReward(TOO_LARGE, f"it gave a number that is too large for a float; {BETWEEN}") from None
    except Exception:  # foreign objects say no in many ways
        number = None
    if number is None:
        raise NoReward(NOT_A_NUMBER, f"it gave {type(value).__name__} {repr(value)[:60]}; allowed: a finite number")
    if not math.isfinite(number):
        raise NoReward(NOT_A_NUMBER, f"it gave {number}; allowed: a finite number")
    if abs(number) > LARGEST:
        raise NoReward(TOO_LARGE, f"it gave {number:g}; {BETWEEN}")
    return number
