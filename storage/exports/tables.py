"""A run as tables, Parquet or CSV: one file a table, beside a README that says units and what is gone.

Rows stream: neither a table nor the run is ever in memory whole. The policy's states are left out, for they are nothing
without the program: a bundle has them. Parquet files carry the run's facts in their metadata; in files of emulated
runs, CSV too, every row says EMULATED.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq

from storage import words
from storage.exports.columns import Column, column, exported_names
from storage.exports.source import AT_A_TIME, Source
from storage.rollups import decode

Row = Sequence[Any]

LABEL = "label"
"""Last column of every table of an emulated run."""

_ARROW = {"int": pa.int64(), "real": pa.float64(), "text": pa.string(), "json": pa.string()}
_UTC = pa.timestamp("us", tz="UTC")


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """One exported table."""

    name: str
    """Also of its file."""
    about: str
    """What a row is, one sentence."""
    columns: tuple[Column, ...]
    """In the order of a row's values."""
    rows: Callable[[], Iterator[Row]]
    """Made anew by every call."""


class Sink(Protocol):
    """Writes record batches of one table."""

    def write_batch(self, batch: pa.RecordBatch) -> None: ...


ABOUT = {
    "runs": "The run: its job in short, where it stands and how it ended.",
    "devices": "A device of the run: its node, home pool, core and process.",
    "device_state": "What a device does since its last closed span; of a run that is over, what it did last.",
    "spans": "What one device did from t0 to t1; spans longer than 60 s are in pieces.",
    "raw_missing": "Raw spans that are gone; rollups still count their time.",
    "steps": "One optimizer update and the groups that it consumed.",
    "groups": "One prompt with its responses, consumed once or excluded once.",
    "evals": "One evaluation of one version on held-out items.",
    "decisions": "One decision about lending, taken or refused, with what it was made on.",
    "leases": "One lease from its grant to its end, with predicted and measured gain and cost.",
    "logs": "One line of the run's log.",
    "commands": "What somebody asked of the run, and what became of it.",
    "tags": "A tag of the run.",
    "notes": "The run's note.",
}
"""Table -> what a row is."""

ORDER = {
    "devices": "device",
    "device_state": "device",
    "raw_missing": "reason",
    "steps": "step",
    "groups": "group_id",
    "evals": "step, name",
    "decisions": "id",
    "leases": "lease",
    "logs": "id",
    "commands": "id",
    "tags": "tag",
}
"""Table -> the order of its rows."""

CONTROL_TABLES = ("commands", "tags", "notes")

MOMENT_OF = {
    "groups": "finished_at",
    "evals": "at",
    "decisions": "at",
    "logs": "at",
    "steps": "t_end",
    "commands": "created_at",
}
"""Table -> what must lie in the window when only that is asked for; leases overlap it, other tables are whole."""


def tables(source: Source) -> Iterator[Table]:
    """Every table that has a meaning for this run, rollups of each resolution included."""
    for name, about in ABOUT.items():
        connection = source.control if name in CONTROL_TABLES else source.telemetry
        if connection is None:
            continue
        declared = connection.execute(f"PRAGMA table_info({name})").fetchall()
        found = tuple(column(row[1], row[2]) for row in declared)
        yield Table(name=name, about=about, columns=found, rows=partial(_rows, source, name, found))
    for res in words.RESOLUTIONS_S:
        yield _rollups(source, res)


def write_parquet(source: Source, folder: Path) -> dict[str, int]:
    """One Parquet file a table. Returns table -> rows."""

    def sink(stack: ExitStack, table: Table, schema: pa.Schema) -> Sink:
        path = folder / f"{table.name}.parquet"
        writer: Sink = stack.enter_context(pq.ParquetWriter(path, schema, compression="zstd"))
        return writer

    return _write(source, sink, for_csv=False)


def write_csv(source: Source, folder: Path) -> dict[str, int]:
    """One CSV file a table: UTF-8, a header, dates as ISO 8601, nulls empty. Returns table -> rows."""

    def sink(stack: ExitStack, table: Table, schema: pa.Schema) -> Sink:
        writer: Sink = stack.enter_context(pa_csv.CSVWriter(folder / f"{table.name}.csv", schema))
        return writer

    return _write(source, sink, for_csv=True)


def _write(source: Source, sink: Callable[[ExitStack, Table, pa.Schema], Sink], *, for_csv: bool) -> dict[str, int]:
    counts: dict[str, int] = {}
    for table in tables(source):
        schema = schema_of(source, table, for_csv=for_csv)
        counts[table.name] = 0
        with ExitStack() as stack:
            writer = sink(stack, table, schema)
            for page in _pages(table.rows()):
                writer.write_batch(_batch(page, table.columns, schema, source.label))
                counts[table.name] += len(page)
    return counts


