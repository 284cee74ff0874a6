"""Puts a run together: its books, and everything that reads or writes them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from engine import checkpoints
from engine.config import BORROWING_ARMS, Job, ProfileConfig
from engine.devices import Workers
from engine.layout import Layout
from engine.learning.data_order import DataOrder
from engine.run.applier import Applier
from engine.run.arrivals import Arrivals
from engine.run.book import Book, StartPoint
from engine.run.decisions import Decisions
from engine.run.homes import Homes
from engine.run.lending import Lending
from engine.run.observer import Observer
from engine.run.picture import Picture
from engine.run.profiling import Profiling
from engine.run.recorder import Recorder
from engine.run.recovery import Recovery
from engine.run.specs import worker_specs
from engine.run.steering import Steering
from engine.run.version_work import VersionWork
from engine.worker.messages import WorkerSpec

SNAPSHOTS = "snapshots"
"""Folder, beside a run's checkpoints, of snapshots too large for shared memory; gone with the run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """What a run consists of."""

    specs: list[WorkerSpec]
    book: Book
    lending: Lending
    homes: Homes
    profiling: Profiling
    applier: Applier
    observer: Observer
    recovery: Recovery
    steering: Steering
    version_work: VersionWork


def assemble(
    *,
    run_id: str,
    job: Job,
    start: StartPoint,
    resume_from: Path | None,
    cores: Sequence[int],
    base_dir: Path,
    cache_dir: Path,
    checkpoints_dir: Path,
    workers: Workers,
    recorder: Recorder,
    clock: Callable[[], float],
    clock_offset_s: float,
    calibration: ProfileConfig | None,
    roots: tuple[Path, ...],
) -> Parts:
    """All parts of a run that begins now."""
    now, layout = clock(), Layout.of(job)
    order = DataOrder(size=job.task.size, seed=job.seed, shuffle=job.task.shuffle, epochs=job.task.epochs)
    book = Book(job, start, order=order.item_at, now=now, places=order.groups)
    specs = worker_specs(
        run_id=run_id,
        job=job,
        layout=layout,
        cores=cores,
        base_dir=base_dir,
        roots=roots,
        cache_dir=cache_dir,
        resume_from=resume_from,
        snapshot_dir=checkpoints_dir / SNAPSHOTS,
        clock_offset_s=clock_offset_s,
    )
    book.add_devices(rollout=layout.rollouters, train=layout.trainers, pools=layout.pools)
    homes = Homes(layout, specs)
    lending = Lending(
        run_id=run_id,
        schedule=job.schedule,
        blocks=layout.blocks,
        now=now,
        write=recorder.lease,
        prepared=job.emulated or job.schedule.arm in BORROWING_ARMS,
    )
    profiling = Profiling(job, calibration)
    picture = Picture(book, lending, homes, job.schedule.improvements_resolved, chunk_seconds=profiling.chunk_seconds)
    applier = Applier(
        run_id=run_id,
        job=job,
        book=book,
        lending=lending,
        homes=homes,
        workers=workers,
        checkpoint_folder=lambda version: checkpoints.folder_of(checkpoints_dir, version),
    )
    arrivals = Arrivals(
        book=book,
        lending=lending,
        homes=homes,
        profiling=profiling,
        recorder=recorder,
        applier=applier,
        estimates=lambda: picture.estimates,
    )
    observer = Observer(
        job=job,
        book=book,
        lending=lending,
        arrivals=arrivals,
        profiling=profiling,
        recorder=recorder,
        applier=applier,
    )
    return Parts(
        specs=specs,
        book=book,
        lending=lending,
        homes=homes,
        profiling=profiling,
        applier=applier,
        observer=observer,
        recovery=Recovery(
            specs=specs,
            homes=homes,
            book=book,
            lending=lending,
            applier=applier,
            observer=observer,
            recorder=recorder,
            workers=workers,
        ),
        steering=Steering(
            homes=homes,
            picture=picture,
            profiling=profiling,
            decisions=Decisions(recorder, every_state=job.schedule.record_states),
            lending=lending,
            applier=applier,
            recorder=recorder,
        ),
        version_work=VersionWork(job, book, recorder, clock),
    )
