"""The clock of an emulated node: modelled seconds inside, unix seconds outside, and what is due when.

    unix = born + modelled * scale

It moves only from one due thing to the next, or to the moment that it is told of from outside, so that whatever happens
has its exact time, however late the process woke up.
"""

from __future__ import annotations

from heapq import heappop, heappush
from typing import Protocol


class Timed(Protocol):
    """Something with at most one moment at which it is due next."""

    stamp: int
    """Counts announcements: an earlier one does not hold any more."""

    def due(self) -> None:
        """That moment is now."""


class Timeline:
    """One node's."""

    def __init__(self, born: float, scale: float) -> None:
        """`scale`: real seconds per modelled second."""
        self.now = 0.0
        """Modelled seconds since the node began."""
        self._born = born
        self._scale = scale
        self._heap: list[tuple[float, int, Timed, int]] = []
        self._count = 0

    def unix(self, at: float | None = None) -> float:
        """Unix seconds of a modelled time, of now without one."""
        return self._born + (self.now if at is None else at) * self._scale

    def real(self, seconds: float) -> float:
        """Real seconds that modelled ones take."""
        return seconds * self._scale

    def at(self, subject: Timed, when: float) -> None:
        """The subject is due then, and at no other time that was announced before."""
        subject.stamp += 1
        self._count += 1
        heappush(self._heap, (max(when, self.now), self._count, subject, subject.stamp))

    def cancel(self, subject: Timed) -> None:
        """The subject is not due any more."""
        subject.stamp += 1

    def clear(self) -> None:
        """Nothing is due any more."""
        self._heap.clear()

    def next_due(self) -> float | None:
        """Unix seconds at which something is due next; None when nothing is."""
        heap = self._heap
        while heap and heap[0][2].stamp != heap[0][3]:
            heappop(heap)
        return self.unix(heap[0][0]) if heap else None

    def advance(self, unix: float) -> None:
        """Let everything happen that is due until then, each at its own time, and make it that time."""
        # compared in unix seconds: those that `next_due` gave are then late enough, whatever their rounding
        while (due := self.next_due()) is not None and due <= unix:
            when, _, subject, _ = heappop(self._heap)
            self.now = max(self.now, when)
            subject.stamp += 1
            subject.due()
        self.now = max(self.now, (unix - self._born) / self._scale)
