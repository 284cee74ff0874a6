"""The numbers above the decisions: what lending came to in each direction. Pure; a figure not known is a dash."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from app.clock import DASH, count, duration
from app.decision_rows import seconds
from app.figures.decisions import gain_so_far, regret_so_far, share_paid_off
from app.glossary import plain_of
from app.governing import ONE_WAY
from app.key_figures import SPARK_POINTS, Number
from app.modelled import EMULATED, Pace
from engine.config import BORROWING_ARMS
from storage.records import LeaseOutcome, LeaseVerdict
from storage.words import DIRECTIONS


def directions(arm: str, counts: Mapping[str, Mapping[str, int]], guards: Mapping[str, str]) -> list[str]:
    """Directions that have something to tell, or in which the arm may lend."""
    lends = arm in BORROWING_ARMS
    return [
        d for d in DIRECTIONS if any(counts[d].values()) or d in guards or (lends and (arm not in ONE_WAY or arm == d))
    ]


def direction_numbers(
    direction: str,
    *,
    counts: Mapping[str, int],
    outcome: LeaseOutcome,
    verdicts: Sequence[LeaseVerdict],
    pace: Pace,
) -> list[Number]:
    """Five cards. counts, outcome, verdicts: of the whole run, modelled already."""
    judged = outcome.judged
    share = outcome.paid_off / judged if judged else None
    gain, regret = outcome.gain_s, outcome.regret_s
    cost = outcome.in_out_median_s
    tag = EMULATED if pace.emulated else ""
    return [
        Number(
            key="leases",
            label="Leases",
            value=count(counts["admitted"]),
            note=f"{counts['refused']:,} refused · {counts['delivered']:,} delivered",
            help=plain_of("leases_granted"),
            exact=float(counts["admitted"]),
        ),
        Number(
            key="paid_off",
            label="Paid off",
            value=DASH if share is None else f"{share:.0%}",
            note=f"{outcome.paid_off:,} of {judged:,} measured" if judged else "none measured",
            help=plain_of("paid_off_share"),
            exact=share,
            spark=_spark(share_paid_off(verdicts, direction)),
            tag=tag,
        ),
        Number(
            key="cost",
            label="C_in + C_out",
            value=DASH if cost is None else duration(cost),
            note=f"median{pace.unit}",
            help=plain_of("switch_cost_median"),
            exact=cost,
            tag=tag,
        ),
        Number(
            key="gain",
            label="Measured gain",
            value=DASH if gain is None else f"{'+' if gain > 0 else ''}{seconds(gain)} s",
            note=f"costs deducted{pace.unit}",
            tone="off" if not gain else "good" if gain > 0 else "bad",
            help=plain_of("measured_gain_sum"),
            exact=gain,
            spark=_spark(gain_so_far(verdicts, direction)),
            tag=tag,
        ),
        Number(
            key="regret",
            label="Regret",
            value=DASH if regret is None else f"{seconds(regret)} s",
            note=f"{outcome.lost:,} lost time{pace.unit}" if judged else "",
            help=plain_of("regret_sum"),
            exact=regret,
            spark=_spark(regret_so_far(verdicts, direction)),
            tag=tag,
        ),
    ]


def _spark(points: Sequence[tuple[float, float]]) -> tuple[float, ...]:
    stride = -(-len(points) // SPARK_POINTS) or 1
    return tuple(value for _, value in points[::-1][::stride])[::-1]
