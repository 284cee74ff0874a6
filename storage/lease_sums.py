"""What a run's leases came to, per direction, counted by SQLite: a page that refreshes never reads the rows.

Takes a connection and reads only; every direction is in every answer.
"""

from __future__ import annotations

import sqlite3

from storage import words
from storage.lease_records import LeaseOutcome, LeaseVerdict

_MEDIANS = """
    SELECT direction, avg(cost) FROM (
        SELECT direction, in_s + out_s AS cost,
            row_number() OVER (PARTITION BY direction ORDER BY in_s + out_s) AS place,
            count(*) OVER (PARTITION BY direction) AS total
        FROM leases WHERE run_id = ? AND in_s + out_s IS NOT NULL
    ) WHERE place IN ((total + 1) / 2, (total + 2) / 2) GROUP BY direction
"""
"""The middle one of an odd number of costs, the mean of the middle two of an even number."""

_GAINS = """
    SELECT direction, count(*), count(*) FILTER (WHERE measured_gain_s > 0),
        count(*) FILTER (WHERE measured_gain_s < 0), sum(measured_gain_s),
        sum(coalesce(regret_s, max(0.0, -measured_gain_s)))
    FROM leases WHERE run_id = ? AND measured_gain_s IS NOT NULL GROUP BY direction
"""

_VERDICTS = (
    "SELECT lease, direction, granted_at, gain_s, cost_s, measured_gain_s,"
    " coalesce(regret_s, max(0.0, -measured_gain_s)), foretold_gain_s FROM leases"
    " WHERE run_id = ? AND measured_gain_s IS NOT NULL ORDER BY granted_at, lease"
)

_LEASES = (
    "SELECT direction, count(*), count(*) FILTER (WHERE groups > 0) FROM leases WHERE run_id = ? GROUP BY direction"
)

_REFUSALS = "SELECT direction, count(*) FROM decisions WHERE run_id = ? AND action = 'refuse' GROUP BY direction"


def lease_counts(connection: sqlite3.Connection, run_id: str) -> dict[str, dict[str, int]]:
    """Direction -> admitted (leases), refused (decisions) and delivered (leases that brought anything)."""
    counts = {direction: {"admitted": 0, "refused": 0, "delivered": 0} for direction in words.DIRECTIONS}
    for direction, admitted, delivered in connection.execute(_LEASES, [run_id]):
        counts[direction] |= {"admitted": admitted, "delivered": delivered}
    for direction, refused in connection.execute(_REFUSALS, [run_id]):
        counts[direction]["refused"] = refused
    return counts


def lease_outcomes(connection: sqlite3.Connection, run_id: str) -> dict[str, LeaseOutcome]:
    """Direction -> median cost, and how many leases won or lost time."""
    medians = dict(connection.execute(_MEDIANS, [run_id]).fetchall())
    gains = {direction: numbers for direction, *numbers in connection.execute(_GAINS, [run_id])}
    outcomes = {}
    for direction in words.DIRECTIONS:
        judged, paid_off, lost, gain_s, regret_s = gains.get(direction, (0, 0, 0, None, None))
        outcomes[direction] = LeaseOutcome(
            in_out_median_s=medians.get(direction),
            judged=judged,
            paid_off=paid_off,
            lost=lost,
            gain_s=gain_s,
            regret_s=regret_s,
        )
    return outcomes


def lease_verdicts(connection: sqlite3.Connection, run_id: str) -> list[LeaseVerdict]:
    """Every measured lease in the order of grants; only what charts need, since a long run has tens of thousands."""
    # written out: tens of thousands are made at once, and a page waits for them
    return [
        LeaseVerdict(
            lease=lease,
            direction=direction,
            granted_at=at,
            gain_s=gain_s,
            cost_s=cost_s,
            measured_gain_s=measured_s,
            regret_s=regret_s,
            foretold_gain_s=foretold_s,
        )
        for lease, direction, at, gain_s, cost_s, measured_s, regret_s, foretold_s in connection.execute(
            _VERDICTS, [run_id]
        )
    ]
