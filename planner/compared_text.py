"""A comparison's document in words, the same for the command line and the page. Pure; "-" where nothing is known."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Figures = Mapping[str, Any]

COLUMNS = (
    "configuration",
    "tokens/s",
    "over better baseline",
    "over best other arm",
    "step",
    "idle",
    "of bound",
    "leases/unused/refused",
)
"""Heads of the table of a cell; those after the first are numbers."""


def headline(document: Figures) -> str:
    """What was compared and how much of it there is."""
    emulated = "EMULATED, " if document["kind"] == "emulated" else ""
    return (
        f"{emulated}job {document['name']}, seed {document['seed']}, "
        f"{document['runs_counted']} of {document['runs_planned']} runs count, {document['repeats']} repeats"
    )


def rows(cell: Figures) -> list[tuple[str, ...]]:
    """A row for each configuration, in the order of `COLUMNS`; after a mean stand the smallest and largest value, on a
    line of their own."""
    found: list[tuple[str, ...]] = []
    for label, each in cell["ratios"].items():
        over = each["over"]
        found.append(
            (
                label,
                spread(each["throughput_tokens_per_s"], ",.0f"),
                ratio(over["better_baseline"], label),
                other(over["best_other_arm"], label),
                spread(each["step_s"], ".3g", " s"),
                spread(each["idle_fraction"], ".1%"),
                spread(each["bound_ratio"], ".1%"),
                leases(each["leases"]),
            )
        )
    return found


def ratio(found: Figures, label: str) -> str:
    """A ratio with its interval, if it has one."""
    if found["mean"] is None:
        return "-"
    if found["of"] == label:
        return "the baseline"
    interval = "" if found["low"] is None else f" [{found['low']:.3f}, {found['high']:.3f}]"
    return f"{found['mean']:.3f}{interval}"


def other(found: Figures, label: str) -> str:
    """A ratio with the name of what it is over."""
    told = ratio(found, label)
    return told if told == "-" else f"{told}\n{found['of']}"


def spread(found: Figures | None, spec: str, unit: str = "") -> str:
    """A mean, and below it the smallest and the largest value where they differ."""
    if found is None:
        return "-"
    mean, low, high = (format(found[name], spec) for name in ("mean", "min", "max"))
    return f"{mean}{unit}" if low == high else f"{mean}{unit}\n{low}..{high}"


def leases(counts: Mapping[str, Figures]) -> str:
    """Means over the runs, both directions together; nothing for an arm that never asked."""
    sums = []
    for name in ("admitted", "unused", "refused"):
        means = [each[name]["mean"] for each in counts.values() if each[name] is not None]
        if not means:
            return "-"
        sums.append(sum(means))
    return "/".join(f"{value:,.0f}" for value in sums) if any(sums) else "-"


def theory(found: Figures) -> str:
    """The stages' work, and the most that lending can win."""
    if found["ratio"] is None:
        return "work ratio: not known"
    line = (
        f"work ratio x = {found['ratio']:.2f}, {found['larger']} the larger: on a 1:1 split lending can win at most "
        f"2x/(1+x) = {found['limit_at_1_1']:.3f} over a no_borrow whose busier pool never waits"
    )
    rollout, train = found["partition"].split(":")
    return line if rollout == train else f"{line}; at {found['partition']} at most {found['limit']:.3f}"


def best_static(found: Figures, ratios: Mapping[str, Any]) -> str:
    """What a fixed partition reaches at its best, and what the arms that lend reach over it."""
    if found["label"] is None:
        return f"best static split: not known ({found['why']})"
    partition = found["partition"]
    split = f"{partition['rollout']}:{partition['train']}" if partition else "-"
    over = {label: each for label, each in found["ratios"].items() if ratios[label]["arm"] != "no_borrow"}
    told = ", ".join(f"{label} {ratio(each, '')}" for label, each in over.items() if each["mean"] is not None)
    return (
        f"best static split: {split}, {found['consume']}, {found['throughput_tokens_per_s']:,.0f} tokens/s "
        f"({found['why']}); over it: {told or '-'}"
    )


def not_counted(document: Figures) -> list[str]:
    """A sentence for each run that does not count."""
    found = []
    for result in document["runs"]:
        if result["not_counted"] is not None:
            part = result["comparison"]
            found.append(f"{result['run_id']} ({part['label']}, repeat {part['repeat']}): {result['not_counted']}")
    return found


def how(document: Figures) -> str:
    """How to read the ratios."""
    if document["repeats"] > 1:
        return "ratios: geometric mean of the pairs within a repeat, with the 95% t interval over the repeats"
    return "one repeat has no interval: use --repeats 3 or more before a ratio is believed"
