"""CPU seconds of the engine's own work and, apart, of Ray's: the price of watching and steering."""

from __future__ import annotations

import time
from dataclasses import dataclass

import psutil

RAY_SAMPLE_S = 5.0
"""Walking the process table costs milliseconds, so it is done this often."""

WORKER_MARK = "_WorkerProcess"
"""In the process title of our workers, whose time is in the ledger and not in Ray's account."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CpuSample:
    """CPU seconds since the engine began."""

    at: float
    """Monotonic seconds of the sample."""
    own_s: float
    """Control loop and telemetry writer, without the calls into Ray."""
    ray_s: float
    """Ray: calls into it, its threads in this process, its daemons; our workers' time is in the ledger instead."""


class CpuAccount:
    """Sampled by the thread that runs the control loop."""

    def __init__(self) -> None:
        self._next_walk = 0.0
        self._daemons_s = 0.0

    def sample(self, *, writer_s: float, calls_s: float, fresh: bool = False) -> CpuSample:
        """`writer_s`: CPU seconds of the telemetry writer's thread; `calls_s`: of this thread inside Ray's calls;
        `fresh`: look at Ray's daemons now."""
        now = time.monotonic()
        if fresh or now >= self._next_walk:
            self._next_walk = now + RAY_SAMPLE_S
            self._daemons_s = max(self._daemons_s, _ray_processes_s())
        own_s = time.thread_time() - calls_s + writer_s
        return CpuSample(at=now, own_s=own_s, ray_s=max(0.0, time.process_time() - own_s) + self._daemons_s)


def _ray_processes_s() -> float:
    total = 0.0
    for process in psutil.Process().children(recursive=True):
        try:
            title = " ".join(process.cmdline())
            if WORKER_MARK in title or not title:  # a process that just ended, a worker of ours perhaps, has no title
                continue
            times = process.cpu_times()
            total += times.user + times.system
        except psutil.Error:
            continue
    return total
