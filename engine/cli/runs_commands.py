"""`bidirl runs`: past and present runs, looked at, compared, taken along and deleted."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from engine.cli import client, show
from engine.cli.options import Data, Json, RunId, print_json

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="Past and present runs.")


@app.command("list", epilog="Example: bidirl runs list --json")
def runs_list(json_output: Json = False, data_dir: Data = None) -> None:
    """All runs, newest first."""
    data = client.data_dir(data_dir)
    if data_dir is not None and not data.root.is_dir():
        raise client.BadInput(f"--data-dir: there is no folder {data.root}")
    results = client.results(data)
    print_json(results) if json_output else show.table(results)


@app.command("show", epilog="Example: bidirl runs show demo-1129-101500-ab12")
def runs_show(run_id: RunId, json_output: Json = False, data_dir: Data = None) -> None:
    """One run's result fields."""
    data = client.data_dir(data_dir)
    result = client.result(data, run_id)
    print_json(result) if json_output else show.summary(result, judge=client.judge(data, run_id))


@app.command("compare", epilog="Example: bidirl runs compare demo-1129-101500-ab12 demo-1129-103000-cd34")
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
    print_json(compare.document(found)) if json_output else compare.show(found)


@app.command("delete", epilog="Example: bidirl runs delete demo-1129-101500-ab12")
def runs_delete(run_id: RunId, json_output: Json = False, data_dir: Data = None) -> None:
    """Delete a run that has ended, with its checkpoints."""
    data = client.data_dir(data_dir)
    client.require_engine(data)
    answer = client.command(data, "delete", {}, run_id=run_id, wait=True)
    print_json(answer) if json_output else print(answer["answer"])


@app.command("export", epilog="Example: bidirl runs export demo-1129-101500-ab12 --format perfetto --out a.gz")
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
    print_json(exporting.document(run_id, report)) if json_output else print(exporting.text(run_id, report))


@app.command("import", epilog="Example: bidirl runs import demo.bidirl.zip --as demo-from-ana")
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
    print_json(answer) if json_output else print(answer["answer"])
