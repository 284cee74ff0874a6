"""Runs a comparison: its configurations one after the other through one engine, interleaved over the repeats.

    for repeat in 1..N: for trial in the repeat's order: launch -> follow to its end
                                                       (a failed run is counted and the rest goes on)
    stored runs of the comparison --> document         (so `--show` makes the same table again)

Every job is checked before the first one starts. Ctrl-C stops the run that is going on and what is there is told; an
engine that is gone ends the comparison in the same way.
"""

from __future__ import annotations

import sys
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from engine import comparing, launching
from engine import results as run_results
from engine.cli import calibrate, client, follow
from engine.cli.client import BadInput, EngineFailed
from engine.config import Job, JobError, Partition, check_runnable, dump_job, load_job, parse_job, planning
from engine.config.comparison_parts import part_of
from planner.compared import document
from planner.configurations import Trial, planned_runs, trials
from storage.database import TelemetryMissing
from storage.paths import DataDir
from storage.reader import TelemetryReader

NAMED = 5
"""Comparisons that are named where one is not known."""

Measured = Callable[[Job], planning.Known | None]
"""The stored calibration of a job that has no profile of its own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned:
    """A comparison that can be run: every job is valid here."""

    comparison: str
    """its id"""
    plan: dict[str, Any]
    """as it is stored with each run"""
    jobs: dict[Trial, str]
    """trial -> its job, YAML"""
    repeats: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """How a comparison ended."""

    document: dict[str, Any]
    stopped: bool
    """Ctrl-C ended it"""
    failure: str | None
    """what the engine failed of; None when it did not"""


def prepare(
    path: Path,
    settings: list[str],
    *,
    base: Job,
    arms: str,
    repeats: int,
    staleness: str | None,
    splits: str | None,
    measured: Measured,
) -> Planned:
    """What is asked for as jobs. `base`: the job under no_borrow, which can be run here.

    Raises BadInput for an option, JobError for a configuration that the job cannot have.
    """
    if base.emulated:
        base = launching.with_partition(base)
    own = base.partition
    assert own is not None, "no_borrow has pools"
    with _options():
        values = comparing.parse_staleness(staleness) if staleness else (base.schedule.staleness,)
        given = comparing.parse_splits(splits) if splits else ()
        comparing.configurations(arms, own=own, splits=given)
    split = _given(given) if given else _best_split(base, own, measured, source=str(path))
    with _options():
        found = comparing.configurations(arms, own=own, splits=split.partitions)
    jobs = {trial: _job(path, settings, trial, own) for trial in trials(found, values)}
    return Planned(
        comparison=f"bench-{base.name}-{time.strftime('%m%d-%H%M%S')}-{uuid.uuid4().hex[:4]}",
        plan=comparing.plan_of(
            found,
            staleness=values,
            repeats=repeats,
            own=own,
            split={"chosen_by": split.chosen_by, "why": split.why},
        ),
        jobs=jobs,
        repeats=repeats,
    )


@contextmanager
def _options() -> Iterator[None]:
    """What is wrong with an option is bad input."""
    try:
        yield
    except ValueError as error:
        raise BadInput(str(error)) from None


def base_settings() -> list[str]:
    """What makes a job the one that a comparison starts from, whatever its own arm is."""
    return ["schedule.arm=no_borrow", "schedule.consume=null", "schedule.improvements={}"]


def calibrate_first(data: DataDir, job: Job, *, base_dir: Path, quiet: bool) -> bool:
    """Measure the job, so that every run of the comparison knows speeds and costs from its start: short ones would be
    half over before they have measured enough to lend. Returns whether Ctrl-C ended it; without a profile it goes on.
    """
    print("no calibration of this job is stored: a short run measures it first", file=sys.stderr)
    try:
        return calibrate.calibrate(data, job, base_dir=base_dir, quiet=quiet).stopped
    except EngineFailed as error:
        print(f"bidirl: {error}; the comparison goes on without it", file=sys.stderr)
        return False


def run(data: DataDir, planned: Planned, *, base_dir: Path, quiet: bool) -> Ended:
    """Run it to its end, or to that of the engine or the operator's patience, and say what is there.

    Raises EngineFailed when that happens before any run was stored.
    """
    stopped, failure = False, None
    total = planned_runs(planned.plan)
    print(f"comparison {planned.comparison}: {total} runs", file=sys.stderr)
    try:
        with client.engine(data) as owner:
            for number, (repeat, trial) in enumerate(_sequence(planned), start=1):
                label = trial.configuration.label
                if not quiet:
                    told = f"[{number}/{total}] repeat {repeat}: {label}, staleness {trial.staleness:g}"
                    print(told, file=sys.stderr)
                part = {"id": planned.comparison, "label": label, "repeat": repeat, "plan": planned.plan}
                run_id = client.launch(data, planned.jobs[trial], base_dir=base_dir, comparison=part)
                result, stopped = follow.follow(data, run_id, quiet=quiet, owner=owner)
                if result["state"] != "finished":
                    print(f"bidirl: run {run_id} {result['state']}: {result['error'] or 'no reason'}", file=sys.stderr)
                if stopped:
                    break
    except EngineFailed as error:
        failure = str(error)
        if not _stored_any(data, planned.comparison):
            raise
    return Ended(document=stored(data, planned.comparison), stopped=stopped, failure=failure)


def stored(data: DataDir, comparison: str) -> dict[str, Any]:
    """The document of a comparison from its stored runs. Raises BadInput for an id that no run names."""
    with TelemetryReader(data.telemetry_db) as reader:
        rows = reader.comparison(comparison)
        if not rows:
            known = ", ".join(each.comparison for each in reader.comparisons(limit=NAMED)) or "none"
            raise BadInput(f"--show: comparison {comparison!r} is not known; the newest are: {known}")
        parts = [part_of(row, parse_job(row.job, source=row.run_id), run_results.build(reader, row)) for row in rows]
    plan = rows[0].comparison_plan
    assert plan is not None, f"run {rows[0].run_id} lacks the plan of comparison {comparison}"
    return document(comparison, plan, parts)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Split:
    """Where the baselines run besides the job's own split."""

    partitions: tuple[str, ...]
    chosen_by: str
    """only_split, measured, planner or job"""
    why: str
    """one sentence"""


