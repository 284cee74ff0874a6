"""The order in which training items are asked: a permutation an epoch, a pure function of the seed.

Numpy only: the engine reads it, and must not load what the workers load.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt


@dataclass(frozen=True, slots=True, kw_only=True)
class DataOrder:
    """Which item the n-th started group asks for; the same on every replica, without state."""

    size: int
    """Training items."""
    seed: int
    """Of the run."""
    shuffle: bool = True
    """A new permutation each epoch; otherwise always 0, 1, 2, .."""
    epochs: int | None = None
    """Passes before the items are used up; None: no limit."""

    @property
    def groups(self) -> int | None:
        """Groups until the items are used up; None: no limit."""
        return None if self.epochs is None else self.epochs * self.size

    def order(self, epoch: int) -> npt.NDArray[np.int64]:
        """int64 [size], the items in the order of that epoch."""
        return _order(self.size, self.seed, epoch) if self.shuffle else np.arange(self.size)

    def item_at(self, group: int) -> tuple[int, int, int]:
        """(epoch, position, item) of the n-th group, from 0. Raises IndexError after the last epoch."""
        epoch, position = divmod(group, self.size)
        if self.groups is not None and not 0 <= group < self.groups:
            raise IndexError(f"group {group}: task.epochs {self.epochs} x {self.size} items hold {self.groups}")
        return epoch, position, int(self.order(epoch)[position])


@lru_cache(maxsize=4)
def _order(size: int, seed: int, epoch: int) -> npt.NDArray[np.int64]:
    """Sorted random words: raw Philox output is stable between numpy's versions, its `permutation` is not."""
    words = np.random.Philox(key=np.array([seed, epoch], dtype=np.uint64), counter=ORDER_COUNTER).random_raw(size)
    order = np.argsort(words, kind="stable")
    order.setflags(write=False)
    return order


ORDER_COUNTER = np.array([0, 2**63, 0, 0], dtype=np.uint64)
"""Apart from the counters of the token streams, which share the key."""
