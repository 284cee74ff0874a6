"""Commands and their options; what each does is in the files beside this one."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from engine import allowed_paths, comparing
from engine.cli import calibrate as measuring
from engine.cli import client, follow, show, show_calibration
from engine.cli.client import BadInput
from engine.config import Job, JobError, check_runnable, dump_job, load_job
from engine.config.job import usable_cores
from storage.database import StorageError
from storage.paths import DataDir

if TYPE_CHECKING:
    from engine.cli.bench import Planned
    from engine.config import planning

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    help="GRPO post-training of language models without idle devices, steered from a browser.",
)
runs_app = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="Past and present runs.")
app.add_typer(runs_app, name="runs")

JobFile = Annotated[Path, typer.Argument(metavar="JOB.yaml", help="Job file.")]
Settings = Annotated[list[str] | None, typer.Option("--set", metavar="KEY.PATH=VALUE", help="Set a value; repeatable.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document on stdout and nothing else there.")]
Data = Annotated[
    str | None, typer.Option("--data-dir", help="Databases, checkpoints, logs. Default: BIDIRL_DATA_DIR or var/.")
]
RunId = Annotated[str, typer.Argument(metavar="RUN", help="Run id, as `bidirl runs list` shows it.")]


def _job(path: Path, settings: list[str] | None, data_dir: str | None) -> Job:
    """Load the job and check that it can be run live, on this machine."""
    job = load_job(path, settings or [])
    check_runnable(job, source=str(path))
    try:
        job.check_machine(len(usable_cores()))
    except ValueError as error:
        raise JobError({"devices": str(error)}, source=str(path)) from None
    if job.emulated:
        return job
    from engine.learning.tasks import check_task  # a second of imports that only these commands need

    base_dir, data_root = path.absolute().parent, DataDir.from_env(data_dir).root
    job = check_task(job, roots=allowed_paths.roots(base_dir=base_dir, data_root=data_root), source=str(path))
    if not job.model.source.startswith("builtin:"):
        try:
            allowed_paths.resolve(job.model.source, base_dir=base_dir, data_root=data_root)
        except ValueError as error:
            raise JobError({"model.source": str(error)}, source=str(path)) from None
    return job


def _measured(job: Job, data_dir: str | None) -> planning.Known | None:
    """The stored calibration of a job that has no profile of its own."""
    from engine.config import calibrations, planning

    found = calibrations.find(DataDir.from_env(data_dir), job) if job.profile is None else None
    return planning.known_from(found) if found is not None else None


def _print_json(document: Any) -> None:
    print(json.dumps(document, indent=2, allow_nan=False))


@app.command(epilog="Example: bidirl run jobs/demo.yaml --set algorithm.steps=20 --json")
def run(
    job_file: JobFile,
    settings: Settings = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the resolved job and stop.")] = False,
    json_output: Json = False,
    data_dir: Data = None,
) -> None:
    """Run one job in the foreground: through the engine of the data folder, or one of its own."""
    job = _job(job_file, settings, data_dir)
    if dry_run:
        _print_json(job.model_dump(mode="json")) if json_output else print(show.dry_run(job))
        return
    data = client.data_dir(data_dir)
    with client.engine(data) as owner:
        run_id = client.launch(data, dump_job(job), base_dir=job_file.absolute().parent)
        result, by_us = follow.follow(data, run_id, quiet=json_output, owner=owner)
    _print_json(result) if json_output else show.summary(result)
    if result["state"] not in ("finished", "stopped"):
        if json_output:
            print(f"bidirl: run {run_id} {result['state']}: {result['error']}", file=sys.stderr)
        raise typer.Exit(1)
    if by_us:
        raise typer.Exit(130)


@app.command(epilog="Example: bidirl launch jobs/demo.yaml --set seed=3")
def launch(
    job_file: Annotated[Path | None, typer.Argument(metavar="JOB.yaml", help="Job file; not needed to resume.")] = None,
    settings: Settings = None,
    resume: Annotated[
        str | None, typer.Option(metavar="RUN", help="Continue from this run's newest checkpoint.")
    ] = None,
    json_output: Json = False,
    data_dir: Data = None,
) -> None:
    """Queue a job for a running engine and print its run id."""
    data = client.data_dir(data_dir)
    if job_file is None and resume is None:
        raise BadInput("JOB.yaml is required unless --resume names a run")
    if job_file is None and settings:
        raise BadInput("--set changes a job file: name one beside --resume")
    text = dump_job(_job(job_file, settings, data_dir)) if job_file else None
    client.require_engine(data)
    base_dir = job_file.absolute().parent if job_file else None
    run_id = client.launch(data, text, base_dir=base_dir, resume=resume)
    _print_json({"run_id": run_id}) if json_output else print(run_id)


@app.command(epilog="Example: bidirl control demo-1129-101500-ab12 set partition=12:4 --review")
def control(
    run_id: RunId,
    action: Annotated[str, typer.Argument(help="set, undo, pause, resume, checkpoint or stop.")],
    settings: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[KEY=VALUE ...]",
            help="With set: staleness=S, partition=ROLLOUT:TRAIN, or any of arm=ARM, rollout_on_train=BOOL, "
            "train_on_rollout=BOOL, lend_cap=DEVICES|null, min_lease_s=SECONDS.",
        ),
    ] = None,
    review_only: Annotated[
        bool, typer.Option("--review", help="Say what the change is expected to do, and send nothing.")
    ] = False,
    drain: Annotated[bool, typer.Option("--drain", help="With stop: make the step in hand first.")] = False,
    expect_version: Annotated[
        int | None, typer.Option(metavar="N", help="Refuse it unless the run's configuration is version N.", min=0)
    ] = None,
    wait: Annotated[bool, typer.Option("--wait", help="Until the command is applied.")] = False,
    json_output: Json = False,
    data_dir: Data = None,
) -> None:
    """Command a running run; the same rows as the Control page writes."""
    data = client.data_dir(data_dir)
    kind, payload = client.parse_action(action, settings or [], drain=drain)
    if review_only:
        from engine.cli import review  # the simulator's numpy, which only this needs

        found = review.review(data, run_id, kind, payload)
        _print_json(review.document(found)) if json_output else print(review.text(found))
        return
    client.check_change(data, kind, payload, run_id=run_id)
    answer = client.command(data, kind, payload, run_id=run_id, wait=wait, expected_version=expect_version)
    _print_json(answer) if json_output else print(f"{answer['state']}: {answer['answer'] or 'the engine has it'}")


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
    job = _job(job_file, [*(settings or []), *measuring.settings_of(asked, steps)], data_dir)
    data = client.data_dir(data_dir)
    done = measuring.calibrate(data, job, base_dir=job_file.absolute().parent, quiet=json_output)
    if json_output:
        _print_json(measuring.document(done))
    elif done.calibration is not None and done.path is not None:
        show_calibration.calibration(done.calibration, done.path)
    if done.calibration is None:
        result = done.result
        why = result["error"] or "it did not finish, so nothing is stored"
        print(f"bidirl: run {result['run_id']} {result['state']}: {why}", file=sys.stderr)
        raise typer.Exit(130 if done.stopped else 1)


@app.command(epilog="Example: bidirl plan jobs/emulated_16.yaml --set devices.partition=auto --set devices.count=32")
def plan(job_file: JobFile, settings: Settings = None, json_output: Json = False, data_dir: Data = None) -> None:
    """Rank the partitions of a job with a profile or a calibration, with reasons; no device is needed."""
    from engine.cli import show_planner
    from engine.config import planning  # the planner's numpy, which only these two commands need

    job = load_job(job_file, settings or [])
    planned = planning.plan_job(job, source=str(job_file), measured=_measured(job, data_dir))
    document = planning.document(job, planned)
    _print_json(document) if json_output else show_planner.plan(job, planned)


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
    measured, recorded = None, None
    if like is not None:
        job, recorded = past.read(client.data_dir(data_dir), like, job_file, settings or [])
    elif job_file is None:
        raise BadInput("JOB.yaml is required unless --like names a run")
    else:
        job = load_job(job_file, settings or [])
        measured = _measured(job, data_dir)
    try:
        result = simulation.simulate(job, source=source, measured=measured, like=recorded)
    except RuntimeError as error:
        raise client.EngineFailed(f"the simulated run of {source} failed: {error}") from None
    _print_json(result) if json_output else show_planner.simulation(job, result)


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
        base = _job(job_file, [*(settings or []), *benching.base_settings()], data_dir)
        planned = _comparison(job_file, settings, base, arms, repeats, staleness, splits, data_dir)
        if calibrate_first and base.profile is None and _measured(base, data_dir) is None:
            asked = load_job(job_file, settings or [])
            short = _job(job_file, [*(settings or []), *measuring.settings_of(asked, measuring.STEPS)], data_dir)
            if benching.calibrate_first(data, short, base_dir=job_file.absolute().parent, quiet=json_output):
                raise typer.Exit(130)
            planned = _comparison(job_file, settings, base, arms, repeats, staleness, splits, data_dir)
        ended = benching.run(data, planned, base_dir=job_file.absolute().parent, quiet=json_output)
    _print_json(ended.document) if json_output else show_bench.comparison(ended.document)
    if ended.failure is not None:
        raise client.EngineFailed(ended.failure)
    if ended.stopped:
        raise typer.Exit(130)
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
        measured=lambda job: _measured(job, data_dir),
    )


@app.command(epilog="Example: bidirl serve --demo --port 8501")
def serve(
    demo: Annotated[bool, typer.Option("--demo", help="Launch jobs/demo.yaml.")] = False,
    host: Annotated[str, typer.Option(help="Address of the page.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port of the page.", min=1, max=65535)] = 8501,
    data_dir: Data = None,
) -> None:
    """Engine and app together, as the Procfile says; Ctrl-C stops both."""
    from engine.cli.serve import serve as serve_both

    raise typer.Exit(serve_both(client.data_dir(data_dir), demo=demo, host=host, port=port))


@runs_app.command("list", epilog="Example: bidirl runs list --json")
def runs_list(json_output: Json = False, data_dir: Data = None) -> None:
    """All runs, newest first."""
    data = client.data_dir(data_dir)
    if data_dir is not None and not data.root.is_dir():
        raise client.BadInput(f"--data-dir: there is no folder {data.root}")
    results = client.results(data)
    _print_json(results) if json_output else show.table(results)


@runs_app.command("show", epilog="Example: bidirl runs show demo-1129-101500-ab12")
def runs_show(run_id: RunId, json_output: Json = False, data_dir: Data = None) -> None:
    """One run's result fields."""
    result = client.result(client.data_dir(data_dir), run_id)
    _print_json(result) if json_output else show.summary(result)


