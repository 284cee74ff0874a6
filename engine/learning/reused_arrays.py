"""Memory of large arrays that are made again and again: the vectors a trainer sends.

The first touch of fresh memory costs more than the copy into it (a page fault for every page, and where the machine is
virtual one more below it), so what a step has sent serves the next one. An array is free when nobody refers to it or to
a view of it any more; whoever still holds one keeps it, and the next caller gets another.
"""

from __future__ import annotations

import sys

import numpy as np
import numpy.typing as npt

MOST_FREE = 1
"""Arrays of a size that wait for their next use. A second one is only needed while a receiver is slow."""

_HELD_HERE = 3
"""References to an array that is free: the list's, the loop's variable's, and that of the call that counts them."""


class ReusedArrays:
    """Used by one thread; those who let go of an array may be others."""

    def __init__(self) -> None:
        self._owned: list[npt.NDArray[np.float32]] = []

    def empty(self, shape: tuple[int, ...]) -> npt.NDArray[np.float32]:
        """float32 of this shape, its content arbitrary."""
        count = int(np.prod(shape))
        free = self._free(count)
        if free is None:
            free = np.empty(count, dtype=np.float32)
            self._owned.append(free)
        return free[:].reshape(shape)

    @property
    def nbytes(self) -> int:
        """Of all arrays that are kept, in use or free."""
        return sum(array.nbytes for array in self._owned)

    def _free(self, count: int) -> npt.NDArray[np.float32] | None:
        """A free one of this size; others of it beyond `MOST_FREE` are given up."""
        kept, found = [], []
        for array in self._owned:
            if len(array) == count and sys.getrefcount(array) == _HELD_HERE:
                found.append(array)
            else:
                kept.append(array)
        self._owned = kept + found[:MOST_FREE]
        return found[0] if found else None
