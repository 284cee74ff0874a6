"""Small emulated jobs and one node of them, with explicit times: 100 tokens/s, no noise, ten modelled seconds a second.

0 1 2 3 | 4 5 6 7     partition 4:4, rollout replicas of 1, train replicas of 4: blocks 0 (rollout) and 4 (train)
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from engine.config import Job, check_job
from engine.emulated.node import STARTUP_S, Node
from engine.emulated.physics import Physics
from engine.emulated.trainer import snapshot_of, weights_of
from engine.layout import Layout
from engine.learning.sequences import GroupRequest
from engine.worker import messages as msg
from engine.worker.ledger import WorkerSpan

BEGIN = 1_700_000_000.0
"""Unix seconds; floats are as coarse here as they are in life."""

SCALE = 0.1

PROFILE: dict[str, Any] = {
    "rollout": {"slots": 8, "tokens_per_s": 100.0, "half_batch": 2.0, "resume_tokens": 10.0},
    "train": {"tokens_per_s": 100.0, "chunk_s": 0.5, "max_chunk_groups": 4},
    "optimizer_s": 2.0,
    "weight_sync_s": 1.0,
    "switch": {
        "rollout_on_train": {"in_s": 3.0, "out_s": 2.0},
        "train_on_rollout": {"in_s": 5.0, "out_s": 4.0, "grad_s": 0.5},
    },
    "response_tokens": {"median": 50.0, "max": 400},
    "prompt_tokens": 10.0,
    "noise": 0.0,
}


def make_job(**sections: dict[str, Any]) -> Job:
    document: dict[str, dict[str, Any]] = {
        "algorithm": {"group_size": 2, "prompts_per_step": 4, "steps": 5},
        "task": {"items": 64},
        "eval": {"items": 0},
        "schedule": {"arm": "bidirectional", "staleness": 1},
        "checkpoint": {"every_steps": 0},
        "devices": {"kind": "emulated", "partition": "4:4", "train_replica_size": 4, "time_scale": SCALE},
        "profile": PROFILE,
    }
    for name, values in sections.items():
        document[name] = document.get(name, {}) | values
    return check_job({name: values for name, values in document.items() if values})


def make_specs(job: Job, *, clock_offset_s: float = 0.0) -> list[msg.WorkerSpec]:
    """Of all devices."""
    layout, partition = Layout.of(job), job.partition
    return [
        msg.WorkerSpec(
            run_id="run",
            device=device,
            core=None,
            node=layout.node_of(device),
            home=None if partition is None else "rollout" if device < partition.rollout else "train",
            rolls=True,
            trains=True,
            source=device == layout.trainers[0],
            job=job,
            base_dir=Path(),
            cache_dir=Path(),
            resume_from=None,
            clock_offset_s=clock_offset_s,
        )
        for device in range(layout.devices)
    ]


class DrivenNode:
    """A node that is ready; times are modelled seconds from there, and what it says is kept by device."""

    def __init__(self, job: Job | None = None) -> None:
        self.job = job or make_job()
        self.scale = self.job.devices.time_scale
        self.physics = Physics(self.job)
        self.node = Node(make_specs(self.job), BEGIN)
        self.began = BEGIN + STARTUP_S
        self.events: dict[int, list[Any]] = {}
        self.spans: dict[int, list[WorkerSpan]] = {}
        self.units: dict[int, list[msg.DecodeUnit]] = {}
        self.loads: dict[int, msg.RolloutLoad] = {}
        self.order: list[tuple[int, Any]] = []
        """(device, event) as they were taken."""
        self.node.advance(self.began)
        self.hear(self.began)
        self.started, self.events, self.order = self.events, {}, []

    def unix(self, at: float) -> float:
        return self.began + at * self.scale

    def model(self, unix: float) -> float:
        """Modelled seconds of a time that the node told."""
        return (unix - self.began) / self.scale

    def send(self, at: float, *commands: tuple[int, msg.Command]) -> None:
        """Commands arrive, each at its device."""
        self.until(at)
        for device, command in commands:
            self.node.submit(device, [command], self.unix(at))
        self.hear(self.unix(at))

    def until(self, at: float) -> None:
        """Play event by event, as a loop would."""
        while (due := self.node.next_event()) is not None and due <= self.unix(at):
            self.node.advance(due)
            self.hear(due)
        self.node.advance(self.unix(at))

    def hear(self, now: float) -> None:
        for device, delivery in self.node.take(now):
            self.events.setdefault(device, []).extend(delivery.events)
            self.order += [(device, event) for event in delivery.events]
            self.spans.setdefault(device, []).extend(delivery.spans)
            self.units.setdefault(device, []).extend(delivery.decoded)
            if delivery.load is not None:
                self.loads[device] = delivery.load

    def of(self, device: int, kind: type) -> list[Any]:
        """Events of this kind from the device."""
        return [event for event in self.events.get(device, []) if isinstance(event, kind)]

    def kinds(self, device: int) -> list[tuple[str, float, float]]:
        """(kind, from, to) of the closed spans after the startup, modelled seconds."""
        spans = [span for span in self.spans[device] if span.kind != "startup"]
        return [(span.kind, round(self.model(span.t0), 4), round(self.model(span.t1), 4)) for span in spans]


def request(group_id: int, *, bound: float = 1.0) -> GroupRequest:
    return GroupRequest(group_id=group_id, epoch=0, position=group_id, item=group_id, bound=bound)


def generate(*group_ids: int, bound: float = 1.0) -> msg.Generate:
    return msg.Generate(requests=tuple(request(group_id, bound=bound) for group_id in group_ids))


def load(version: int) -> msg.LoadWeights:
    return msg.LoadWeights(version=version, handle=weights_of(version))


def weights(version: int) -> msg.Weights:
    return msg.Weights(version=version, handle=weights_of(version))


def sealed(group_id: int, *tokens: int, version: int = 0) -> msg.SealedGroup:
    """A finished group of two responses."""
    responses = tuple({"text": "", "reward": None, "tokens": count, "versions": [[version, count]]} for count in tokens)
    return msg.SealedGroup(
        group_id=group_id,
        epoch=0,
        item=group_id,
        version=version,
        prompt="",
        prompt_tokens=10,
        responses=responses,
        reward_mean=None,
        started_at=BEGIN,
        finished_at=BEGIN,
        data=b"",
    )


def chunk(number: int, *groups: msg.SealedGroup, step: int = 1) -> msg.TrainChunk:
    return msg.TrainChunk(chunk_id=number, step=step, groups=groups)


def begin_lease(lease: int = 0, *, version: int = 0, step: int = 1) -> msg.BeginLease:
    return msg.BeginLease(lease=lease, step=step, weights=weights(version))


def end_lease(lease: int = 0, *, version: int = 0, step: int = 1, revoke: bool = False) -> msg.EndLease:
    """Home to rollout with these weights."""
    return msg.EndLease(lease=lease, step=step, revoke=revoke, weights=weights(version), snapshot=None)


def end_lease_home_to_train(lease: int = 0, *, version: int = 0, step: int = 1) -> msg.EndLease:
    return msg.EndLease(lease=lease, step=step, revoke=False, weights=None, snapshot=snapshot_of(version))


def finish(*gradients: msg.ShippedGradient, step: int = 1, own: bool = False, publish: bool = True) -> msg.FinishStep:
    return msg.FinishStep(step=step, gradients=gradients, own=own, publish=publish)


def whole_step(*, version: int = 0, step: int = 1) -> msg.TrainChunk:
    """The four groups of a step as one chunk: 0.5 s and 4 * (2 * 10 + 30) / 100 s."""
    groups = [sealed(group_id + 4 * (step - 1), 10, 20, version=version) for group_id in range(4)]
    return chunk(0, *groups, step=step)