@runs_app.command("compare", epilog="Example: bidirl runs compare demo-1129-101500-ab12 demo-1129-103000-cd34")
def runs_compare(
    run_ids: Annotated[
        list[str], typer.Argument(metavar="RUN RUN [RUN ...]", help="Run ids; the first is the baseline.")
    ],
    json_output: Json = False,
    data_dir: Data = None,
) -> None:
    """In what runs differ, and their key figures against the first."""
    from engine.cli import compare

    found = compare.read(client.data_dir(data_dir), run_ids)
    _print_json(compare.document(found)) if json_output else compare.show(found)


@app.command(epilog="Example: bidirl replay demo-1129-101500-ab12")
def replay(run_id: RunId, json_output: Json = False, data_dir: Data = None) -> None:
    """Ask the policy again for every stored decision of a run: it must decide the same."""
    from engine.cli import replay as replaying

    done = replaying.replay(client.data_dir(data_dir), run_id)
    if json_output:
        _print_json(replaying.document(done))
    else:
        print(replaying.sentence(done))
    if done.differences:
        raise typer.Exit(1)


@runs_app.command("delete", epilog="Example: bidirl runs delete demo-1129-101500-ab12")
def runs_delete(run_id: RunId, json_output: Json = False, data_dir: Data = None) -> None:
    """Delete a run that has ended, with its checkpoints."""
    data = client.data_dir(data_dir)
    client.require_engine(data)
    answer = client.command(data, "delete", {}, run_id=run_id, wait=True)
    _print_json(answer) if json_output else print(answer["answer"])


