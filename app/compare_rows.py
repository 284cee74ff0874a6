"""What a comparison shows, as names, rows and lines: from the compared runs to the tables and figures. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from app.compare_read import Compared, Line
from app.figures.compare import Bar, Dot, Drawn, short
from app.figures.learning import smooth
from app.modelled import EMULATED, is_emulated
from app.palette import CAUSE_LABELS
from app.price import Price
from app.runs_table import Listed
from engine.config.differences import differing
from planner import side_by_side
from storage.words import IDLE_CAUSES

NAME_CHARS = 22
"""Of a run beside a bar, so that the label of an emulated one has room after it."""

TABLE_POINTS = 300
"""Rows of a line's table twin, all runs together."""

UNITS = ("share", "device-hours", "money")
"""In which lost time is told; money where a price is set."""


def names(runs: Sequence[Compared]) -> list[str]:
    """What each run is called in the figures: its part where all are of one bench comparison, else its id."""
    labels = [
        f"{r.run.comparison_label} #{r.run.comparison_repeat} s={r.run.staleness or 0:g}"
        + (f" · {EMULATED}" if r.pace.emulated else "")
        for r in runs
    ]
    same = len({r.run.comparison for r in runs}) == 1 and runs and runs[0].run.comparison is not None
    if same and len(set(labels)) == len(runs):
        return labels
    return [named(r.run_id, emulated=r.pace.emulated) for r in runs]


def named(run_id: str, *, emulated: bool) -> str:
    """An id that fits beside a bar, with the label of emulated devices."""
    return f"{short(run_id, NAME_CHARS)} · {EMULATED}" if emulated else short(run_id, NAME_CHARS + 8)


def settings_table(runs: Sequence[Compared]) -> list[dict[str, str]]:
    """A row for each setting in which they differ."""
    ids = [r.run_id for r in runs]
    return [
        {"setting": found.key, **dict(zip(ids, found.told, strict=True))}
        for found in differing([r.settings for r in runs])
    ]


def figures_table(runs: Sequence[Compared]) -> list[dict[str, str]]:
    """A row for each key figure, with the difference to the baseline, which is the first run."""
    ids = [r.run_id for r in runs]
    found = []
    for row in side_by_side.rows([r.result for r in runs]):
        cells = [
            told(row.figure, value, None if number == 0 else ratio)
            for number, (value, ratio) in enumerate(zip(row.values, row.ratios, strict=True))
        ]
        found.append({"figure": row.figure.label, **dict(zip(ids, cells, strict=True))})
    return found


def told(figure: side_by_side.Figure, value: float | None, ratio: float | None) -> str:
    """ "9,150 (+12.3 %, better)"."""
    if value is None:
        return "–"
    shown = format(value, figure.spec)
    if ratio is None:
        return shown
    percent = (ratio - 1) * 100
    if abs(percent) < 0.05:
        return f"{shown} (same)"
    word = "" if not figure.better else ", better" if percent * figure.better > 0 else ", worse"
    return f"{shown} ({percent:+.1f} %{word})"


def scaled(axis: str, most: float) -> tuple[str, float]:
    """Title of an axis and what its values are divided by, for the largest of them."""
    if axis == "wall_s":
        for limit, unit, divisor in ((600.0, "s", 1.0), (7200.0, "min", 60.0)):
            if most < limit:
                return f"time since the first possible rollout, {unit}", divisor
        return "time since the first possible rollout, h", 3600.0
    return {"step": ("step", 1.0), "tokens": ("tokens", 1.0), "device_s": ("device-hours", 3600.0)}[axis]