def _given(partitions: tuple[str, ...]) -> _Split:
    return _Split(
        partitions=partitions,
        chosen_by="measured",
        why=f"the fastest of no_borrow at the job's split and at those asked for: {', '.join(partitions)}",
    )


def _best_split(base: Job, own: Partition, measured: Measured, *, source: str) -> _Split:
    """The planner's best without borrowing; the job's own where nothing is known to plan with."""
    if own.total == 2:
        return _Split(partitions=(), chosen_by="only_split", why="two devices can be split in one way only")
    known = measured(base)
    if base.profile is None and known is None:
        why = "the job's own: there is no profile or calibration to plan with; name others with --splits"
        return _Split(partitions=(), chosen_by="job", why=why)
    best = planning.plan_job(base, source=source, measured=known).plan.best
    if best is None:
        return _Split(partitions=(), chosen_by="job", why="the job's own: the planner finds no feasible split")
    partition = f"{best.rollout_devices}:{best.train_devices}"
    same = f"{partition}, the job's own" if partition == str(own) else f"{partition}, measured beside the job's {own}"
    return _Split(partitions=(partition,), chosen_by="planner", why=f"the planner's best without borrowing is {same}")


def _job(path: Path, settings: list[str], trial: Trial, own: Partition) -> str:
    """The job of a trial as YAML. Raises JobError naming the configuration that cannot be."""
    try:
        job = load_job(path, [*settings, *comparing.settings_of(trial, own)])
        check_runnable(job, source=str(path))
    except JobError as error:
        raise JobError(error.problems, source=f"{path} as {trial.configuration.label}") from None
    return dump_job(job)


def _sequence(planned: Planned) -> list[tuple[int, Trial]]:
    repeats = range(1, planned.repeats + 1)
    return [(repeat, trial) for repeat in repeats for trial in comparing.order(tuple(planned.jobs), repeat)]


def _stored_any(data: DataDir, comparison: str) -> bool:
    try:
        with TelemetryReader(data.telemetry_db) as reader:
            return bool(reader.comparison(comparison))
    except TelemetryMissing:
        return False