@runs_app.command("export", epilog="Example: bidirl runs export demo-1129-101500-ab12 --format perfetto --out a.gz")
def runs_export(
    run_id: RunId,
    form: Annotated[str, typer.Option("--format", help="perfetto, parquet, csv or bundle.")],
    out: Annotated[
        Path,
        typer.Option(
            "--out",
            metavar="PATH",
            help="File that is not there yet; for parquet and csv a folder, or a zip where the name ends with .zip.",
        ),
    ],
    json_output: Json = False,
    data_dir: Data = None,
) -> None:
    """Write a run as a trace for the Perfetto viewer, as tables, or as one file that another installation imports."""
    from engine.cli import export as exporting  # pyarrow, which only this needs

    report = exporting.export_run(client.data_dir(data_dir), run_id, form, out)
    _print_json(exporting.document(run_id, report)) if json_output else print(exporting.text(run_id, report))


@runs_app.command("import", epilog="Example: bidirl runs import demo.bidirl.zip --as demo-from-ana")
def runs_import(
    bundle: Annotated[Path, typer.Argument(metavar="BUNDLE", help="File that `bidirl runs export` wrote.")],
    name: Annotated[
        str | None, typer.Option("--as", metavar="NAME", help="Another run id, where the bundle's own is taken.")
    ] = None,
    json_output: Json = False,
    data_dir: Data = None,
) -> None:
    """Take a run of another installation into this one, through the engine: only it writes telemetry."""
    from engine.cli import export as exporting

    answer = exporting.import_bundle(client.data_dir(data_dir), bundle, name)
    _print_json(answer) if json_output else print(answer["answer"])


@app.command(epilog="Example: bidirl doctor")
def doctor(json_output: Json = False, data_dir: Data = None) -> None:
    """What this machine can run, what is missing, how to get it."""
    from engine.cli.doctor import findings

    found = findings(client.data_dir(data_dir))
    if json_output:
        _print_json(found)
    else:
        show.doctor(found)
    if any(item["state"] == "broken" for item in found):
        raise typer.Exit(1)


def main() -> None:
    """Entry point: bad input becomes one line and exit code 2."""
    try:
        code = app(prog_name="bidirl", standalone_mode=False)
    except (JobError, BadInput, StorageError) as error:
        _bad_input(str(error))
    except typer.TyperException as error:
        text = error.format_message()
        if not text.startswith("Usage: "):
            _bad_input(text)
        print(text)  # a command was named without what it needs to start: its help
        sys.exit(2)
    except (typer.Abort, KeyboardInterrupt):
        print("bidirl: interrupted", file=sys.stderr)
        sys.exit(130)
    except client.EngineFailed as error:
        print(f"bidirl: {error}", file=sys.stderr)
        sys.exit(1)
    sys.exit(code if isinstance(code, int) else 0)


def _bad_input(text: str) -> NoReturn:
    print(f"bidirl: {' '.join(text.split())}", file=sys.stderr)
    sys.exit(2)
