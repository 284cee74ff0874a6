"""Ray, started and stopped, and the workers of the runs as actors behind the `Workers` Protocol.

Each worker is one actor in a process of its own. One long `exchange` is open on each: it takes commands along and comes
back when the worker has something to say, so that a report and the answer to it cost one call. Commands that arise
while it is open go in a call of their own; batches are numbered, so their order survives two ways. The engine waits on
all exchanges at once.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

# before ray is imported: no usage reports, and one thread for every numeric library in the workers it starts
os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")

import ray
from ray.exceptions import RayActorError, RayError

from engine.actors.worker_actor import WorkerActor
from engine.config.job import OVERSUBSCRIBED_WORKERS_PER_CORE
from engine.devices import Report
from engine.worker.messages import Command, WorkerSpec
from engine.worker.transport import with_handles

logger = logging.getLogger(__name__)

POLL_S = 1.0
"""A worker with nothing to say answers this often: a sign of life, and its open span for the page."""

SILENT_S = 60.0
"""A worker whose exchange has not come back for this long is counted as lost: its control thread cannot run."""

OBJECT_STORE_BYTES = 512 * 1024 * 1024
"""Holds a few versions of the weights and gradients of small models; larger jobs set BIDIRL_OBJECT_STORE_BYTES."""


@dataclass(slots=True)
class _Worker:
    spec: WorkerSpec
    actor: Any
    exchange: Any = None
    """The open call; None until the next flush."""
    arrays: Any = None
    """What will hold the arrays of its answer."""
    called_at: float = 0.0
    answered: bool = False
    batches: int = 0
    outbox: list[Command] = field(default_factory=list)


class RayWorkers:
    """Implements `Workers`."""

    def __init__(self, *, cores: int, address: str | None = None, temp_dir: Path | None = None) -> None:
        started = time.monotonic()
        store = int(os.environ.get("BIDIRL_OBJECT_STORE_BYTES", OBJECT_STORE_BYTES))
        options: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR, "namespace": "bidirl"}
        if address is None:
            options |= {"num_cpus": cores, "include_dashboard": False, "object_store_memory": store}
            if temp_dir is not None:
                options["_temp_dir"] = str(temp_dir)
        else:
            options["address"] = address
        ray.init(**options)
        self.start_s = time.monotonic() - started
        self._workers: dict[tuple[str, int], _Worker] = {}
        self._cpu_s = 0.0
        logger.info("Ray is up after %.1f s with %d cores.", self.start_s, cores)

    @property
    def cpu_s(self) -> float:
        """CPU seconds that the calling thread spent inside Ray's calls."""
        return self._cpu_s

    def start(self, specs: Sequence[WorkerSpec]) -> None:
        for spec in specs:
            share = 1 / OVERSUBSCRIBED_WORKERS_PER_CORE if spec.job.devices.oversubscribe else 1
            actor = WorkerActor.options(num_cpus=share).remote(spec)
            self._workers[spec.run_id, spec.device] = _Worker(spec, actor)

    def submit(self, run_id: str, device: int, command: Command) -> None:
        worker = self._workers.get((run_id, device))
        if worker is not None:
            worker.outbox.append(command)

    def flush(self) -> None:
        begin = time.thread_time()
        for worker in self._workers.values():
            if worker.exchange is not None and not worker.outbox:
                continue
            number, commands = worker.batches, worker.outbox
            if commands:
                worker.batches, worker.outbox = number + 1, []
            if worker.exchange is None:
                worker.exchange, worker.arrays = worker.actor.exchange.remote(number, commands, POLL_S)
                worker.called_at = time.monotonic()
            else:
                # the answer says nothing that the exchange does not: a dead actor fails there
                worker.actor.submit.remote(number, commands)
        self._cpu_s += time.thread_time() - begin

    def wait(self, timeout_s: float) -> list[Report]:
        self.flush()
        begin = time.thread_time()
        calls = {worker.exchange: key for key, worker in self._workers.items()}
        reports: list[Report] = []
        if not calls:
            time.sleep(timeout_s)
        else:
            ready, _ = ray.wait(list(calls), num_returns=1, timeout=timeout_s)
            if ready and len(calls) > 1:
                ready, _ = ray.wait(list(calls), num_returns=len(calls), timeout=0)
            reports = [self._collect(calls[ref]) for ref in ready] + self._silent()
        self._cpu_s += time.thread_time() - begin
        return reports

    def _collect(self, key: tuple[str, int]) -> Report:
        run_id, device = key
        worker = self._workers[key]
        try:
            delivery = ray.get(worker.exchange, timeout=POLL_S)
        except RayActorError as error:
            del self._workers[key]
            # Ray's text goes on with advice about clusters; its first sentence says what it knows
            reason = " ".join(str(error).split()).partition(". ")[0][:200]
            return Report(run_id=run_id, device=device, delivery=None, lost=f"its process died ({reason})")
        except RayError as error:
            ray.kill(self._workers.pop(key).actor)
            reason = " ".join(str(error).split())[:500]
            return Report(run_id=run_id, device=device, delivery=None, lost=f"it could not be asked: {reason}")
        places = {number: place for place, number in enumerate(delivery.parcels)}
        arrays = worker.arrays
        delivery = with_handles(delivery, lambda parcel: [arrays, places[parcel.number]])
        worker.exchange, worker.arrays, worker.answered = None, None, True
        return Report(run_id=run_id, device=device, delivery=delivery)

    def _silent(self) -> list[Report]:
        now = time.monotonic()
        silent = [
            key
            for key, w in self._workers.items()
            if w.answered and w.exchange is not None and now - w.called_at > SILENT_S
        ]
        if silent:  # an engine that was held up itself finds their answers waiting
            calls = {self._workers[key].exchange: key for key in silent}
            ready, _ = ray.wait(list(calls), num_returns=len(calls), timeout=0)
            silent = [key for key in silent if key not in {calls[ref] for ref in ready}]
        for key in silent:
            ray.kill(self._workers.pop(key).actor)
        text = f"it answered nothing for {SILENT_S:.0f} s"
        return [Report(run_id=run_id, device=device, delivery=None, lost=text) for run_id, device in silent]

    def end(self, run_id: str) -> None:
        for key in [key for key in self._workers if key[0] == run_id]:
            ray.kill(self._workers.pop(key).actor)

    def shutdown(self) -> None:
        for run_id in {run_id for run_id, _ in self._workers}:
            self.end(run_id)
        ray.shutdown()
