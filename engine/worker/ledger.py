"""A device's life as a gapless sequence of spans, closed from the worker's own clock.

A span ends at the very reading of the clock at which the next one begins, so nothing has to be filled in afterwards.
Each span carries the CPU seconds of the work thread between its ends: a second witness to what the device did. What the
rest of the process took (transport, mostly) is measured over the whole life, so that work in a hidden thread shows.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import NamedTuple


class WorkerSpan(NamedTuple):
    """A closed span, before the engine adds what only it knows (run, idle cause).

    A named tuple, not a dataclass: a hundred a second are unpickled by the engine, and these cost a fifth there.
    """

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
    """CPU seconds of the work thread within the span."""
    ref: str | None
    """Group or chunk, where there is one."""


class OpenSpan(NamedTuple):
    """What a device is doing now."""

    kind: str
    role: str | None
    version: int | None
    step: int | None
    since: float
    """Unix seconds."""


class Ledger:
    """`enter` closes the open span and opens the next one at the same instant.

    The work thread begins, enters and closes; another may `take` and look at `open` at any time. `thread_cpu` must read
    the clock of the thread that calls, `process_cpu` that of the whole process (both in seconds).
    """

    def __init__(
        self, *, clock: Callable[[], float], thread_cpu: Callable[[], float], process_cpu: Callable[[], float]
    ) -> None:
        self._clock = clock
        self._thread_cpu = thread_cpu
        self._process_cpu = process_cpu
        self._closed: deque[WorkerSpan] = deque()
        self._ref: str | None = None
        self._cpu_since = self._thread_began = self._process_began = 0.0
        self.started_at = clock()
        self.open = OpenSpan(kind="startup", role=None, version=None, step=None, since=self.started_at)
        """The span that has not ended."""

    def begin(self) -> None:
        """The life begins now, in the thread that calls."""
        self.started_at = self._clock()
        self.open = OpenSpan(kind="startup", role=None, version=None, step=None, since=self.started_at)
        self._cpu_since = self._thread_began = self._thread_cpu()
        self._process_began = self._process_cpu()

    @property
    def other_cpu_s(self) -> float:
        """CPU seconds of all other threads of the process since `begin`; asked by the work thread."""
        return (self._process_cpu() - self._process_began) - (self._thread_cpu() - self._thread_began)

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
        was = self.open
        if (kind, role, version, step, ref) != (was.kind, was.role, was.version, was.step, self._ref):
            self._cut(kind, role, version, step, ref)

    def close(self) -> float:
        """End the last span; returns the time (unix seconds) at which the device's life ended."""
        self._cut("idle", None, None, None, None)
        return self.open.since

    def take(self) -> list[WorkerSpan]:
        """Spans closed since the last call, oldest first."""
        return [self._closed.popleft() for _ in range(len(self._closed))]

    def _cut(self, kind: str, role: str | None, version: int | None, step: int | None, ref: str | None) -> None:
        now, cpu, was = self._clock(), self._thread_cpu(), self.open
        if now > was.since:
            span = WorkerSpan(
                t0=was.since,
                t1=now,
                kind=was.kind,
                role=was.role,
                version=was.version,
                step=was.step,
                cpu_s=cpu - self._cpu_since,
                ref=self._ref,
            )
            self._closed.append(span)
            self._cpu_since = cpu
        self._ref = ref
        self.open = OpenSpan(kind=kind, role=role, version=version, step=step, since=now)
