"""CPU seconds of the engine's own work and, apart, of Ray's: the price of watching and steering."""

from __future__ import annotations

import time

import psutil

RAY_SAMPLE_S = 5.0
"""Walking the process table costs milliseconds, so it is done this often."""

WORKER_MARK = "_WorkerProcess"
"""In the process title of our workers, whose time is in the ledger and not in Ray's account."""


class CpuAccount:
    """Sampled by the thread that runs the control loop."""

    def __init__(self) -> None:
        self._next_ray = 0.0
        self._ray_processes_s = 0.0
        self._writer_s = 0.0
        self._loop_s = 0.0

    def sample(self, *, writer_s: float) -> None:
        """`writer_s`: CPU seconds of the telemetry writer's thread."""
        self._loop_s = time.thread_time()
        self._writer_s = writer_s
        now = time.monotonic()
        if now >= self._next_ray:
            self._next_ray = now + RAY_SAMPLE_S
            self._ray_processes_s = max(self._ray_processes_s, _ray_processes_s())

    @property
    def own_s(self) -> float:
        """CPU seconds of the control loop and the telemetry writer."""
        return self._loop_s + self._writer_s

    @property
    def ray_s(self) -> float:
        """CPU seconds of Ray: its threads in this process and its daemons."""
        return max(0.0, time.process_time() - self.own_s) + self._ray_processes_s


def _ray_processes_s() -> float:
    total = 0.0
    for process in psutil.Process().children(recursive=True):
        try:
            if WORKER_MARK in " ".join(process.cmdline()):
                continue
            times = process.cpu_times()
            total += times.user + times.system
        except psutil.Error:
            continue
    return total
