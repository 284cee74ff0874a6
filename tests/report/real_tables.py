"""Tables of the comparisons on real cores: configurations, what theory allows, what each improvement is worth. Pure."""

from __future__ import annotations

from planner import comparison
from tests.report.checks import interval
from tests.report.figures import OURS, Cell, Ratio, cells
from tests.report.markdown import number, share, spread, table
from tests.report.trimming import Document

WITHOUT = f"{OURS}-"


def real(section: Document) -> str:
    """Per job and staleness a table with what could be won."""
    return "\n\n".join(_cell(cell) for cell in cells(section))


def improvements(section: Document) -> str:
    """Each configuration of ours over `bidirectional`, a job a column."""
    found = cells(section)
    labels = [label for label in (found[0].labels if found else []) if label.startswith(OURS) and label != OURS]
    rows = [
        [_named(label), *(_over_ours(cell, label) for cell in found), *(_leases(cell, label) for cell in found)]
        for label in labels
    ]
    ours = [
        OURS,
        *(f"{number(cell.speed(OURS), ',.0f')} tokens/s" for cell in found),
        *(_leases(cell, OURS) for cell in found),
    ]
    jobs = [cell.job for cell in found]
    return table(["configuration", *jobs, *(f"{job}: leases" for job in jobs)], [ours, *rows])


def _named(label: str) -> str:
    return f"without {label.removeprefix(WITHOUT)}" if label.startswith(WITHOUT) else label.removeprefix(f"{OURS}:")


def _over_ours(cell: Cell, label: str) -> str:
    """Paired within each repeat."""
    found = comparison.ratio(_series(cell, label), _series(cell, OURS))
    if found is None:
        return "-"
    return interval({"of": OURS, "mean": found.mean, "low": found.low, "high": found.high})


def _series(cell: Cell, label: str) -> comparison.Series:
    return {run["repeat"]: run["throughput_tokens_per_s"] for run in cell.runs_of(label)}


def _cell(cell: Cell) -> str:
    names = [
        "configuration",
        "tokens/s",
        "over better baseline",
        "over no_borrow",
        "over best other arm",
        "idle",
        "of work bound",
        "leases: admitted / unused / refused",
        "step, s",
    ]
    rows = [_row(cell, label) for label in cell.labels]
    return f"**{cell.job}, staleness {cell.staleness:g}**\n\n{table(names, rows)}\n\n{_theory(cell)}\n{_static(cell)}"


def _row(cell: Cell, label: str) -> list[str]:
    figures = cell.figures["ratios"][label]
    other = cell.over(label, "best_other_arm")
    return [
        label,
        spread(figures["throughput_tokens_per_s"], ",.0f"),
        _ratio(cell.over(label, "better_baseline"), label),
        _ratio(cell.over(label, "no_borrow"), label),
        "-" if other["mean"] is None else f"{interval(other)} ({other['of']})",
        share(figures["idle_fraction"]),
        share(figures["bound_ratio"]),
        _leases(cell, label),
        spread(figures["step_s"], ".2f"),
    ]


def _ratio(found: Ratio, label: str) -> str:
    return "1" if found["of"] == label and found["mean"] is not None else interval(found)


def _leases(cell: Cell, label: str) -> str:
    counts = [cell.leases(label, name) for name in ("admitted", "unused", "refused")]
    return " / ".join(f"{count:,.0f}" for count in counts if count is not None) if any(counts) else "-"


def _theory(cell: Cell) -> str:
    theory = cell.figures["theory"]
    if theory["ratio"] is None:
        return "Work ratio: not known."
    return (
        f"Work ratio x = {theory['ratio']:.2f}, {theory['larger']} the larger: lending can win at most 2x/(1+x) = "
        f"{theory['limit_at_1_1']:.3f} over a no_borrow whose busier pool never waits."
    )


def _static(cell: Cell) -> str:
    best = cell.figures["best_static"]
    if best["label"] is None:
        return "Best static split: not known."
    split = f"{best['partition']['rollout']}:{best['partition']['train']}" if best["partition"] else "-"
    speed = number(best["throughput_tokens_per_s"], ",.0f")
    return (
        f"Best static split: {split}, {best['label']}, {speed} tokens/s ({best['why']}); "
        f"{OURS} over it {interval(best['ratios'][OURS])}."
    )
