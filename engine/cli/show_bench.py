"""What `bench` prints for people: a table for each staleness, the most that could be won, and the best static split."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.markup import escape
from rich.table import Table

from engine.cli.show import console
from planner import compared_text as text

Figures = Mapping[str, Any]


def comparison(document: Figures) -> None:
    """Every cell's table with what follows from it; then the runs that do not count, with the reason."""
    emulated = "EMULATED, " if document["kind"] == "emulated" else ""
    print(f"{document['comparison']}: {text.headline(document)}")
    for cell in document["cells"]:
        console().print(_table(cell, emulated))
        print(text.theory(cell["theory"]))
        print(text.best_static(cell["best_static"], cell["ratios"]))
    for line in text.not_counted(document):
        print(f"not counted: {line}")
    print(text.how(document))


def _table(cell: Figures, emulated: str) -> Table:
    """A row for each configuration; below a mean stand the smallest and the largest of its runs."""
    title = f"{emulated}staleness {cell['staleness']:g}"
    grid = Table(title=title, title_justify="left")
    for number, name in enumerate(text.COLUMNS):
        grid.add_column(name, justify="right" if number else "left", no_wrap=not number)
    for row in text.rows(cell):
        grid.add_row(*(escape(value) for value in row))
    return grid
