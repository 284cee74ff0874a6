"""Real workers on the tiny model in threads of this process: arrays go from hand to hand, no Ray.

Each worker does everything that it does in life, except that its process is not its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from engine.config import Job, check_job
from engine.learning.sequences import FinishedGroup, GroupRequest
from engine.worker import messages as msg
from engine.worker.device_worker import DeviceWorker
from engine.worker.ledger import WorkerSpan
from engine.worker.roles import TorchRoles
from engine.worker.transport import with_handles

PATIENCE_S = 60.0
"""Longest wait for anything; reached only when a test fails."""

B = 4
GROUP_SIZE = 4

Event = TypeVar("Event")


def make_job(**sections: dict[str, Any]) -> Job:
    document: dict[str, dict[str, Any]] = {
        "model": {"warm_start": {"steps": 0, "worked_only_steps": 0}},
        "task": {"items": 40, "reward": "exact"},
        "eval": {"items": 2},
        "algorithm": {"group_size": GROUP_SIZE, "prompts_per_step": B, "steps": 10, "learning_rate": 1e-3},
        "sampling": {"max_response_tokens": 24},
        "schedule": {"arm": "bidirectional", "deterministic": True},
        "devices": {"partition": "1:2", "rollout_slots": 4 * GROUP_SIZE},
    }
    for name, values in sections.items():
        document[name] = document.get(name, {}) | values
    return check_job(document)


MOST_SILENT = 100
"""Reports in a row that tell of free slots alone: more, and what is waited for does not come."""


class LocalTransport:
    """A handle is the array."""

    def __init__(self, worker: DeviceWorker) -> None:
        self._worker = worker

    def put(self, array: npt.NDArray[np.float32]) -> msg.Parcel:
        array.setflags(write=False)
        return self._worker.attach(array)

    def get(self, handle: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
        assert not handle.flags.writeable
        return handle


class Worker:
    """One of them, driven as the engine does."""

    def __init__(self, device: int, folder: Path, job: Job, *, both: bool = True) -> None:
        """`both`: it has the other role in memory too."""
        partition = job.partition
        assert partition is not None
        home = "rollout" if device < partition.rollout else "train"
        self.spec = msg.WorkerSpec(
            run_id="run",
            device=device,
            core=0,
            home=home,
            rolls=both or home == "rollout",
            trains=both or home == "train",
            source=device == partition.rollout,
            job=job,
            base_dir=folder,
            cache_dir=folder,
            resume_from=None,
            snapshot_dir=folder / "snapshots",
            clock_offset_s=0.0,
        )
        self.events: list[msg.Event] = []
        self._silent = 0
        self.spans: list[WorkerSpan] = []
        self.decoded: list[msg.DecodeUnit] = []
        self._batches = 0
        self.roles: TorchRoles

        def make(worker: DeviceWorker) -> TorchRoles:
            self.roles = TorchRoles(worker, LocalTransport(worker))
            return self.roles

        self.worker = DeviceWorker(self.spec, make)
        self.worker.start()

    def send(self, *commands: msg.Command) -> None:
        self.worker.submit(self._batches, commands)
        self._batches += 1

    def next(self, kind: type[Event]) -> Event:
        """The next event of a kind that has not been looked at; what comes before it is kept."""
        while True:
            for place, event in enumerate(self.events):
                if isinstance(event, kind):
                    del self.events[place]
                    return event
                assert not isinstance(event, msg.Failed), event.traceback
            self._poll()

    def _poll(self) -> None:
        delivery, arrays = self.worker.poll(PATIENCE_S)
        assert delivery.events or delivery.load is not None, "the worker says nothing"
        self._silent = 0 if delivery.events else self._silent + 1
        assert self._silent < MOST_SILENT, "the worker tells of free slots and of nothing else"
        by_number = dict(zip(delivery.parcels, arrays, strict=True))
        delivery = with_handles(delivery, lambda parcel: by_number[parcel.number])
        self.events += delivery.events
        self.spans += delivery.spans
        self.decoded += delivery.decoded

    def close(self) -> None:
        self.send(msg.Shutdown())
        assert self.worker.join(PATIENCE_S)

    # -- what the engine asks for -------------------------------------------------------------------------------------

    def begin_lease(self, lease: int, weights: msg.Weights) -> msg.LeaseReady:
        self.send(msg.BeginLease(lease=lease, step=weights.version + 1, weights=weights))
        return self.next(msg.LeaseReady)

    def end_lease(self, lease: int, step: int, *, revoke: bool = False, **brings: Any) -> None:
        command = {"weights": None, "snapshot": None} | brings
        self.send(msg.EndLease(lease=lease, step=step, revoke=revoke, **command))

    def generate(self, *requests: GroupRequest) -> list[FinishedGroup]:
        self.send(msg.Generate(requests=requests))
        return [self.next(msg.GroupScored).group.open() for _ in requests]

    def train(self, step: int, groups: Sequence[msg.SealedGroup], *, chunk_id: int = 0) -> msg.ChunkDone:
        self.send(msg.TrainChunk(chunk_id=chunk_id, step=step, groups=tuple(groups)))
        return self.next(msg.ChunkDone)

    def finish_step(
        self, step: int, gradients: Sequence[msg.ShippedGradient], *, own: bool, publish: bool = True
    ) -> msg.StepDone:
        self.send(msg.FinishStep(step=step, gradients=tuple(gradients), own=own, publish=publish))
        return self.next(msg.StepDone)

    def parameters_sha256(self, folder: Path, version: int) -> str:
        self.send(msg.SaveCheckpoint(folder=folder, step=version))
        return self.next(msg.CheckpointSaved).params_sha256


def make_request(group_id: int, **overrides: Any) -> GroupRequest:
    fields = {"group_id": group_id, "epoch": 0, "position": group_id, "item": group_id, "bound": 1.0}
    return GroupRequest(**(fields | overrides))


def with_signal(group: FinishedGroup) -> msg.SealedGroup:
    """The group with rewards that differ, or it would carry no gradient: without a warm start all answers are wrong."""
    return msg.SealedGroup.seal(group.with_rewards([1.0, 0.0, 0.5, 0.0]))


def renumbered(group: FinishedGroup, group_id: int) -> FinishedGroup:
    """The same answers as another group of the data order."""
    return replace(group, group_id=group_id, position=group_id)
