"""Tables of what ran on EMULATED devices: arms by split and staleness, published figures, simulator, planner. Pure."""

from __future__ import annotations

from tests.report import figures
from tests.report.figures import BASELINES, OURS, Cell, cells, geometric_mean
from tests.report.markdown import number, share, table
from tests.report.trimming import Document

JOB, LARGER = "emulated_16", "emulated_32"
PAPER = "bidirectional_paper"

PUBLISHED_SPLIT = "4:12"
PUBLISHED = {
    0.0: (1.51, 1.10),
    0.5: (1.47, 1.12),
    1.0: (1.30, 1.10),
    2.0: (1.17, 1.12),
    4.0: (1.11, 1.11),
}
"""Staleness -> the paper's arm over no_borrow and over opportunistic, on 16 GPUs as 4+12, B=60 (design section 11)."""


def arms(section: Document) -> str:
    """Per split: throughput of every arm over the better no_borrow of the same staleness, and that one's tokens/s."""
    found = cells(section, job=JOB)
    splits = dict.fromkeys(cell.split for cell in found)
    return "\n\n".join(_split(split, [cell for cell in found if cell.split == split]) for split in splits)


def _split(split: str, found: list[Cell]) -> str:
    labels = dict.fromkeys(label for cell in found for label in cell.labels)
    rows = [[label, *(number(_over_baseline(cell, label)) for cell in found)] for label in labels]
    rows.append(["*tokens/s of the better no_borrow*", *(_baseline_speed(cell) for cell in found)])
    rows.append([f"*idle of {OURS}*", *(_idle(cell) for cell in found)])
    names = [f"EMULATED, {split}", *(f"s={cell.staleness:g}" for cell in found)]
    return table(names, rows)


def _over_baseline(cell: Cell, label: str) -> float | None:
    return cell.ratio(label, cell.baseline)


def _baseline_speed(cell: Cell) -> str:
    if cell.baseline is None:
        return "-"
    way = " (stream)" if cell.baseline == BASELINES[1] else ""
    return f"{number(cell.speed(cell.baseline), ',.0f')}{way}"


def _idle(cell: Cell) -> str:
    return share(cell.figures["ratios"][OURS]["idle_fraction"]) if OURS in cell.labels else "-"


def summary(section: Document) -> str:
    """Over all cells of the job: the lowest, and geometric means over the others that matter."""
    found = cells(section, job=JOB)
    over = {cell.name: _over_baseline(cell, OURS) for cell in found}
    known = {name: value for name, value in over.items() if value is not None}
    lowest = min(known, key=known.__getitem__, default=None)
    rows = [
        [f"{OURS} over the better no_borrow: lowest cell", f"{known[lowest]:.3f} ({lowest})" if lowest else "-"],
    ]
    others = {
        "the better no_borrow": lambda cell: cell.baseline,
        PAPER: lambda cell: PAPER,
        "opportunistic": lambda cell: "opportunistic",
    }
    for name, other in others.items():
        mean, count = geometric_mean(cell.ratio(OURS, other(cell)) for cell in found)
        rows.append([f"{OURS} over {name}: geometric mean of {count} cells", number(mean)])
    return table([f"EMULATED, {JOB}", "figure"], rows)


def published(section: Document) -> str:
    """The paper's figures beside those of its arm and of ours, over the same arms as there."""
    found = {cell.staleness: cell for cell in cells(section, job=JOB) if cell.split == PUBLISHED_SPLIT}
    rows = []
    for staleness, figures_of in PUBLISHED.items():
        cell = found.get(staleness)
        row = [f"{staleness:g}"]
        for other, figure in zip(("no_borrow", "opportunistic"), figures_of, strict=True):
            ours = cell.ratio(OURS, other) if cell else None
            paper = cell.ratio(PAPER, other) if cell else None
            difference = ours - figure if ours is not None else None
            row += [f"{figure:.2f}", number(paper, ".2f"), number(ours, ".2f"), number(difference, "+.2f")]
        rows.append(row)
    names = ["staleness"]
    for other in ("no_borrow, whole batch", "opportunistic"):
        names += [f"over {other}: published", f"EMULATED {PAPER}", f"EMULATED {OURS}", f"{OURS} less published"]
    return table(names, rows)


def larger(section: Document) -> str:
    """The job of 32 devices at staleness 1."""
    rows = [
        [
            label,
            number(cell.speed(label), ",.0f"),
            number(_over_baseline(cell, label)),
            share(cell.figures["ratios"][label]["idle_fraction"]),
        ]
        for cell in cells(section, job=LARGER)
        for label in cell.labels
    ]
    return table([f"EMULATED, {LARGER}, s=1", "tokens/s", "over better no_borrow", "idle"], rows) if rows else "-"


def simulated(section: Document) -> str:
    """Per arm: how far the simulator is from the emulated runs, in throughput and in the causes of idle time."""
    found = list(figures.distances(section))
    rows = []
    for label in dict.fromkeys(each.label for each in found):
        of_label = [each for each in found if each.label == label]
        speeds = [each.throughput for each in of_label if each.throughput is not None]
        points = [abs(each.idle_points) for each in of_label]
        worst = max(of_label, key=lambda each: abs(each.idle_points))
        rows.append(
            [
                label,
                str(len(of_label)),
                number(max(speeds, key=abs, default=None), "+.1%"),
                number(sum(map(abs, speeds)) / len(speeds) if speeds else None, ".1%"),
                f"{worst.idle_points:+.1f} ({worst.cause})",
                f"{sum(points) / len(points):.1f}",
            ]
        )
    names = [
        "simulated less EMULATED",
        "runs",
        "throughput: worst",
        "mean of sizes",
        "idle by cause, points: worst",
        "mean of sizes",
    ]
    return table(names, rows)


def planner(section: Document) -> str:
    """The split that the planner takes at staleness 1, and what each split reached."""
    found = figures.choices(section)
    splits = list(dict.fromkeys(split for choice in found for split in choice.speeds))
    rows = [
        [
            choice.arm,
            choice.chosen or "-",
            choice.best or "-",
            number(choice.ratio),
            *(number(choice.speeds.get(split), ",.0f") for split in splits),
        ]
        for choice in found
    ]
    return table(
        ["EMULATED, s=1", "planner's split", "best measured", "of its tokens/s", *splits],
        rows,
    )


def scale(section: Document) -> str:
    """How the engine kept up."""
    run, engine = section["run"], section["run"]["engine"] or {}
    rows = [
        ["devices", f"{section['devices']:,}"],
        ["run", f"{run['state']}, {run['steps']} steps"],
        ["throughput, tokens/s", number(run["throughput_tokens_per_s"], ",.0f")],
        ["idle", number(run["idle"]["fraction"], ".1%")],
        ["engine: longest pass, s", number(engine.get("longest_pass_s"))],
        ["engine: share of the cores' time", number(engine.get("cpu_fraction"), ".1%")],
        ["Ray: share of the cores' time", number(engine.get("ray_fraction"), ".1%")],
        ["spans dropped", number(section["engine"]["spans_dropped"], ",")],
        ["rows written", number(section["engine"]["rows_written"], ",")],
    ]
    return table(["EMULATED", "figure"], rows)
