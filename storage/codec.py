"""Between a record (a frozen dataclass) and a row of its table. It knows JSON columns and nothing about any table.

A field whose column has another name or holds JSON says so in its metadata (`json_column`); every other field is the
column of the same name.
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import Any, TypeVar

Record = TypeVar("Record")


@dataclasses.dataclass(frozen=True, slots=True)
class _Json:
    """How one JSON field is stored."""

    column: str
    int_keys: bool


@dataclasses.dataclass(frozen=True, slots=True)
class _Layout:
    """What is asked of a record type again and again."""

    fields: tuple[str, ...]
    columns: tuple[str, ...]
    json_at: tuple[tuple[int, _Json], ...]
    values: Callable[[Any], tuple[Any, ...]]


_LAYOUTS: dict[type, _Layout] = {}


def json_column(column: str, *, int_keys: bool = False) -> dict[str, _Json]:
    """Metadata of a dataclass field that is stored as JSON text in `column`.

    `int_keys`: the field is a dict keyed by int, which JSON can only write as text.
    """
    return {"json": _Json(column, int_keys)}


def _layout(record_type: type[Any]) -> _Layout:
    layout = _LAYOUTS.get(record_type)
    if layout is None:
        fields = dataclasses.fields(record_type)
        specs = [field.metadata.get("json") for field in fields]
        layout = _LAYOUTS[record_type] = _Layout(
            fields=tuple(field.name for field in fields),
            columns=tuple(spec.column if spec else f.name for f, spec in zip(fields, specs, strict=True)),
            json_at=tuple((position, spec) for position, spec in enumerate(specs) if spec),
            values=attrgetter(*(field.name for field in fields)),
        )
    return layout


def columns(record_type: type[Any]) -> tuple[str, ...]:
    """Names of the table's columns, in the order of the record's fields."""
    return _layout(record_type).columns


def encode(value: Any) -> str | None:
    """JSON text; None stays null. NaN and infinities become null, as SQLite makes of a NaN in a column of numbers."""
    if value is None:
        return None
    try:
        return _dump(value)
    except ValueError:
        return _dump(_finite(value))


def _dump(value: Any) -> str:
    return json.dumps(value, allow_nan=False, separators=(",", ":"), ensure_ascii=False)


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: _finite(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(part) for part in value]
    return value


def to_row(record: Any) -> tuple[Any, ...]:
    """The record's values in the order of `columns`."""
    layout = _layout(type(record))
    if not layout.json_at:
        return layout.values(record)
    values = list(layout.values(record))
    for position, _ in layout.json_at:
        values[position] = encode(values[position])
    return tuple(values)


def from_row(record_type: type[Record], row: Sequence[Any]) -> Record:
    """The record of a row that was selected in the order of `columns`."""
    layout = _layout(record_type)
    values = list(row)
    for position, spec in layout.json_at:
        decoded = None if values[position] is None else json.loads(values[position])
        if spec.int_keys and decoded is not None:
            decoded = {int(key): value for key, value in decoded.items()}
        values[position] = decoded
    return record_type(**dict(zip(layout.fields, values, strict=True)))


def column_values(record_type: type[Any], given: dict[str, Any]) -> dict[str, Any]:
    """Column -> stored value for some fields of a record. Raises ValueError naming the fields that do not exist."""
    layout = _layout(record_type)
    if unknown := sorted(given.keys() - set(layout.fields)):
        raise ValueError(
            f"{record_type.__name__} has no field {', '.join(map(repr, unknown))}; it has {', '.join(layout.fields)}"
        )
    json_columns = {spec.column for _, spec in layout.json_at}
    column_of = dict(zip(layout.fields, layout.columns, strict=True))
    return {
        (column := column_of[name]): encode(value) if column in json_columns else value for name, value in given.items()
    }