def schema_of(source: Source, table: Table, *, for_csv: bool) -> pa.Schema:
    """Names, types and units of a table, with the run's facts as metadata."""
    fields: list[pa.Field] = []
    for each in table.columns:
        unit = {"unit": each.unit} if each.unit else None
        if each.type == "moment":
            seconds, date = exported_names(each)
            fields.append(pa.field(seconds, pa.float64(), metadata={"unit": "unix seconds"}))
            fields.append(pa.field(date, pa.string() if for_csv else _UTC, metadata={"unit": "UTC"}))
        else:
            fields.append(pa.field(each.name, _ARROW[each.type], metadata=unit))
    if source.label:
        fields.append(pa.field(LABEL, pa.string()))
    run = source.run
    facts = {
        "run_id": run.run_id,
        "name": run.name,
        "kind": run.kind,
        "label": source.label,
        "table": table.about,
        "time": source.pace or "Seconds are wall time as measured.",
        "raw_missing": json.dumps([one.sentence for one in source.missing()]),
        "job": run.job,
    }
    if run.time_scale is not None:
        facts["time_scale"] = repr(run.time_scale)
    return pa.schema(fields, metadata={f"bidirl.{name}": value for name, value in facts.items()})


def _batch(page: list[Row], stored: Sequence[Column], schema: pa.Schema, label: str) -> pa.RecordBatch:
    arrays: list[pa.Array] = []
    for values, each in zip(zip(*page, strict=True), stored, strict=True):
        if each.type != "moment":
            arrays.append(pa.array(values, _ARROW[each.type]))
            continue
        arrays.append(pa.array(values, pa.float64()))
        arrays.append(_dates(values, as_text=pa.types.is_string(schema.field(len(arrays)).type)))
    if label:
        arrays.append(pa.array([label] * len(page), pa.string()))
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _dates(values: Sequence[float | None], *, as_text: bool) -> pa.Array:
    """Unix seconds as dates to the microsecond; what is not known stays null."""
    known = np.array([value is not None for value in values])
    micros = np.array([0 if value is None else round(value * 1e6) for value in values], "datetime64[us]")
    if as_text:
        return pa.array(np.char.add(np.datetime_as_string(micros, unit="us"), "Z"), pa.string(), mask=~known)
    return pa.array(micros, _UTC, mask=~known)


def _pages(rows: Iterable[Row]) -> Iterator[list[Row]]:
    rows = iter(rows)
    while page := list(islice(rows, AT_A_TIME)):
        yield page


def _rows(source: Source, name: str, found: Sequence[Column]) -> Iterator[Row]:
    names = [f'"{each.name}"' for each in found]
    if name == "spans":
        return source.span_rows(names)
    condition = "run_id = ?"
    values: list[Any] = [source.run.run_id]
    if source.window is not None:
        if name == "leases":
            condition += " AND granted_at < ? AND coalesce(released_at, ended_at, granted_at) >= ?"
            values += [*reversed(source.window)]
        elif name in MOMENT_OF:
            condition += f" AND {MOMENT_OF[name]} >= ? AND {MOMENT_OF[name]} < ?"
            values += source.window
    order = f" ORDER BY {ORDER[name]}" if name in ORDER else ""
    connection = source.control if name in CONTROL_TABLES else source.telemetry
    assert connection is not None
    return iter(connection.execute(f"SELECT {', '.join(names)} FROM {name} WHERE {condition}{order}", values))


def _rollups(source: Source, res: int) -> Table:
    return Table(
        name=f"rollups_{res}s",
        about=f"Milliseconds that a device spent in one way within a bin of {res} s: the exact sums behind every share"
        " of time, kept when raw spans are gone. Each resolution holds the same time: add up one of them only.",
        columns=(
            Column(name="run_id", type="text"),
            Column(name="bin_start", type="moment"),
            Column(name="device", type="int"),
            Column(name="column", type="text"),
            Column(name="ms", type="int"),
        ),
        rows=lambda: _long_form(source, res),
    )


def _long_form(source: Source, res: int) -> Iterator[Row]:
    t0, t1 = source.window or (-float("inf"), float("inf"))
    stored = source.rows(
        "SELECT bin, layout, data FROM rollups WHERE run_id = ? AND res = ? AND (bin + 1) * ? > ? AND bin * ? < ?"
        " ORDER BY bin",
        *(source.run.run_id, res, res, t0, res, t1),
    )
    for number, layout, data in stored:
        cells = decode([data], [layout])[0]
        for device, index in zip(*cells.nonzero(), strict=True):
            yield (
                source.run.run_id,
                float(number * res),
                int(device),
                words.COLUMNS[index],
                int(cells[device, index]),
            )
