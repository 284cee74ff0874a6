"""Which worker gets which device, core and role."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from engine.config import Job
from engine.worker import messages as msg
from storage.records import DeviceRow


def worker_specs(
    *,
    run_id: str,
    job: Job,
    cores: Sequence[int],
    base_dir: Path,
    cache_dir: Path,
    resume_from: Path | None,
    clock_offset_s: float,
) -> list[msg.WorkerSpec]:
    """Rollout devices first, then train devices; `colocated` gives every device both roles."""
    partition = job.partition
    rolls = job.device_count if partition is None else partition.rollout
    first_trainer = 0 if partition is None else partition.rollout
    return [
        msg.WorkerSpec(
            run_id=run_id,
            device=device,
            core=cores[device % len(cores)],
            rolls=device < rolls,
            trains=device >= first_trainer,
            source=device == first_trainer,
            train_rank=device - first_trainer,
            train_world=job.device_count - first_trainer,
            job=job,
            base_dir=base_dir,
            cache_dir=cache_dir,
            resume_from=resume_from,
            clock_offset_s=clock_offset_s,
        )
        for device in range(job.device_count)
    ]


def device_name(spec: msg.WorkerSpec) -> str:
    """How messages call a device."""
    role = "both roles" if spec.rolls and spec.trains else "rollout" if spec.rolls else "train"
    return f"device {spec.device} ({role})"


def device_row(spec: msg.WorkerSpec, *, pid: int | None = None) -> DeviceRow:
    """The device as telemetry stores it; its home pool is None without pools."""
    pool = None if spec.rolls and spec.trains else "rollout" if spec.rolls else "train"
    return DeviceRow(device=spec.device, node="local", pool=pool, core=spec.core, pid=pid)
