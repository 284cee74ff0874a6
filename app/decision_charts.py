"""The charts of the Decisions page with what stands around them: labels, notes, and their table twins. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from app.clock import PageClock
from app.figures.decisions import MAX_POINTS, drawn, over_time, predicted_and_measured, regret_so_far, share_paid_off
from app.lending import DIRECTION_WORDS
from app.live_chart import Chart, chart
from app.modelled import Pace
from storage.records import LeaseVerdict
from storage.words import DIRECTIONS

TABLE_ROWS = 200
"""Newest leases in the table beside a chart: who wants all of them exports the run."""


def predicted_chart(verdicts: Sequence[LeaseVerdict], as_of: float, pace: Pace, *, live: bool) -> Chart:
    """verdicts: of every measured lease, modelled already. as_of: when they were read, unix seconds."""
    shown = drawn(verdicts)
    over = sum(v.as_foretold_s >= (v.predicted_s or 0.0) for v in shown)
    cut = f"the newest {MAX_POINTS} of {len(verdicts):,} measured leases · " if len(shown) == MAX_POINTS else ""
    return chart(
        predicted_and_measured(verdicts, pace=pace),
        label=f"Predicted against measured gain of {len(shown)} {'emulated ' if pace.emulated else ''}leases, "
        f"{over} of them won at least what was predicted",
        as_of=as_of,
        frozen="" if live else "whole run",
        note=f"{cut}above the dashed line a lease won more than was predicted by the work that was foretold "
        "· click a mark to open its decision",
        clicks=True,
        table={
            "columns": [
                *("lease", "direction", f"predicted, s{pace.unit}", f"measured as foretold, s{pace.unit}"),
                f"measured in all, s{pace.unit}",
            ],
            "rows": [
                [v.lease, DIRECTION_WORDS[v.direction], v.predicted_s, v.as_foretold_s, v.measured_gain_s]
                for v in reversed(shown[-TABLE_ROWS:])
            ],
        },
    )


def over_time_chart(
    verdicts: Sequence[LeaseVerdict], as_of: float, clock: PageClock, pace: Pace, *, live: bool
) -> Chart:
    """As `predicted_chart`."""
    told, rows = [], []
    for direction in DIRECTIONS:
        regret, share = regret_so_far(verdicts, direction), share_paid_off(verdicts, direction)
        if regret:
            told.append(f"{DIRECTION_WORDS[direction]}: regret {regret[-1][1]:.2f} s, {share[-1][1]:.0%} paid off last")
            rows += [
                (at, DIRECTION_WORDS[direction], lost, f"{paid:.0%}")
                for (at, lost), (_, paid) in list(zip(regret, share, strict=True))[-TABLE_ROWS:]
            ]
    rows.sort(key=lambda row: -row[0])
    return chart(
        over_time(verdicts, clock=clock, pace=pace),
        label=f"Regret and share that paid off over the {'emulated ' if pace.emulated else ''}run. " + "; ".join(told),
        as_of=as_of,
        frozen="" if live else "whole run",
        note=pace.wall_time,
        table={
            "columns": ["granted", "direction", f"regret so far, s{pace.unit}", "paid off of the last"],
            "rows": [[clock.time(at), *rest] for at, *rest in rows[:TABLE_ROWS]],
        },
    )
