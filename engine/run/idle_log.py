"""Gives idle spans their cause: the engine knows why a device has nothing to do, the worker knows when.

The engine notes the cause of every idle device whenever it decides; when the worker's idle span arrives it is cut at
the moments where the cause changed. The worker's own bounds are kept, so the ledger stays gapless.
"""

from __future__ import annotations

from bisect import bisect_right

HANDOVER = "no_work"
"""Cause of the moment between two pieces of work that the engine saw as one: nothing was in the device's inbox."""


class IdleLog:
    """The causes of one device over time."""

    def __init__(self) -> None:
        self._times: list[float] = []
        self._causes: list[str | None] = []

    def note(self, now: float, cause: str | None) -> None:
        """From `now` (unix seconds) on this is the cause; None while the device has work."""
        if self._causes and self._causes[-1] == cause:
            return
        self._times.append(now)
        self._causes.append(cause)

    def cut(self, t0: float, t1: float) -> list[tuple[float, float, str]]:
        """The idle time from t0 to t1 as (start, end, cause), gapless; forgets what lies before t1."""
        first = max(0, bisect_right(self._times, t0) - 1)
        edges: list[tuple[float, str]] = [(t0, self._cause_at(t0, t1))]
        for time, cause in zip(self._times[first:], self._causes[first:], strict=True):
            if t0 < time < t1 and cause is not None and cause != edges[-1][1]:
                edges.append((time, cause))
        self._forget(t1)
        ends = [time for time, _ in edges[1:]] + [t1]
        return [(start, end, cause) for (start, cause), end in zip(edges, ends, strict=True)]

    def now(self) -> str:
        """The cause that holds now."""
        return next((cause for cause in reversed(self._causes) if cause is not None), HANDOVER)

    def _cause_at(self, t0: float, t1: float) -> str:
        """The cause noted at t0; when the device was still taken to be busy then, the first one noted until t1."""
        place = bisect_right(self._times, t0) - 1
        if place >= 0 and self._causes[place] is not None:
            return self._causes[place] or HANDOVER
        for time, cause in zip(self._times[place + 1 :], self._causes[place + 1 :], strict=True):
            if time >= t1:
                break
            if cause is not None:
                return cause
        return HANDOVER

    def _forget(self, until: float) -> None:
        place = bisect_right(self._times, until) - 1
        if place > 0:
            del self._times[:place], self._causes[:place]
