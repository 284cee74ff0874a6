"""What the vLLM rollouter needs of an engine: requests by key, one token each a step. vLLM's is in `in_process.py`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch

Pick = Callable[[list[str], torch.Tensor], torch.Tensor]
"""(key of each row, logits float32 [rows, vocabulary]) -> tokens int64 [rows] on the logits' device."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Generated:
    """A request's next token."""

    key: str
    """Of the request."""
    token: int
    """As the engine has it."""
    finished: bool
    """The request is over: an end token, or its longest answer."""


class StepEngine(Protocol):
    """Not thread-safe. Tokens are drawn by the `pick` that it was made with."""

    @property
    def frees_memory(self) -> bool:
        """Sleeping gives device memory back."""

    @property
    def nbytes(self) -> int:
        """Bytes of the weights and of the keys and values."""

    def add(self, key: str, tokens: Sequence[int], *, longest: int, salt: str) -> None:
        """Continue these tokens by at most `longest`. Requests of one salt may share what they begin with."""

    def step(self) -> list[Generated]:
        """At most one token a request; fewer where not all are scheduled."""

    def abort(self, keys: Sequence[str]) -> None:
        """Forget these requests."""

    def load(self, weights: Iterable[tuple[str, torch.Tensor]], version: int) -> None:
        """Copy weights in, all of them; running requests continue under them."""

    def sleep(self) -> None:
        """Give device memory back; no request may be running."""

    def wake(self) -> None:
        """Be as before `sleep`."""
