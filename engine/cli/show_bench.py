"""What `bench` prints for people: a table for each staleness, the most that could be won, and the best static split."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.markup import escape
from rich.table import Table

from engine.cli.show import console

Figures = Mapping[str, Any]


def comparison(document: Figures) -> None:
    """Every cell's table with what follows from it; then the runs that do not count, with the reason."""
    emulated = "EMULATED, " if document["kind"] == "emulated" else ""
    print(
        f"{document['comparison']}: {emulated}job {document['name']}, seed {document['seed']}, "
        f"{document['runs_counted']} of {document['runs_planned']} runs count, {document['repeats']} repeats"
    )
    for cell in document["cells"]:
        console().print(_table(cell, emulated))
        print(_theory(cell["theory"]))
        print(_best_static(cell["best_static"], cell["ratios"]))
    for result in document["runs"]:
        if result["not_counted"] is not None:
            part = result["comparison"]
            print(
                f"not counted: {result['run_id']} ({part['label']}, repeat {part['repeat']}): {result['not_counted']}"
            )
    if document["repeats"] > 1:
        print("ratios: geometric mean of the pairs within a repeat, with the 95% t interval over the repeats")
    else:
        print("one repeat has no interval: use --repeats 3 or more before a ratio is believed")


def _table(cell: Figures, emulated: str) -> Table:
    """A row for each configuration; below a mean stand the smallest and the largest of its runs."""
    title = f"{emulated}staleness {cell['staleness']:g}"
    grid = Table(title=title, title_justify="left")
    grid.add_column("configuration", no_wrap=True)
    for name in ("tokens/s", "over better baseline", "over best other arm", "step", "idle", "of bound"):
        grid.add_column(name, justify="right")
    grid.add_column("leases/unused/refused", justify="right")
    for label, each in cell["ratios"].items():
        over = each["over"]
        grid.add_row(
            escape(label),
            _spread(each["throughput_tokens_per_s"], ",.0f"),
            escape(_ratio(over["better_baseline"], label)),
            escape(_other(over["best_other_arm"], label)),
            _spread(each["step_s"], ".3g", " s"),
            _spread(each["idle_fraction"], ".1%"),
            _spread(each["bound_ratio"], ".1%"),
            _leases(each["leases"]),
        )
    return grid


def _ratio(found: Figures, label: str) -> str:
    if found["mean"] is None:
        return "-"
    if found["of"] == label:
        return "the baseline"
    interval = "" if found["low"] is None else f" [{found['low']:.3f}, {found['high']:.3f}]"
    return f"{found['mean']:.3f}{interval}"


def _other(found: Figures, label: str) -> str:
    """A ratio with the name of what it is over."""
    told = _ratio(found, label)
    return told if told == "-" else f"{told}\n{found['of']}"


def _spread(found: Figures | None, spec: str, unit: str = "") -> str:
    if found is None:
        return "-"
    mean, low, high = (format(found[name], spec) for name in ("mean", "min", "max"))
    return f"{mean}{unit}" if low == high else f"{mean}{unit}\n{low}..{high}"


def _leases(leases: Mapping[str, Figures]) -> str:
    """Means over the runs, both directions together; nothing for an arm that never asked."""
    sums = []
    for name in ("admitted", "unused", "refused"):
        means = [counts[name]["mean"] for counts in leases.values() if counts[name] is not None]
        if not means:
            return "-"
        sums.append(sum(means))
    return "/".join(f"{value:,.0f}" for value in sums) if any(sums) else "-"


def _theory(theory: Figures) -> str:
    if theory["ratio"] is None:
        return "work ratio: not known"
    line = (
        f"work ratio x = {theory['ratio']:.2f}, {theory['larger']} the larger: on a 1:1 split lending can win at most "
        f"2x/(1+x) = {theory['limit_at_1_1']:.3f} over a no_borrow whose busier pool never waits"
    )
    rollout, train = theory["partition"].split(":")
    return line if rollout == train else f"{line}; at {theory['partition']} at most {theory['limit']:.3f}"


def _best_static(found: Figures, ratios: Mapping[str, Any]) -> str:
    if found["label"] is None:
        return f"best static split: not known ({found['why']})"
    partition = found["partition"]
    split = f"{partition['rollout']}:{partition['train']}" if partition else "-"
    over = {label: ratio for label, ratio in found["ratios"].items() if ratios[label]["arm"] != "no_borrow"}
    told = ", ".join(f"{label} {_ratio(ratio, '')}" for label, ratio in over.items() if ratio["mean"] is not None)
    return (
        f"best static split: {split}, {found['consume']}, {found['throughput_tokens_per_s']:,.0f} tokens/s "
        f"({found['why']}); over it: {told or '-'}"
    )
