"""Which worker gets which device, core and role."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from engine.config import BORROWING_ARMS, Job
from engine.layout import Layout
from engine.worker import messages as msg
from storage.records import DeviceRow


def worker_specs(
    *,
    run_id: str,
    job: Job,
    layout: Layout,
    cores: Sequence[int],
    base_dir: Path,
    roots: tuple[Path, ...],
    cache_dir: Path,
    resume_from: Path | None,
    snapshot_dir: Path,
    clock_offset_s: float,
) -> list[msg.WorkerSpec]:
    """Rollout devices first, then train devices. Where devices may be lent each one keeps the other role too, passive;
    `colocated` gives every device both roles and no home."""
    both = job.partition is None or job.schedule.arm in BORROWING_ARMS
    partition = job.partition
    rolls = job.device_count if partition is None else partition.rollout
    first_trainer = 0 if partition is None else partition.rollout
    return [
        msg.WorkerSpec(
            run_id=run_id,
            device=device,
            core=None if job.emulated else cores[device % len(cores)],
            node=layout.node_of(device) if job.emulated else 0,
            home=None if partition is None else "rollout" if device < rolls else "train",
            rolls=both or device < rolls,
            trains=both or device >= first_trainer,
            source=device == first_trainer,
            job=job,
            base_dir=base_dir,
            roots=roots,
            cache_dir=cache_dir,
            resume_from=resume_from,
            snapshot_dir=snapshot_dir,
            clock_offset_s=clock_offset_s,
        )
        for device in range(job.device_count)
    ]


def device_name(spec: msg.WorkerSpec) -> str:
    """How messages call a device."""
    return f"device {spec.device} ({spec.home or 'both roles'})"


def device_row(spec: msg.WorkerSpec, *, pid: int | None = None) -> DeviceRow:
    """The device as telemetry stores it; its home pool is None without pools."""
    node = f"emulated node {spec.node}" if spec.job.emulated else "local"
    return DeviceRow(device=spec.device, node=node, pool=spec.home, core=spec.core, pid=pid)
