"""`bidirl`: the commands that start and steer runs, with those of the files beside this one, and its entry point."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, NoReturn

import typer

from engine.cli import changes, client, follow, planning_commands, runs_commands, show
from engine.cli.client import BadInput
from engine.cli.options import Data, JobFile, Json, RunId, Settings, checked_job, print_json
from engine.config import JobError, dump_job
from storage.database import StorageError

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    help="GRPO post-training of language models without idle devices, steered from a browser.",
)


@app.command(epilog="Example: bidirl run jobs/demo.yaml --set algorithm.steps=20 --json")
def run(
    job_file: JobFile,
    settings: Settings = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the resolved job and stop.")] = False,
    json_output: Json = False,
    data_dir: Data = None,
) -> None:
    """Run one job in the foreground: through the engine of the data folder, or one of its own."""
    job = checked_job(job_file, settings, data_dir, keep=not dry_run)  # a dry run leaves nothing behind
    if dry_run:
        print_json(job.model_dump(mode="json")) if json_output else print(show.dry_run(job))
        return
    data = client.data_dir(data_dir)
    with client.engine(data) as owner:
        run_id = client.launch(data, dump_job(job), base_dir=job_file.absolute().parent)
        result, by_us = follow.follow(data, run_id, quiet=json_output, owner=owner)
        # before an engine of our own goes, for it may stay for the runs of others
        print_json(result) if json_output else show.summary(result, judge=job.task.named_judge)
        failed = result["state"] not in ("finished", "stopped")
        if failed and json_output:
            print(f"bidirl: run {run_id} {result['state']}: {result['error']}", file=sys.stderr)
        if by_us:
            sys.exit(1 if failed else client.INTERRUPTED)
    if failed:
        raise typer.Exit(1)


@app.command(
    epilog="Example: bidirl launch jobs/demo.yaml --set seed=3, or, to go on with a run that ended: "
    "bidirl launch --resume demo-1129-101500-ab12 --set algorithm.steps=400"
)
def launch(
    job_file: Annotated[
        Path | None, typer.Argument(metavar="JOB.yaml", help="Job file; to resume, the run's own otherwise.")
    ] = None,
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
    text = dump_job(checked_job(job_file, settings, data_dir)) if job_file else None
    client.require_engine(data)
    base_dir = job_file.absolute().parent if job_file else None
    # the engine knows what operators changed in the run: what is set comes on top of that
    of_run = settings if job_file is None else None
    run_id = client.launch(data, text, base_dir=base_dir, resume=resume, settings=of_run)
    print_json({"run_id": run_id}) if json_output else print(run_id)


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
    kind, payload = changes.parse_action(action, settings or [], drain=drain)
    if review_only:
        from engine.cli import review  # the simulator's numpy, which only this needs

        found = review.review(data, run_id, kind, payload)
        print_json(review.document(found)) if json_output else print(review.text(found))
        return
    changes.check_change(data, kind, payload, run_id=run_id)
    answer = client.command(data, kind, payload, run_id=run_id, wait=wait, expected_version=expect_version)
    print_json(answer) if json_output else print(f"{answer['state']}: {answer['answer'] or 'the engine has it'}")


@app.command(epilog="Example: bidirl replay demo-1129-101500-ab12")
def replay(run_id: RunId, json_output: Json = False, data_dir: Data = None) -> None:
    """Ask the policy again for every stored decision of a run: it must decide the same."""
    from engine.cli import replay as replaying

    done = replaying.replay(client.data_dir(data_dir), run_id)
    if json_output:
        print_json(replaying.document(done))
    else:
        print(replaying.sentence(done))
    if done.differences:
        raise typer.Exit(1)


@app.command(epilog="Example: bidirl serve --demo --port 8501")
def serve(
    demo: Annotated[bool, typer.Option("--demo", help="Launch jobs/demo.yaml.")] = False,
    host: Annotated[str, typer.Option(help="Address of the page.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port of the page.", min=1, max=65535)] = 8501,
    data_dir: Data = None,
) -> None:
    """Engine and app together, as the Procfile says; Ctrl-C stops both."""
    from engine.cli.serve import serve as serve_both

    sys.exit(serve_both(client.data_dir(data_dir), demo=demo, host=host, port=port))


@app.command(epilog="Example: bidirl doctor")
def doctor(json_output: Json = False, data_dir: Data = None) -> None:
    """What this machine can run, what is missing, how to get it."""
    from engine.cli.doctor import findings

    found = findings(client.data_dir(data_dir))
    if json_output:
        print_json(found)
    else:
        show.doctor(found)
    if any(item["state"] == "broken" for item in found):
        raise typer.Exit(1)


app.registered_commands += planning_commands.app.registered_commands
app.add_typer(runs_commands.app, name="runs")


def main() -> None:
    """Entry point: bad input becomes one line and exit code 2."""
    try:
        code = app(prog_name="bidirl", standalone_mode=False)
    except (JobError, BadInput, StorageError) as error:
        _bad_input(str(error))
    except typer.TyperException as error:
        text = error.format_message()
        if not text.startswith("Usage: "):
            stray = "unexpected extra argument" in text and "=" in text
            _bad_input(f"{text}; a setting is given as --set KEY.PATH=VALUE" if stray else text)
        print(text)  # a command was named without what it needs to start: its help
        sys.exit(2)
    except (typer.Abort, KeyboardInterrupt):
        code = client.INTERRUPTED
    except client.EngineFailed as error:
        print(f"bidirl: {error}", file=sys.stderr)
        sys.exit(1)
    if code == client.INTERRUPTED:
        print("bidirl: interrupted", file=sys.stderr)
    sys.exit(code if isinstance(code, int) else 0)


def _bad_input(text: str) -> NoReturn:
    print(f"bidirl: {' '.join(text.split())}", file=sys.stderr)
    sys.exit(2)
