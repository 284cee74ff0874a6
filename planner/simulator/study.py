"""The scheduling study: every arm, and every improvement alone and left out, in every regime.

    python -m planner.simulator.study            (all of it, into docs/scheduling_study.md; a few minutes of two cores)
    python -m planner.simulator.study --regimes A,B --seeds 2 --print

All figures are simulated throughput of the steady part of a run, mean over the seeds, on the same prompt order,
relative to the better of `no_borrow` with and without streaming in the same regime. Nothing is measured on devices.
"""

from __future__ import annotations

import argparse
import math
import multiprocessing
import os
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from planner.partitions import feasible_partitions
from planner.policy.improvements import DEFAULT, IMPROVEMENTS, PAPER, Improvements
from planner.simulator import regimes
from planner.simulator.bounds import fluid_throughput
from planner.simulator.setup import Setup
from planner.simulator.simulator import Simulator

REPORT = Path(__file__).resolve().parents[2] / "docs" / "scheduling_study.md"

SEEDS = 4

LENGTH_HINT = 0.6
"""Correlation of the length predictor in the rows about `longest_first`; without a predictor it does nothing."""

PUBLISHED = "ABCDEFGHIJKLMN"
"""Regimes whose geometric mean is compared; O1 to O4 and our own are counted apart."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """One row or column of a table: how a regime's setup is changed."""

    arm: str
    streaming: bool
    improvements: Improvements = DEFAULT
    free: bool = False
    """switches cost nothing"""
    partition: tuple[int, int] | None = None
    """another split of the devices"""
    length_hint: float | None = None

    def of(self, setup: Setup) -> Setup:
        """The regime's run under this variant."""
        changed = replace(
            setup,
            arm=self.arm,
            streaming=self.streaming,
            improvements=self.improvements,
            length_hint=self.length_hint,
        )
        if self.partition is not None:
            changed = replace(changed, rollout_devices=self.partition[0], train_devices=self.partition[1])
        return changed.with_free_switches() if self.free else changed


BASES = {
    "no_borrow": Variant(arm="no_borrow", streaming=False),
    "no_borrow streaming": Variant(arm="no_borrow", streaming=True),
}
ARMS = {
    "opportunistic": Variant(arm="opportunistic", streaming=False),
    "opportunistic streaming": Variant(arm="opportunistic", streaming=True),
    "bidirectional_paper": Variant(arm="bidirectional_paper", streaming=False, improvements=PAPER),
    "rollout_on_train": Variant(arm="rollout_on_train", streaming=True),
    "train_on_rollout": Variant(arm="train_on_rollout", streaming=True),
    "bidirectional": Variant(arm="bidirectional", streaming=True),
}
FREE = [
    Variant(arm="bidirectional", streaming=True, free=True),
    Variant(arm="rollout_on_train", streaming=True, free=True),
    Variant(arm="train_on_rollout", streaming=True, free=True),
    Variant(arm="opportunistic", streaming=True, free=True),
    Variant(arm="bidirectional", streaming=True, improvements=DEFAULT.without("keep_lease"), free=True),
    Variant(arm="bidirectional", streaming=True, improvements=DEFAULT.without("just_in_time_end"), free=True),
    Variant(arm="bidirectional", streaming=True, improvements=DEFAULT.without("lazy_rollout_pull"), free=True),
]
"""Schedules with free switches; the best of them, and of all that pay for theirs, is what is called zero-cost."""


def static_variants(setup: Setup) -> list[Variant]:
    """Every feasible split of the regime's devices, without borrowing."""
    splits = feasible_partitions(setup.devices, setup.rollout_replica_size, setup.train_replica_size)
    return [
        Variant(arm="no_borrow", streaming=streaming, partition=split)
        for split in splits
        for streaming in (False, True)
    ]


def alone(name: str) -> Variant:
    """The published rules and one improvement; `streaming` is one of them."""
    if name == "streaming":
        return Variant(arm="bidirectional", streaming=True, improvements=PAPER.with_("gate_before_pull"))
    hint = LENGTH_HINT if name == "longest_first" else None
    chosen = PAPER.with_("gate_before_pull").with_(name)
    return Variant(arm="bidirectional", streaming=False, improvements=chosen, length_hint=hint)


def left_out(name: str) -> Variant:
    """Every improvement but one."""
    if name == "streaming":
        return Variant(arm="bidirectional", streaming=False)
    hint = LENGTH_HINT if name == "longest_first" else None
    return Variant(arm="bidirectional", streaming=True, improvements=DEFAULT.without(name), length_hint=hint)


