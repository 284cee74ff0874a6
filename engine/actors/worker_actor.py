"""The Ray actor around a device worker: pins the process, then only passes calls on."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import numpy.typing as npt
import ray

from engine.worker.messages import Command, Delivery, WorkerSpec

NICE = 10
"""Workers yield to the engine, Ray and the page, which need little and need it at once."""

FETCH_S = 60.0
"""Longest wait for weights or a gradient of another worker."""


class RayTransport:
    """Arrays through Ray's object store: numpy, so that readers map them without a copy."""

    def put(self, array: npt.NDArray[np.float32]) -> list[Any]:
        # in a list, or Ray would resolve the reference where only the handle is passed on
        return [ray.put(array)]

    def get(self, handle: list[Any]) -> npt.NDArray[np.float32]:
        try:
            array: npt.NDArray[np.float32] = ray.get(handle[0], timeout=FETCH_S)
        except ray.exceptions.GetTimeoutError as error:
            raise TimeoutError(f"no answer within {FETCH_S:.0f} s from the worker that holds the array") from error
        return array


def pin(core: int) -> None:
    """Put every thread of this process, and those to come, on one core and behind everything else on it."""
    for thread in os.listdir("/proc/self/task"):
        os.sched_setaffinity(int(thread), {core})
        os.setpriority(os.PRIO_PROCESS, int(thread), NICE)


class _WorkerProcess:
    """One device's process."""

    def __init__(self, spec: WorkerSpec) -> None:
        pin(spec.core)
        import torch

        from engine.worker.device_worker import DeviceWorker
        from engine.worker.roles import TorchRoles

        torch.set_num_threads(1)
        self._worker = DeviceWorker(spec, lambda worker: TorchRoles(worker, RayTransport()))
        self._worker.start()

    @ray.method(concurrency_group="commands")
    def submit(self, number: int, commands: list[Command]) -> None:
        self._worker.submit(number, commands)

    @ray.method(concurrency_group="exchange")
    def exchange(self, number: int, commands: list[Command], timeout_s: float) -> Delivery:
        """Take commands and answer with what there is to report, as soon as there is something."""
        if commands:
            self._worker.submit(number, commands)
        return self._worker.poll(timeout_s)


WorkerActor: Any = ray.remote(  # type: ignore[call-overload]
    max_restarts=0, max_task_retries=0, concurrency_groups={"commands": 1, "exchange": 1}
)(_WorkerProcess)
"""The actor class: the long exchange waits in one concurrency group, so that commands can pass it in another."""
