"""`bidirl calibrate`, `plan`, `simulate` and `bench`: what a job would do, and what of it was measured."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from engine import comparing
from engine.cli import calibrate as measuring
from engine.cli import client, show_calibration
from engine.cli.client import BadInput
from engine.cli.options import Data, JobFile, Json, Settings, checked_job, print_json, stored_measurement
from engine.config import Job, load_job

if TYPE_CHECKING:
    from engine.cli.bench import Planned

app = typer.Typer()


@app.command(epilog="Example: bidirl calibrate jobs/demo.yaml --steps 12")
def calibrate(
    job_file: JobFile,
    settings: Settings = None,
    steps: Annotated[int, typer.Option(help="Steps of the measured run.", min=1)] = measuring.STEPS,
    json_output: Json = False,
    data_dir: Data = None,
) -> None:
    """Measure a job's speeds and switch costs in a short run, and store them for plan and simulate."""
    asked = load_job(job_file, settings or [])
    job = checked_job(job_file, [*(settings or []), *measuring.settings_of(asked, steps)], data_dir)
    data = client.data_dir(data_dir)
    done = measuring.calibrate(data, job, base_dir=job_file.absolute().parent, quiet=json_output)
    if json_output:
        print_json(measuring.document(done))
    elif done.calibration is not None and done.path is not None:
        show_calibration.calibration(done.calibration, done.path)
    if done.calibration is None:
        result = done.result
        why = result["error"] or "it did not finish, so nothing is stored"
        print(f"bidirl: run {result['run_id']} {result['state']}: {why}", file=sys.stderr)
        sys.exit(client.INTERRUPTED if done.stopped else 1)


@app.command(epilog="Example: bidirl plan jobs/emulated_16.yaml --set devices.partition=auto --set devices.count=32")
def plan(job_file: JobFile, settings: Settings = None, json_output: Json = False, data_dir: Data = None) -> None:
    """Rank the partitions of a job with a profile or a calibration, with reasons; no device is needed."""
    from engine.cli import show_planner
    from engine.config import planning  # the planner's numpy, which only these two commands need

    job = load_job(job_file, settings or [])
    planned = planning.plan_job(job, source=str(job_file), measured=stored_measurement(job, data_dir))
    document = planning.document(job, planned)
    print_json(document) if json_output else show_planner.plan(job, planned)


@app.command(epilog="Example: bidirl simulate jobs/emulated_16.yaml --set schedule.arm=no_borrow --json")
def simulate(
    job_file: Annotated[
        Path | None, typer.Argument(metavar="JOB.yaml", help="Job file; with --like that of the run if left out.")
    ] = None,
    settings: Settings = None,
    like: Annotated[
        str | None,
        typer.Option(metavar="RUN", help="Play on the work of this past run, at the speeds that it measured."),
    ] = None,
    json_output: Json = False,
    data_dir: Data = None,
) -> None:
    """Play a job with a profile or a calibration on a virtual clock, by the same policy code; no device is needed."""
    from engine import simulation
    from engine.cli import like as past
    from engine.cli import show_planner

    source = str(job_file) if job_file else f"run {like}"
    measured, found = None, None
    if like is not None:
        found = past.read(client.data_dir(data_dir), like, job_file, settings or [])
        job = found.job
    elif job_file is None:
        raise BadInput("JOB.yaml is required unless --like names a run")
    else:
        job = load_job(job_file, settings or [])
        measured = stored_measurement(job, data_dir)
    try:
        result = simulation.simulate(job, source=source, measured=measured, like=found.recorded if found else None)
        beside = past.compared(found, result) if found else None
    except RuntimeError as error:
        raise client.EngineFailed(f"the simulated run of {source} failed: {error}") from None
    if json_output:
        print_json(result | ({"like": past.document(beside)} if beside else {}))
    else:
        show_planner.simulation(job, result, beside)


@app.command(epilog="Example: bidirl bench jobs/demo.yaml --arms no_borrow,bidirectional --repeats 3")
def bench(
    job_file: Annotated[Path | None, typer.Argument(metavar="JOB.yaml", help="Job file; not needed to show.")] = None,
    settings: Settings = None,
    arms: Annotated[
        str,
        typer.Option(
            help="What to compare: ARM, ARM:stream, ARM:whole_batch; with @ROLLOUT:TRAIN at another split, with "
            "-IMPROVEMENT without one of its rules."
        ),
    ] = ",".join(comparing.DEFAULT_ARMS),
    repeats: Annotated[
        int, typer.Option(help="How often each runs; an interval needs two.", min=1)
    ] = comparing.REPEATS,
    staleness: Annotated[
        str | None, typer.Option(metavar="S,S,...", help="Compare at each; default: the job's.")
    ] = None,
    splits: Annotated[
        str | None,
        typer.Option(
            metavar="R:T,R:T,...", help="Splits to find the best static one by running; default: the planner's."
        ),
    ] = None,
    calibrate_first: Annotated[
        bool, typer.Option("--calibrate/--no-calibrate", help="Measure the job first where no calibration is stored.")
    ] = True,
    show_id: Annotated[
        str | None, typer.Option("--show", metavar="ID", help="Print a stored comparison again; nothing runs.")
    ] = None,
    json_output: Json = False,
    data_dir: Data = None,
) -> None:
    """Compare arms on the same work, interleaved: ratios with their spread, the best static split included."""
    from engine.cli import bench as benching
    from engine.cli import show_bench

    data = client.data_dir(data_dir)
    if show_id is not None:
        if job_file is not None or settings:
            raise BadInput("--show prints what was stored: leave JOB.yaml and --set away")
        ended = benching.Ended(document=benching.stored(data, show_id), stopped=False, failure=None)
    elif job_file is None:
        raise BadInput("JOB.yaml is required unless --show names a comparison")
    else:
        base = checked_job(job_file, [*(settings or []), *benching.base_settings()], data_dir)
        planned = _comparison(job_file, settings, base, arms, repeats, staleness, splits, data_dir)
        if calibrate_first and base.profile is None and stored_measurement(base, data_dir) is None:
            asked = load_job(job_file, settings or [])
            short = checked_job(job_file, [*(settings or []), *measuring.settings_of(asked, measuring.STEPS)], data_dir)
            if benching.calibrate_first(data, short, base_dir=job_file.absolute().parent, quiet=json_output):
                sys.exit(client.INTERRUPTED)
            planned = _comparison(job_file, settings, base, arms, repeats, staleness, splits, data_dir)
        ended = benching.run(data, planned, base_dir=job_file.absolute().parent, quiet=json_output)
    print_json(ended.document) if json_output else show_bench.comparison(ended.document)
    if ended.failure is not None:
        raise client.EngineFailed(ended.failure)
    if ended.stopped:
        sys.exit(client.INTERRUPTED)
    if ended.document["runs_failed"] and show_id is None:
        raise typer.Exit(1)


def _comparison(
    job_file: Path,
    settings: list[str] | None,
    base: Job,
    arms: str,
    repeats: int,
    staleness: str | None,
    splits: str | None,
    data_dir: str | None,
) -> Planned:
    """What `bench` is to run, every job of it checked."""
    from engine.cli import bench as benching

    return benching.prepare(
        job_file,
        settings or [],
        base=base,
        arms=arms,
        repeats=repeats,
        staleness=staleness,
        splits=splits,
        measured=lambda job: stored_measurement(job, data_dir),
    )
