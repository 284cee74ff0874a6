"""Does borrowing pay? Measures it and writes the tables of docs/borrowing.md: `make report`.

    python -m tests.report                          (everything: hours, on a machine that does nothing else)
    python -m tests.report --only emulated,scale    (these sections; the others as they were measured before)
    python -m tests.report --render                 (measures nothing)

What was measured lies in docs/measured/SECTION.json, and the page is made of that alone. A section is stored as it
goes, so what ended before a failure is kept.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from storage.paths import DataDir
from tests.report import measure, tables, trimming
from tests.report.measure import ROOT

PAGE = ROOT / "docs" / "borrowing.md"
MEASURED = ROOT / "docs" / "measured"
SECTIONS = ("real", "improvements", "emulated", "scale")


def load(folder: Path) -> tables.Sections:
    """Section -> what was measured; None for one that never was."""
    return {
        name: json.loads(path.read_text(encoding="utf-8")) if (path := folder / f"{name}.json").exists() else None
        for name in SECTIONS
    }


def keep(section: str, data: DataDir, document: dict[str, Any]) -> None:
    """Store a section, one line a run or cell."""
    MEASURED.mkdir(parents=True, exist_ok=True)
    places = [place for place in map(str, (data.root, ROOT, Path.home())) if place != "/"]
    text = tables.json_text(trimming.stored(document, places=places))
    path = MEASURED / f"{section}.json"
    new = path.with_suffix(".new")
    new.write_text(text, encoding="utf-8")
    os.replace(new, path)


def render() -> None:
    """The page anew from what is stored."""
    PAGE.write_text(tables.page(PAGE.read_text(encoding="utf-8"), load(MEASURED)), encoding="utf-8")


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and render; returns the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.report", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", default=",".join(SECTIONS), help="sections, separated by commas")
    parser.add_argument("--data-dir", default=str(ROOT / "var" / "report"), help="where the runs are stored")
    parser.add_argument("--repeats", type=int, default=3, help="of the comparisons on real cores")
    parser.add_argument("--render", action="store_true", help="only make the page anew from what was measured before")
    options = parser.parse_args(arguments)
    names = list(dict.fromkeys(options.only.split(",")))
    unknown = [name for name in names if name not in SECTIONS]
    if unknown:
        parser.error(f"--only: no section {', '.join(map(repr, unknown))}; there are {', '.join(SECTIONS)}")
    if options.repeats < 1:
        parser.error(f"--repeats must be at least 1, got {options.repeats}")
    data = DataDir.from_env(options.data_dir)
    measuring: dict[str, Callable[[DataDir, measure.Keep], None]] = {
        "real": partial(measure.real, repeats=options.repeats),
        "improvements": measure.improvements,
        "emulated": measure.emulated,
        "scale": measure.scale,
    }
    failed = False
    for name in [] if options.render else names:
        try:
            measuring[name](data, partial(keep, name, data))
        except RuntimeError as error:
            failed = True
            print(f"{name}: {error}", file=sys.stderr)
        render()
    render()
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
