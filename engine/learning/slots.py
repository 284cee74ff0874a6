"""What a rollouter remembers of each growing response: one row per slot in preallocated arrays.

A token costs no Python object: a step writes all rows at once, and only a response that ends or is taken back becomes
an object of its own.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Literal

import numpy as np
import numpy.typing as npt

from engine.learning.sequences import Partial, VersionRanges

Indices = npt.NDArray[np.int64]


class SlotTable:
    """`slots` responses of at most `longest` tokens; the owner of a slot is (group id, response)."""

    def __init__(self, slots: int, longest: int) -> None:
        self.longest = longest
        self._tokens = np.zeros((slots, longest), dtype=np.int32)
        self._logprobs = np.zeros((slots, longest), dtype=np.float32)
        self._versions = np.zeros((slots, longest), dtype=np.int32)
        self._uniforms = np.zeros((slots, longest))
        self._counts = np.zeros(slots, dtype=np.int64)
        self._owners: list[tuple[int, int]] = [(-1, -1)] * slots
        self._free = list(range(slots - 1, -1, -1))

    @property
    def slots(self) -> int:
        return len(self._owners)

    @property
    def free(self) -> int:
        return len(self._free)

    def take(self, owner: tuple[int, int], uniforms: npt.NDArray[np.float64], prefix: Partial | None) -> int:
        """A free slot for one response: its random stream, float64 [longest], and its tokens so far."""
        slot = self._free.pop()
        self._owners[slot] = owner
        self._uniforms[slot] = uniforms
        count = 0 if prefix is None else len(prefix.tokens)
        self._counts[slot] = count
        if prefix is not None:
            self._tokens[slot, :count] = prefix.tokens
            self._logprobs[slot, :count] = prefix.logprobs
            runs = np.array(prefix.versions, dtype=np.int64).reshape(-1, 2)
            self._versions[slot, :count] = np.repeat(runs[:, 0], runs[:, 1])
        return slot

    def release(self, slot: int) -> None:
        self._owners[slot] = (-1, -1)
        self._free.append(slot)

    def owner(self, slot: int) -> tuple[int, int]:
        return self._owners[slot]

    def next_uniforms(self, slots: Indices) -> npt.NDArray[np.float64]:
        """float64 [rows]: the random number of each slot's next token."""
        return self._uniforms[slots, self._counts[slots]]

    def record(
        self, slots: Indices, tokens: npt.NDArray[np.int64], logprobs: npt.NDArray[np.float32], version: int
    ) -> npt.NDArray[np.bool_]:
        """Append one token to each slot; bool [rows]: which of them are full now."""
        places = self._counts[slots]
        self._tokens[slots, places] = tokens
        self._logprobs[slots, places] = logprobs
        self._versions[slots, places] = version
        self._counts[slots] = places + 1
        return places + 1 == self.longest

    def read(self, slot: int, finished_by: Literal["eos", "length"] | None) -> Partial:
        """A copy of what the slot holds."""
        count = int(self._counts[slot])
        return Partial(
            tokens=self._tokens[slot, :count].copy(),
            logprobs=self._logprobs[slot, :count].copy(),
            versions=ranges(self._versions[slot, :count]),
            finished_by=finished_by,
        )


def ranges(versions: npt.NDArray[np.int32]) -> VersionRanges:
    """Runs of equal versions, [T] -> ((version, count), ..)."""
    if not len(versions):
        return ()
    edges = [0, *(np.flatnonzero(np.diff(versions)) + 1).tolist(), len(versions)]
    return tuple((int(versions[begin]), end - begin) for begin, end in pairwise(edges))
