"""The page: every table by the name of its place, put between the markers of docs/borrowing.md. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import Any

from tests.report import checks, emulated_tables, real_tables
from tests.report.checks import Criterion
from tests.report.figures import OURS, Cell, cells
from tests.report.markdown import share, table
from tests.report.trimming import Document

Sections = Mapping[str, Document | None]
"""real, improvements, emulated, scale; None for what was never measured."""

OPENED = frozenset(("comparisons", "cells", "runs", "ratios"))
"""Fields of a section whose entries each have a line of their own in its file."""

NOT_MEASURED = "*Not measured yet.*"

UNUSED = 0.2
"""Share of leases that brought nothing from which on a cell is listed: one in five is no accident."""


def page(text: str, sections: Sections) -> str:
    """The page with all of its tables anew. Raises ValueError where a table has no place or a place no table."""
    made = tables(sections)
    places = set(re.findall(r"<!-- ([a-z0-9_]+): begin -->", text))
    if places != set(made):
        raise ValueError(
            f"docs/borrowing.md: places without a table: {sorted(places - set(made))}; tables without a place: "
            f"{sorted(set(made) - places)}"
        )
    for name, content in made.items():
        text = _put(text, name, content)
    return text


def tables(sections: Sections) -> dict[str, str]:
    """Name of the place -> what stands there."""
    criteria = checks.all_of(sections)
    made = {"verdict": _verdict(criteria, sections), "unpaid": _unpaid(sections), "unused": _unused(sections)}
    for name, document in sections.items():
        made[f"{name}_about"] = _about(document) if document else NOT_MEASURED
    for name, of_section in criteria.items():
        made[f"{name}_criteria"] = _criteria(of_section) if of_section else NOT_MEASURED
    makers: dict[str, tuple[str, Callable[[Document], str]]] = {
        "real": ("real", real_tables.real),
        "improvements": ("improvements", real_tables.improvements),
        "emulated": ("emulated", emulated_tables.arms),
        "emulated_summary": ("emulated", emulated_tables.summary),
        "published": ("emulated", emulated_tables.published),
        "emulated_32": ("emulated", emulated_tables.larger),
        "simulated": ("emulated", emulated_tables.simulated),
        "planner": ("emulated", emulated_tables.planner),
        "scale": ("scale", emulated_tables.scale),
    }
    for name, (section, make) in makers.items():
        found = sections[section]
        made[name] = make(found) if found else NOT_MEASURED
    return made


def json_text(document: Mapping[str, Any]) -> str:
    """JSON with a line for each run and each configuration of a cell, so that a change of one is a change of a line."""
    return f"{_lines(document, '')}\n"


def _lines(value: Any, indent: str, *, opened: bool = False) -> str:
    """`opened`: what it holds stands on lines of its own; so does whatever holds one of `OPENED`."""
    opened = opened or (isinstance(value, dict) and not OPENED.isdisjoint(value))
    if not value or not opened:
        return json.dumps(value, ensure_ascii=False, allow_nan=False)
    inner = f"{indent} "
    if isinstance(value, dict):
        parts = [
            f"{inner}{json.dumps(key)}: {_lines(each, inner, opened=key in OPENED)}" for key, each in value.items()
        ]
    else:
        parts = [f"{inner}{_lines(each, inner)}" for each in value]
    begin, end = ("{", "}") if isinstance(value, dict) else ("[", "]")
    joined = ",\n".join(parts)
    return f"{begin}\n{joined}\n{indent}{end}"


def _put(text: str, name: str, content: str) -> str:
    begin, end = f"<!-- {name}: begin -->", f"<!-- {name}: end -->"
    if end not in text:
        raise ValueError(f"docs/borrowing.md: {begin} has no {end}")
    head, rest = text.split(begin, 1)
    return f"{head}{begin}\n{content}\n{end}{rest.split(end, 1)[1]}"


def _about(document: Document) -> str:
    """When and on what it was measured, the commands, and what did not run to its end."""
    commands = [each["command"] for each in document.get("comparisons", [document])]
    told = "\n".join(commands)
    where = f"on {document['cores']} cores ({document['cpu']}), source {document['commit']}"
    lines = [f"Measured on {document['date']}, {where}, with:", "", f"```\n{told}\n```"]
    for each in document.get("comparisons", []):
        if each["runs_counted"] < each["runs_planned"]:
            lines += ["", f"{each['name']}: only {each['runs_counted']} of {each['runs_planned']} runs count."]
        for run in each["runs"]:
            if run["not_counted"] is not None:
                where = f"{run['label']}, s={run['staleness']:g}, repeat {run['repeat']}"
                lines += ["", f"- {each['name']}, {where}: {run['not_counted']}"]
    return "\n".join(lines)


def _verdict(criteria: Mapping[str, list[Criterion]], sections: Sections) -> str:
    """How many criteria are met, and each that is not."""
    found = [criterion for of_section in criteria.values() for criterion in of_section]
    unmet = [criterion for criterion in found if not criterion.met]
    missing = [name for name, document in sections.items() if document is None]
    lines = [f"{len(found) - len(unmet)} of {len(found)} criteria are met."] if found else []
    if missing:
        lines.append(f"Not measured yet: {', '.join(missing)}.")
    if unmet:
        lines += ["Not met:", _criteria(unmet)]
    return "\n\n".join(lines)


def _criteria(found: list[Criterion]) -> str:
    rows = [[each.what, each.must, each.measured, _met(each.met)] for each in found]
    return table(["what", "must reach", "measured", "met"], rows, words=4)


def _met(met: bool | None) -> str:
    return "not measured" if met is None else "yes" if met else "**no**"


# -- where it did not pay ---------------------------------------------------------------------------------------------


def _every_cell(sections: Sections) -> list[Cell]:
    return [*cells(sections["real"]), *cells(sections["emulated"])]


def _unpaid(sections: Sections) -> str:
    """Every cell in which another arm was faster."""
    every = _every_cell(sections)
    if not every:
        return NOT_MEASURED
    rows = []
    for cell in every:
        found = cell.over(OURS, "best_other_arm")
        if found["mean"] is not None and found["mean"] < 1:
            figures = cell.figures["ratios"][OURS]
            rows.append(
                [
                    cell.name,
                    checks.interval(found),
                    str(found["of"]),
                    checks.interval(cell.over(OURS, "better_baseline")),
                    share(figures["idle_fraction"]),
                    f"{cell.leases(OURS, 'admitted') or 0:,.0f}",
                ]
            )
    if not rows:
        return f"None of {len(every)} cells."
    names = ["cell", f"{OURS} over it", "best other arm", "over better no_borrow", "idle", "leases"]
    return f"{len(rows)} of {len(every)} cells:\n\n{table(names, rows)}"


def _unused(sections: Sections) -> str:
    """Every cell in which many of the granted leases brought nothing."""
    every = _every_cell(sections)
    if not every:
        return NOT_MEASURED
    rows = []
    for cell in every:
        admitted, unused = cell.leases(OURS, "admitted"), cell.leases(OURS, "unused")
        if admitted and unused is not None and unused / admitted > UNUSED:
            told = checks.interval(cell.over(OURS, "best_other_arm"))
            rows.append([cell.name, f"{admitted:,.0f}", f"{unused:,.0f}", f"{unused / admitted:.0%}", told])
    if not rows:
        return f"None of {len(every)} cells."
    names = ["cell", "leases", "brought nothing", "share", f"{OURS} over the best other arm"]
    return f"{len(rows)} of {len(every)} cells:\n\n{table(names, rows)}"
