"""The Ray actor around an emulated node: one process for up to some tens of devices, which only passes calls on.

Not pinned: emulated devices compute nothing, and their process sleeps nearly always.
"""

from __future__ import annotations

from typing import Any

import ray

from engine.actors.worker_actor import yield_to_others
from engine.emulated.loop import NodeLoop
from engine.worker.messages import Command, Delivery, WorkerSpec


class _NodeProcess:
    """One node's process."""

    def __init__(self, specs: list[WorkerSpec]) -> None:
        yield_to_others()
        self._loop = NodeLoop(specs)

    @ray.method(concurrency_group="commands")
    def submit(self, number: int, commands: list[tuple[int, Command]]) -> None:
        self._loop.submit(number, commands)

    @ray.method(concurrency_group="exchange")
    def exchange(
        self, number: int, commands: list[tuple[int, Command]], timeout_s: float
    ) -> list[tuple[int, Delivery]]:
        """Take commands and answer with what there is to report, as soon as there is something."""
        if commands:
            self._loop.submit(number, commands)
        return self._loop.poll(timeout_s)


NodeActor: Any = ray.remote(  # type: ignore[call-overload]
    num_cpus=0, max_restarts=0, max_task_retries=0, concurrency_groups={"commands": 1, "exchange": 1}
)(_NodeProcess)
"""The actor class; its two kinds of calls pass each other, as those of `WorkerActor` do."""
