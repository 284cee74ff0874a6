"""What the columns of exported tables are: moments, numbers, texts, JSON; and their units. Pure look-ups.

A column's type comes from the database itself, so that one which a later migration adds is exported too. A moment
becomes two columns: exact unix seconds, and a date that people can read.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

Type = Literal["moment", "int", "real", "text", "json"]

MOMENTS = frozenset(
    {
        "accepted_at",
        "applied_at",
        "at",
        "bin_start",
        "created_at",
        "ended_at",
        "expires_at",
        "finished_at",
        "granted_at",
        "imported_at",
        "measured_until",
        "ready_at",
        "released_at",
        "seen_at",
        "since",
        "started_at",
        "t0",
        "t1",
        "t_end",
        "t_start",
        "training_at",
        "working_at",
    }
)
"""Columns that hold unix seconds."""

JSON = frozenset({"payload", "result", "responses"})
"""Columns with JSON whose names do not say so; the others end with _json."""

UNITS = {
    "accuracy": "share, 0 to 1",
    "bound": "versions (staleness)",
    "chunks": "chunks",
    "entropy": "nats",
    "groups": "groups",
    "lag": "versions",
    "lag_max": "versions",
    "ms": "milliseconds of device time",
    "no_signal": "groups",
    "prompt_tokens": "tokens",
    "response_len_mean": "tokens",
    "response_tokens": "tokens",
    "reward_mean": "reward",
    "staleness": "versions",
    "time_scale": "wall seconds for one second that emulated devices stand for",
    "tokens": "tokens",
    "version": "optimizer updates",
}
"""Column -> unit, where its name does not say it; every name that ends with _s is in seconds of wall time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """One stored column."""

    name: str
    """As in the database."""
    type: Type
    """What it holds."""

    @property
    def unit(self) -> str:
        """In words, "" for what has none."""
        if self.type == "moment":
            return "unix seconds, and the same in UTC"
        return UNITS.get(self.name, "seconds of wall time" if self.name.endswith("_s") else "")


def column(name: str, declared: str) -> Column:
    """A column by its name and the type that its table declares. Raises ValueError for one that is no export's."""
    if name in MOMENTS:
        return Column(name=name, type="moment")
    if name in JSON or name.endswith("_json"):
        return Column(name=name, type="json")
    match declared.upper():
        case "INTEGER":
            return Column(name=name, type="int")
        case "FLOAT" | "REAL":
            return Column(name=name, type="real")
        case "TEXT":
            return Column(name=name, type="text")
    raise ValueError(f"column {name!r} is declared {declared!r}; exported are INTEGER, FLOAT, REAL and TEXT")


def exported_names(column: Column) -> Sequence[str]:
    """The names of what one stored column becomes."""
    return (f"{column.name}_unix_s", f"{column.name}_utc") if column.type == "moment" else (column.name,)
