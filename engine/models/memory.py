"""How much memory a job's workers will take, before any of them is started.

An estimate from the number of parameters: weights, gradients, optimizer state and rollout copies are exact, what one
forward and backward pass keeps is counted by the layers' widths. Refuses what cannot fit; a close fit is let through.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import psutil

from engine.config import BORROWING_ARMS, Job
from engine.models.files import ModelFiles

FLOAT32, ADAMW = 4, 8
"""Bytes of a number, and of AdamW's two moments of one weight."""

WORKER_BYTES = 600_000_000
"""A worker that has imported torch and transformers and loaded nothing."""

PASS_TOKENS = 1024
"""Of one forward and backward pass (`learning.micro_batches`), unless a sequence is longer."""

PROMPT_TOKENS = 256
"""Guessed: prompts are not tokenized at launch."""

PUBLISHED = 2
"""Versions of weights and moments in shared memory: the newest, and the one before while the newest travels."""

GB = 1e9

GROUP = Path("/sys/fs/cgroup")
"""Where Linux tells what a group of processes may take."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Need:
    """Bytes by what they are for."""

    rollouters: int
    trainers: int
    """Weights, gradients, optimizer state, reference."""
    passes: int
    """What forward and backward passes keep, and the key-value caches."""
    sent: int
    """What trainers write into to send it: each a vector of its weights or gradients, one the moments besides."""
    shared: int
    """Published weights, snapshots, shipped gradients."""
    workers: int
    """The processes themselves."""

    @property
    def total(self) -> int:
        return self.rollouters + self.trainers + self.passes + self.sent + self.shared + self.workers

    def __str__(self) -> str:
        parts = ("trainers", "rollouters", "passes", "sent", "shared", "workers")
        return ", ".join(f"{name} {getattr(self, name) / GB:.1f}" for name in parts)


def needed(job: Job, files: ModelFiles) -> Need:
    """Of the whole job on one machine, in float32."""
    devices, partition = job.device_count, job.partition
    both = partition is None or job.schedule.arm in BORROWING_ARMS
    rollouters = devices if partition is None or both else partition.rollout
    primaries = devices if partition is None else partition.train
    trainers = devices if both else primaries
    lora = job.model.lora
    frozen = 0 if lora is None else FLOAT32 * files.parameters
    trained = FLOAT32 * (files.parameters if lora is None else files.adapter_parameters(lora.r, lora.targets))
    reference = trained if job.algorithm.kl_coef > 0 else 0
    moments = trained * ADAMW // FLOAT32
    in_memory = partition is not None and moments + trained <= job.checkpoint.snapshot_max_bytes  # else in files
    aside = moments if in_memory else 0
    shipped = trained if both or primaries > 1 else 0
    return Need(
        rollouters=rollouters * (frozen + trained),
        trainers=trainers * (frozen + 2 * trained + reference) + primaries * moments,
        passes=trainers * _pass_bytes(job, files) + rollouters * _cache_bytes(job, files),
        sent=trainers * trained + aside,
        shared=PUBLISHED * (trained + aside) + shipped,
        workers=devices * WORKER_BYTES,
    )


def _pass_bytes(job: Job, files: ModelFiles) -> int:
    """Kept between forward and backward: of a token and layer 9 vectors of the width and 4 of the feed-forward part."""
    if files.layers is None or files.hidden is None or files.feed_forward is None:
        return 0
    tokens = max(PASS_TOKENS, PROMPT_TOKENS + job.sampling.max_response_tokens)
    layer = 9 * files.hidden + 4 * files.feed_forward
    if job.model.gradient_checkpointing:
        return FLOAT32 * tokens * (files.layers * files.hidden + layer)
    return FLOAT32 * tokens * files.layers * layer


def _cache_bytes(job: Job, files: ModelFiles) -> int:
    length = PROMPT_TOKENS + job.sampling.max_response_tokens
    return FLOAT32 * (files.kv_numbers or 0) * length * job.devices.rollout_slots


def check(job: Job, files: ModelFiles, available: Callable[[], int]) -> None:
    """Raise ValueError where the job needs more than there is."""
    need, there = needed(job, files), available()
    if need.total > there:
        advice = "a smaller model, fewer devices" + (", model.lora" if job.model.lora is None else "")
        if not job.model.gradient_checkpointing:
            advice += ", model.gradient_checkpointing"
        if job.schedule.arm in BORROWING_ARMS:
            advice += ", or arm no_borrow, in which each device holds one role"
        raise ValueError(
            f"model.source: {files.parameters:,} parameters make the job need about {need.total / GB:.1f} GB of memory "
            f"(GB: {need}) and {there / GB:.1f} GB are available; allowed: {advice}"
        )


def available_bytes() -> int:
    """Memory that new processes can take: of the machine, or of the group of processes where that has less."""
    free = psutil.virtual_memory().available
    limit, used = _group()
    return free if limit is None else min(free, limit - used)


def total_bytes() -> int:
    """The same when nothing else runs."""
    limit, _ = _group()
    total = psutil.virtual_memory().total
    return total if limit is None else min(total, limit)


def _group() -> tuple[int | None, int]:
    """Limit of the group of processes, where there is one, and what it uses but for files that it only read."""
    try:
        most, used, stat = ((GROUP / name).read_text() for name in ("memory.max", "memory.current", "memory.stat"))
        dropped = int(dict(line.split() for line in stat.splitlines()).get("inactive_file", 0))
        return (None if most.strip() == "max" else int(most)), int(used) - dropped
    except (OSError, ValueError):
        return None, 0  # no such groups on this system
