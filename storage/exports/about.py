"""The README that goes with exported tables: what each file is, what its columns are in, and what is not there."""

from __future__ import annotations

from collections.abc import Mapping

from storage.exports.columns import exported_names
from storage.exports.source import Source
from storage.exports.tables import LABEL, tables

LEFT_OUT = (
    "Not here: checkpoints, and the policy's own states (a bundle has those; `bidirl runs export RUN --format bundle`)."
)


def readme(source: Source, rows: Mapping[str, int], suffix: str) -> str:
    """Markdown. rows: table -> rows written; suffix: of the files."""
    run = source.run
    lines = [
        f"# Run {run.run_id}{f' ({source.label})' if source.label else ''}",
        "",
        f"{run.name}, {run.kind} devices, arm {run.arm}, state {run.state}, {run.steps or 0} steps. Written by bidirl.",
        "",
        "- Moments are given twice: `*_unix_s` is exact, `*_utc` is the same as a date, to the microsecond.",
        "- Names that end with `_s` are seconds of wall time; columns whose names end with `_json` hold JSON.",
        "- Empty is not known, never 0.",
    ]
    if source.pace:
        lines.append(f"- {source.pace} Every row says so in `{LABEL}`.")
    if source.window is not None:
        t0, t1 = source.window
        lines.append(
            f"- Only what lies in {t0:.3f} to {t1:.3f} (unix seconds); spans and leases at its edges are whole."
        )
    lines += [f"- {one.sentence}" for one in source.missing()]
    lines += [f"- {LEFT_OUT}", ""]
    for table in tables(source):
        lines += [f"## {table.name}{suffix}: {rows.get(table.name, 0):,} rows", "", table.about, ""]
        for column in table.columns:
            names = ", ".join(f"`{name}`" for name in exported_names(column))
            kind = "JSON" if column.type == "json" else column.type
            unit = f", {column.unit}" if column.unit else ""
            lines.append(f"- {names}: {'moment' if column.type == 'moment' else kind}{unit}")
        lines.append("")
    return "\n".join(lines)