def against(name: str) -> Variant:
    """What `left_out(name)` is compared with: the same with the change on."""
    hint = LENGTH_HINT if name == "longest_first" else None
    improvements = DEFAULT if name == "streaming" else DEFAULT.with_(name)
    return Variant(arm="bidirectional", streaming=True, improvements=improvements, length_hint=hint)


SUMMARY_HEAD = (
    "| regimes | over base | over best static | over opportunistic | over opportunistic, streaming "
    "| over bidirectional_paper | of zero-cost | lowest over base |"
)
PARTS_HEAD = (
    "| improvement | alone, over bidirectional_paper: mean | lowest | highest "
    "| left out, of bidirectional: mean | lowest | highest |"
)

PARTS = ("streaming", *IMPROVEMENTS)

Task = tuple[str, Variant, int]
Results = dict[tuple[str, Variant], float]


def throughput_of(task: Task) -> float:
    """Tokens per second of one run."""
    name, variant, seed = task
    trace = Simulator(variant.of(regimes.setup_of(name, seed=seed))).run()
    assert trace.throughput is not None, f"regime {name} has too few steps for its staleness"
    return trace.throughput


def run_all(wanted: Iterable[tuple[str, Variant]], seeds: int, processes: int) -> Results:
    """Mean throughput of each regime and variant."""
    pairs = list(dict.fromkeys(wanted))
    tasks: list[Task] = [(name, variant, seed) for name, variant in pairs for seed in range(seeds)]
    with multiprocessing.get_context("spawn").Pool(processes) as pool:
        figures = pool.map(throughput_of, tasks, chunksize=8)
    return {pair: math.fsum(figures[i * seeds : (i + 1) * seeds]) / seeds for i, pair in enumerate(pairs)}


def geometric_mean(values: Sequence[float]) -> float:
    """Of numbers above 0."""
    return math.exp(math.fsum(map(math.log, values)) / len(values))


