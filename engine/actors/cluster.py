"""Ray, started and stopped, and the workers of the runs as actors behind the `Workers` Protocol.

Each worker is one actor in a process of its own; the emulated devices of a node share one. One long exchange is open on
each actor (channels.py), so that a report and the answer to it cost one call. The engine waits on all of them at once.
"""

from __future__ import annotations

import logging
import os
import shutil
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

# before ray is imported: no usage reports, and one thread for every numeric library in the workers it starts
os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")

import ray
from ray.exceptions import RayActorError, RayError

from engine.actors.channels import Channel, NodeChannel, WorkerChannel
from engine.config.errors import one_line
from engine.devices import Report
from engine.models.memory import available_bytes
from engine.worker.messages import Command, WorkerSpec

logger = logging.getLogger(__name__)

SHARED_MEMORY = Path("/dev/shm")

SILENT_S = 60.0
"""An actor whose exchange has not come back for this long is counted as lost: its control thread cannot run."""

MIN_OBJECT_STORE_BYTES = 512 * 1024 * 1024
"""Holds a few versions of the weights and gradients of small models."""

OBJECT_STORE_SHARE = 0.4
"""Of the memory that is free, and twice that of the shared memory: memory is only taken as it is used. What a job puts
there is part of what it needs (`models.memory`). BIDIRL_OBJECT_STORE_BYTES says otherwise."""


def object_store_bytes() -> int:
    """Room for weights, gradients and snapshots."""
    free = available_bytes() * OBJECT_STORE_SHARE
    if SHARED_MEMORY.is_dir():
        free = min(free, shutil.disk_usage(SHARED_MEMORY).free * 2 * OBJECT_STORE_SHARE)
    return max(MIN_OBJECT_STORE_BYTES, int(free))


class RayWorkers:
    """Implements `Workers`."""

    def __init__(self, *, cores: int, address: str | None = None, temp_dir: Path | None = None) -> None:
        started = time.monotonic()
        store = int(os.environ.get("BIDIRL_OBJECT_STORE_BYTES") or object_store_bytes())
        options: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR, "namespace": "bidirl"}
        if address is None:
            options |= {"num_cpus": cores, "include_dashboard": False, "object_store_memory": store}
            if temp_dir is not None:
                options["_temp_dir"] = str(temp_dir)
        else:
            options["address"] = address
        ray.init(**options)
        self.start_s = time.monotonic() - started
        self._channels: list[Channel] = []
        self._of: dict[tuple[str, int], Channel] = {}
        """(run, device) -> the channel to the actor that hosts it."""
        self._cpu_s = 0.0
        logger.info("Ray is up after %.1f s with %d cores.", self.start_s, cores)

    @property
    def cpu_s(self) -> float:
        """CPU seconds that the calling thread spent inside Ray's calls."""
        return self._cpu_s

    def start(self, specs: Sequence[WorkerSpec]) -> None:
        for spec in specs:
            channel = self._waiting_node(spec) if spec.job.emulated else None
            if channel is not None:
                channel.host(spec)
            else:
                self._channels.append(NodeChannel(spec) if spec.job.emulated else WorkerChannel(spec))
            self._of[spec.run_id, spec.device] = channel or self._channels[-1]

    def _waiting_node(self, spec: WorkerSpec) -> NodeChannel | None:
        """The device's node where it has been asked for and its process has not begun."""
        waiting = [channel for channel in self._channels if isinstance(channel, NodeChannel) and not channel.begun]
        return next((node for node in waiting if (node.run_id, node.node) == (spec.run_id, spec.node)), None)

    def submit(self, run_id: str, device: int, command: Command) -> None:
        channel = self._of.get((run_id, device))
        if channel is not None:
            channel.add(device, command)

    def flush(self) -> None:
        begin = time.thread_time()
        for channel in self._channels:
            channel.flush()
        self._cpu_s += time.thread_time() - begin

    def wait(self, timeout_s: float) -> list[Report]:
        self.flush()
        begin = time.thread_time()
        calls = {channel.exchange: channel for channel in self._channels}
        reports: list[Report] = []
        if not calls:
            time.sleep(timeout_s)
        else:
            ready, _ = ray.wait(list(calls), num_returns=1, timeout=timeout_s)
            if ready and len(calls) > 1:
                ready, _ = ray.wait(list(calls), num_returns=len(calls), timeout=0)
            reports = [report for ref in ready for report in self._collect(calls[ref])] + self._silent()
        self._cpu_s += time.thread_time() - begin
        return reports

    def _collect(self, channel: Channel) -> list[Report]:
        try:
            deliveries = channel.collect()
        except RayActorError as error:
            # Ray's text goes on with advice about clusters; its first sentence says what it knows
            reason = " ".join(str(error).split()).partition(". ")[0][:200]
            return self._lost(channel, f"its process died ({reason})")
        except RayError as error:
            channel.kill()
            reason = one_line(error, 500)
            return self._lost(channel, f"it could not be asked: {reason}")
        return [Report(run_id=channel.run_id, device=device, delivery=delivery) for device, delivery in deliveries]

    def _silent(self) -> list[Report]:
        now = time.monotonic()
        silent = [c for c in self._channels if c.answered and c.exchange is not None and now - c.called_at > SILENT_S]
        if silent:  # an engine that was held up itself finds their answers waiting
            calls = {channel.exchange: channel for channel in silent}
            ready, _ = ray.wait(list(calls), num_returns=len(calls), timeout=0)
            silent = [channel for channel in silent if channel not in {calls[ref] for ref in ready}]
        reports: list[Report] = []
        for channel in silent:
            channel.kill()
            reports += self._lost(channel, f"it answered nothing for {SILENT_S:.0f} s")
        return reports

    def _lost(self, channel: Channel, why: str) -> list[Report]:
        """The actor is gone: one report for each device that it hosted."""
        self._remove(channel)
        return [Report(run_id=channel.run_id, device=device, delivery=None, lost=why) for device in channel.devices]

    def _remove(self, channel: Channel) -> None:
        self._channels.remove(channel)
        for device in channel.devices:
            if self._of.get((channel.run_id, device)) is channel:
                del self._of[channel.run_id, device]

    def end(self, run_id: str) -> None:
        for channel in [channel for channel in self._channels if channel.run_id == run_id]:
            channel.kill()
            self._remove(channel)

    def shutdown(self) -> None:
        for run_id in {channel.run_id for channel in self._channels}:
            self.end(run_id)
        ray.shutdown()
