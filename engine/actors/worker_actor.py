"""The Ray actor around a device worker: pins the process, then only passes calls on."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import ray

from engine.worker.messages import Command, Delivery, Parcel, WorkerSpec

if TYPE_CHECKING:
    from engine.worker.device_worker import DeviceWorker

NICE = 10
"""Workers yield to the engine, Ray and the page, which need little and need it at once."""

HUGE_PAGES = "THP_MEM_ALLOC_ENABLE"
"""Torch, which reads this as it loads, then asks for huge pages: what a pass allocates is touched anew each time, and a
first touch costs the same for 2 MB as for 4 kB. The operator's own setting is kept."""

FETCH_S = 60.0
"""Longest wait for weights or a gradient of another worker."""


class RayTransport:
    """Arrays through Ray's object store: numpy, so that readers map them without a copy.

    They are a second return value of the exchange that reports them, so their owner is the engine and they outlive this
    process. A handle is [reference, place]: in a list, or Ray would resolve it where it is only passed on.
    """

    def __init__(self, worker: DeviceWorker) -> None:
        self._worker = worker

    def put(self, array: npt.NDArray[np.float32]) -> Parcel:
        return self._worker.attach(array)

    def get(self, handle: list[Any]) -> npt.NDArray[np.float32]:
        reference, place = handle
        try:
            array: npt.NDArray[np.float32] = ray.get(reference, timeout=FETCH_S)[place]
        except ray.exceptions.GetTimeoutError as error:
            raise TimeoutError(f"no answer within {FETCH_S:.0f} s from the store that holds the array") from error
        return array


def pin(core: int) -> None:
    """Put every thread of this process, and those to come, on one core and behind everything else on it."""
    for thread in os.listdir("/proc/self/task"):
        os.sched_setaffinity(int(thread), {core})
    yield_to_others()


def yield_to_others() -> None:
    """Put every thread of this process, and those to come, behind everything else on the machine."""
    for thread in os.listdir("/proc/self/task"):
        os.setpriority(os.PRIO_PROCESS, int(thread), NICE)


class _WorkerProcess:
    """One device's process."""

    def __init__(self, spec: WorkerSpec) -> None:
        assert spec.core is not None, f"device {spec.device} has no core of its own"
        pin(spec.core)
        os.environ.setdefault(HUGE_PAGES, "1")
        import torch

        from engine.worker.device_worker import DeviceWorker
        from engine.worker.roles import TorchRoles

        torch.set_num_threads(1)
        self._worker = DeviceWorker(spec, lambda worker: TorchRoles(worker, RayTransport(worker)))
        self._worker.start()

    @ray.method(concurrency_group="commands")
    def submit(self, number: int, commands: list[Command]) -> None:
        self._worker.submit(number, commands)

    @ray.method(concurrency_group="exchange", num_returns=2)
    def exchange(
        self, number: int, commands: list[Command], timeout_s: float
    ) -> tuple[Delivery, list[npt.NDArray[np.float32]]]:
        """Take commands and answer with what there is to report, as soon as there is something, and its arrays."""
        if commands:
            self._worker.submit(number, commands)
        return self._worker.poll(timeout_s)


WorkerActor: Any = ray.remote(  # type: ignore[call-overload]
    max_restarts=0, max_task_retries=0, concurrency_groups={"commands": 1, "exchange": 1}
)(_WorkerProcess)
"""The actor class: the long exchange waits in one concurrency group, so that commands can pass it in another."""