class Study:
    """All runs of some regimes, and the tables made of them."""

    def __init__(self, names: Sequence[str], seeds: int, processes: int) -> None:
        self.names = list(names)
        self.seeds = seeds
        self._static = {name: static_variants(regimes.setup_of(name)) for name in self.names}
        variants = [*BASES.values(), *ARMS.values(), *FREE]
        for part in PARTS:
            variants += [alone(part), left_out(part), against(part)]
        self.results = run_all(
            ((name, variant) for name in self.names for variant in [*variants, *self._static[name]]), seeds, processes
        )

    def base(self, name: str) -> float:
        """Tokens per second of the better `no_borrow`."""
        return max(self.results[name, variant] for variant in BASES.values())

    def relative(self, name: str, variant: Variant) -> float:
        """Throughput of a variant relative to the base."""
        return self.results[name, variant] / self.base(name)

    def best_static(self, name: str) -> tuple[float, str]:
        """The best split without borrowing, and which."""
        best = max(self._static[name], key=lambda variant: self.results[name, variant])
        assert best.partition is not None
        return self.relative(name, best), f"{best.partition[0]}:{best.partition[1]}"

    def zero_cost(self, name: str) -> float:
        """The best schedule found with free switches."""
        return max(self.relative(name, variant) for variant in (*FREE, *ARMS.values(), *BASES.values()))

    def fluid(self, name: str) -> float:
        """All devices always busy, over the whole run."""
        setups = [regimes.setup_of(name, seed=seed) for seed in range(self.seeds)]
        return math.fsum(map(fluid_throughput, setups)) / self.seeds / self.base(name)

    def row(self, name: str) -> dict[str, float]:
        """A regime's figures."""
        figures = {label: self.relative(name, variant) for label, variant in (BASES | ARMS).items()}
        return figures | {
            "best static": self.best_static(name)[0],
            "zero-cost": self.zero_cost(name),
            "fluid": self.fluid(name),
        }

    # -- tables -------------------------------------------------------------------------------------------------------

    def arms_table(self) -> str:
        """Arms by regime."""
        columns = (*BASES, "best static", *ARMS, "zero-cost", "fluid")
        lines = [
            "| regime | " + " | ".join(columns) + " | reference: bidirectional |",
            "| --- |" + " ---: |" * (len(columns) + 1),
        ]
        for name in self.names:
            row, split = self.row(name), self.best_static(name)[1]
            cells = [f"{row[c]:.3f} ({split})" if c == "best static" else f"{row[c]:.3f}" for c in columns]
            known = regimes.reference(name)
            lines.append(f"| {name} | " + " | ".join(cells) + f" | {known['bidirectional'] if known else ''} |")
        return "\n".join(lines)

    def groups(self) -> dict[str, list[str]]:
        """Regimes by where they come from, as far as they were run."""
        groups = {
            "A to N": [name for name in self.names if name in PUBLISHED],
            "O1 to O4": [name for name in self.names if name.startswith("O")],
            "P1 to P6, our own": [name for name in self.names if name.startswith("P")],
        }
        return {label: names for label, names in groups.items() if names}

    def summary_table(self) -> str:
        """Geometric means of `bidirectional` against the others."""
        lines = [
            SUMMARY_HEAD,
            "| --- |" + " ---: |" * 7,
        ]
        for label, names in self.groups().items():
            rows = [self.row(name) for name in names]
            ours = [row["bidirectional"] for row in rows]
            cells = [geometric_mean(ours)]
            for other in (
                "best static",
                "opportunistic",
                "opportunistic streaming",
                "bidirectional_paper",
                "zero-cost",
            ):
                cells.append(geometric_mean([mine / row[other] for mine, row in zip(ours, rows, strict=True)]))
            lowest = min(range(len(ours)), key=ours.__getitem__)
            lines.append(
                f"| {label} | "
                + " | ".join(f"{cell:.3f}" for cell in cells)
                + f" | {ours[lowest]:.3f} ({names[lowest]}) |"
            )
        return "\n".join(lines)

    def parts_table(self) -> str:
        """Each improvement alone and left out, over all regimes."""
        lines = [
            PARTS_HEAD,
            "| --- |" + " ---: |" * 6,
        ]
        paper = ARMS["bidirectional_paper"]
        for part in PARTS:
            gained = {n: self.results[n, alone(part)] / self.results[n, paper] for n in self.names}
            kept = {n: self.results[n, left_out(part)] / self.results[n, against(part)] for n in self.names}
            cells = []
            for ratios in (gained, kept):
                low, high = min(ratios, key=ratios.__getitem__), max(ratios, key=ratios.__getitem__)
                cells += [
                    f"{geometric_mean(list(ratios.values())):.3f}",
                    f"{ratios[low]:.3f} ({low})",
                    f"{ratios[high]:.3f} ({high})",
                ]
            lines.append(f"| {part} | " + " | ".join(cells) + " |")
        return "\n".join(lines)


def put(text: str, name: str, table: str) -> str:
    """The report with one table replaced. Raises ValueError when its place is missing."""
    begin, end = f"<!-- {name}: begin -->", f"<!-- {name}: end -->"
    if begin not in text or end not in text:
        raise ValueError(f"{REPORT.name} has no place for the table {name!r}: it must hold {begin} and {end}")
    head, rest = text.split(begin, 1)
    return f"{head}{begin}\n{table}\n{end}{rest.split(end, 1)[1]}"


def _positive(text: str) -> int:
    """A whole number above 0, for the command line."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"must be a whole number of at least 1, got {text!r}")
    return int(text)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the study; returns the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m planner.simulator.study",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--regimes", default=",".join(regimes.names()), help="names, separated by commas")
    parser.add_argument("--seeds", type=_positive, default=SEEDS)
    parser.add_argument("--processes", type=_positive, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--print", action="store_true", help="print the tables and leave the report as it is")
    options = parser.parse_args(arguments)
    names = list(dict.fromkeys(name.strip() for name in options.regimes.split(",")))
    unknown = [name for name in names if name not in regimes.names()]
    if unknown:
        print(f"no regime {', '.join(map(repr, unknown))}; there are {', '.join(regimes.names())}", file=sys.stderr)
        return 2
    if not options.print and (names != regimes.names() or options.seeds != SEEDS):
        print(f"a part of the study is only printed: add --print; {REPORT.name} holds all of it", file=sys.stderr)
        return 2
    study = Study(names, options.seeds, options.processes)
    tables = {"summary": study.summary_table(), "arms": study.arms_table(), "parts": study.parts_table()}
    if options.print:
        print("\n\n".join(tables.values()))
        return 0
    text = REPORT.read_text(encoding="utf-8")
    for name, table in tables.items():
        text = put(text, name, table)
    REPORT.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