def drawn(runs: Sequence[Compared], what: str, axis: str) -> tuple[list[Drawn], str]:
    """Lines of `what` (reward or idle) over an axis, and the axis's title. A run without any keeps its place, and with
    it its colour."""
    found: list[Line] = [getattr(r, what) for r in runs]
    most = max((x for line in found for x in line.over(axis)[-1:]), default=0.0)
    title, divisor = scaled(axis, most)
    modelled = [r.pace.emulated for r in runs]
    if axis in ("wall_s", "device_s") and any(modelled):
        title += ", modelled" if all(modelled) else ", modelled where EMULATED"
    values = [smooth(line.values) if what == "reward" else list(line.values) for line in found]
    return [
        Drawn(name=name, x=[x / divisor for x in line.over(axis)], y=y)
        for name, line, y in zip(names(runs), found, values, strict=True)
    ], title


def lines_table(lines: Sequence[Drawn], title: str, what: str) -> dict[str, list[Any]]:
    """The same as rows, every n-th point."""
    points = sum(len(line.x) for line in lines)
    stride = -(-points // TABLE_POINTS) or 1
    rows = [
        [line.name, x, y] for line in lines for x, y in list(zip(line.x, line.y, strict=True))[::-1][::stride][::-1]
    ]
    return {"columns": ["run", title, what], "rows": rows}


def loss_bars(runs: Sequence[tuple[str, Any, float | None]], unit: str, price: Price | None) -> list[Bar]:
    """Name, figures and (modelled) device-seconds of each run -> its lost time by cause, in a unit of `UNITS`; a run
    whose device time is not known has no bar but in share."""
    bars = []
    for name, figures, device_s in runs:
        factor = factor_of(unit, device_s, price)
        parts = {} if factor is None else {cause: share * factor for cause, share in figures.by_cause.items()}
        bars.append(Bar(name=name, parts=parts))
    return bars


def factor_of(unit: str, device_s: float | None, price: Price | None) -> float | None:
    """What a share is multiplied by; None where the amount is not known."""
    if unit == "share":
        return 1.0
    hours = None if device_s is None else device_s / 3600
    if unit == "device-hours" or hours is None:
        return hours
    return None if price is None else hours * price.amount


def unit_format(unit: str, most: float, price: Price | None) -> dict[str, str]:
    """How an axis of this unit is written, as arguments of `figures.compare.lost_by_cause`."""
    if unit == "share":
        return {"x_format": ".1%", "x_title": "share of the run's device time"}
    if unit == "money" and price is not None:
        return {"x_format": ",.2f" if most < 100 else ",.0f", "x_title": "lost", "x_prefix": f"{price.currency} "}
    return {"x_format": ".3~r" if most < 1 else ",.2f", "x_title": "lost device-hours"}


def loss_table(bars: Sequence[Bar], unit: str) -> dict[str, list[Any]]:
    """The bars as rows."""
    rows = []
    for bar in bars:
        values = [bar.parts.get(cause, 0.0) if bar.parts else None for cause in IDLE_CAUSES]
        amounts = [sum(bar.parts.values()) if bar.parts else None, *values]
        rows.append([bar.name, *(percent(amount) if unit == "share" else amount for amount in amounts)])
    return {"columns": ["run", "all", *(CAUSE_LABELS[cause] for cause in IDLE_CAUSES)], "rows": rows}


def percent(share: float | None) -> str | None:
    """A share as text."""
    return None if share is None else f"{share:.2%}"


def bubble_bars(runs: Sequence[Compared]) -> list[Bar]:
    """Structural and residual bubbles of the runs that have them, in share of device time."""
    found = []
    for name, run in zip(names(runs), runs, strict=True):
        structural, residual = run.figures.structural, run.figures.residual
        if structural is not None and residual is not None:
            found.append(Bar(name=name, parts={"structural": structural, "residual": residual}))
    return found


def dots(runs: Sequence[Listed], called: Mapping[str, str]) -> list[Dot]:
    """Runs of which both the staleness and the idle share are known. called: run id -> name, where it is not the id."""
    found = []
    for each in runs:
        run, figures = each.run, each.figures
        if run.staleness is not None and figures is not None and figures.idle is not None:
            name = called.get(run.run_id) or named(run.run_id, emulated=is_emulated(run))
            found.append(Dot(name=name, staleness=run.staleness, idle=figures.idle, arm=run.arm))
    return found
