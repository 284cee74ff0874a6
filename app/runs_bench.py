"""A comparison that `bidirl bench` made, as it prints it: ratios with their spread, the best static split, and what
does not count. Draws what `planner.compared` makes of the stored runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd
import streamlit as st

from app import session
from app.figures.compare import Interval, ratios
from app.live_chart import chart, live_chart
from app.markup import literal
from app.modelled import EMULATED
from app.run_job import job_of
from app.status import symbol
from engine.config.comparison_parts import part_of
from planner import compared_text as text
from planner import work
from planner.compared import Part, document
from storage.database import StorageError
from storage.reader import TelemetryReader
from storage.records import RunRow

Document = Mapping[str, Any]


def read_document(comparison: str) -> Document | None:
    """The comparison as its stored runs have it; None when it has none. Raises StorageError, or ValueError for labels
    of another version."""
    with TelemetryReader(session.data_dir().telemetry_db) as reader:
        rows = reader.comparison(comparison)
    plan = rows[0].comparison_plan if rows else None
    if plan is None:
        return None
    return document(comparison, plan, [part(row) for row in rows])


def part(row: RunRow) -> Part:
    """A stored run as a part of its comparison. One without a result does not count, and has nothing but its state."""
    result = row.result or {
        "run_id": row.run_id,
        "name": row.name,
        "kind": row.kind,
        "seed": row.seed,
        "state": row.state,
        "error": row.error or ("it has no result" if row.state == "finished" else None),
        "comparison": {"id": row.comparison, "label": row.comparison_label, "repeat": row.comparison_repeat},
        "throughput_tokens_per_s": None,
        "work": dict(work.UNKNOWN),
    }
    job = job_of(row.job)
    if job is not None:
        return part_of(row, job, result)
    return Part(
        label=row.comparison_label or "",
        repeat=row.comparison_repeat or 0,
        staleness=row.staleness or 0.0,
        devices=sum(map(int, row.partition.split(":"))) if row.partition else 0,
        result=result,
        problem="its job was written for another version of the program",
    )


def card(comparison: str) -> None:
    """The whole comparison, a table for each staleness."""
    slot = f"_bench:{comparison}"
    try:
        found = read_document(comparison)
        st.session_state[slot] = found
    except StorageError as error:
        found = st.session_state.get(slot)
        st.warning(f"The comparison cannot be read now: {literal(str(error))}", icon=symbol("database_off"))
    except ValueError as error:
        st.warning(f"The comparison is of another version: {literal(str(error))}", icon=symbol("data_object"))
        return
    if found is None:
        return
    emulated = f" :violet-badge[{EMULATED}]" if found["kind"] == "emulated" else ""
    with st.container(border=True, key="bench"):
        st.markdown(f"**Comparison made by bench** · {literal(comparison)}{emulated}")
        st.caption(literal(text.headline(found)) + ("" if not found["live"] else " · **still running**"))
        for number, cell in enumerate(found["cells"]):
            _cell(cell, number, comparison)
        st.caption(literal(text.how(found)))
        if lines := text.not_counted(found):
            with st.expander(f"{len(lines)} runs do not count", icon=symbol("block"), key="bench_not_counted"):
                st.markdown("\n".join(f"- {literal(line)}" for line in lines))
        st.code(f"bidirl bench --show {comparison}", language="bash")


def _cell(cell: Document, number: int, comparison: str) -> None:
    st.markdown(f"staleness **{cell['staleness']:g}**")
    st.dataframe(
        table(cell),
        hide_index=True,
        key=f"bench_table:{comparison}:{number}",
        column_config={text.COLUMNS[0]: st.column_config.TextColumn(pinned=True)},
    )
    if drawn := intervals(cell):
        shown = chart(
            ratios(drawn, of=str(cell["better_baseline"])),
            label=f"Throughput over {cell['better_baseline']}, with 95% intervals, at staleness {cell['staleness']:g}",
            table={
                "columns": ["configuration", "ratio", "low", "high"],
                "rows": [[each.name, each.mean, each.low, each.high] for each in drawn],
            },
            note="paired within each repeat, with the 95% interval",
        )
        live_chart(shown, key=f"bench_ratios:{comparison}:{number}")
    st.markdown(
        f"{literal(sentence(text.best_static(cell['best_static'], cell['ratios'])))}  \n"
        f"{literal(sentence(text.theory(cell['theory'])))}"
    )


def table(cell: Document) -> pd.DataFrame:
    """The rows of a cell, as the command line has them, but for its line breaks."""
    rows = [[value.replace("\n", " · ") for value in row] for row in text.rows(cell)]
    return pd.DataFrame(rows, columns=list(text.COLUMNS))


def intervals(cell: Document) -> Sequence[Interval]:
    """Ratios over the better baseline, of every configuration that has one."""
    found = []
    for label, each in cell["ratios"].items():
        over = each["over"]["better_baseline"]
        if over["mean"] is not None:
            found.append(Interval(name=label, mean=over["mean"], low=over["low"], high=over["high"]))
    return found


def sentence(line: str) -> str:
    """With a capital, as prose."""
    return line[:1].upper() + line[1:] + "."
