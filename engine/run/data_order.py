"""The order in which training items are asked: a permutation an epoch, a pure function of the seed."""

from __future__ import annotations

import numpy as np


class DataOrder:
    """Maps a place in the data order to (epoch, position in the epoch, training item)."""

    def __init__(self, *, seed: int, shuffle: bool) -> None:
        self._seed = seed
        self._shuffle = shuffle
        self._epoch = -1
        self._items = np.empty(0, np.int64)
        self.size: int | None = None
        """Training items; known once the workers have made them."""

    def __call__(self, index: int) -> tuple[int, int, int]:
        """The place `index` >= 0, over all epochs."""
        assert self.size, "the number of training items is not known yet"
        epoch, position = divmod(index, self.size)
        if not self._shuffle:
            return epoch, position, position
        if epoch != self._epoch:
            self._items = np.random.default_rng([self._seed, epoch]).permutation(self.size)
            self._epoch = epoch
        return epoch, position, int(self._items[position])
