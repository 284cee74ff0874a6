"""A device's life as a gapless sequence of spans, closed from the worker's own clock.

A span ends at the very reading of the clock at which the next one begins, so nothing has to be filled in afterwards.
Each span carries the CPU seconds of the whole process between its ends: a second witness to what the device did.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerSpan:
    """A closed span, before the engine adds what only it knows (run, idle cause)."""

    t0: float
    """Unix seconds."""
    t1: float
    """Unix seconds."""
    kind: str
    """One of the kinds of design.md section 8."""
    role: str | None
    """primary or auxiliary, for rollout and train."""
    version: int | None
    """Version of the weights in use."""
    step: int | None
    """Step the work belongs to, where it belongs to one."""
    cpu_s: float
    """CPU seconds of the process within the span."""
    ref: str | None
    """Group or chunk, where there is one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenSpan:
    """What a device is doing now."""

    kind: str
    role: str | None
    version: int | None
    step: int | None
    since: float
    """Unix seconds."""


class Ledger:
    """`enter` closes the open span and opens the next one at the same instant."""

    def __init__(self, *, clock: Callable[[], float], cpu_clock: Callable[[], float]) -> None:
        self._clock = clock
        self._cpu_clock = cpu_clock
        self._closed: list[WorkerSpan] = []
        self._key: tuple[str, str | None, int | None, int | None, str | None] = ("startup", None, None, None, None)
        self._since = clock()
        self._cpu_since = cpu_clock()
        self.started_at = self._since

    def enter(
        self,
        kind: str,
        *,
        role: str | None = None,
        version: int | None = None,
        step: int | None = None,
        ref: str | None = None,
    ) -> None:
        """The device does this from now on; entering what it already does changes nothing."""
        key = (kind, role, version, step, ref)
        if key != self._key:
            self._cut(key)

    def close(self) -> float:
        """End the last span; returns the time (unix seconds) at which the device's life ended."""
        self._cut(("idle", None, None, None, None))
        return self._since

    def take(self) -> list[WorkerSpan]:
        """Spans closed since the last call, oldest first."""
        closed, self._closed = self._closed, []
        return closed

    @property
    def open(self) -> OpenSpan:
        """The span that has not ended."""
        kind, role, version, step, _ = self._key
        return OpenSpan(kind=kind, role=role, version=version, step=step, since=self._since)

    def _cut(self, key: tuple[str, str | None, int | None, int | None, str | None]) -> None:
        now, cpu = self._clock(), self._cpu_clock()
        kind, role, version, step, ref = self._key
        if now > self._since:
            self._closed.append(
                WorkerSpan(
                    t0=self._since,
                    t1=now,
                    kind=kind,
                    role=role,
                    version=version,
                    step=step,
                    cpu_s=cpu - self._cpu_since,
                    ref=ref,
                )
            )
            self._cpu_since = cpu
        self._key, self._since = key, now
