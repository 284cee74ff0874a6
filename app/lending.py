"""What a page shows about lending: read once a frame, and the words for it. Reads what is visible and counts in SQL.

A run may make thousands of decisions; a frame holds the newest few, the leases that they name, and the leases that
have a mark in the timeline's window.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from app.clock import count
from app.modelled import pace_of
from storage.reader import TelemetryReader
from storage.records import DecisionRow, LeaseOutcome, LeaseRow, RunRow

SHOWN_DECISIONS = 20
"""Rows of the table: about a screen, and the newest are the ones that are asked about."""

MAX_LEASE_MARKS = 200
"""Marks in the timeline: more cover the spans they stand on, and each costs the browser a hover text."""

SUMS_EVERY_S = 3.0
"""Seconds between two countings of the whole run: they grow with it (30 ms for 10,000 leases), what is new does not."""

DIRECTION_WORDS = {
    "rollout_on_train": "trainer's devices generate",
    "train_on_rollout": "rollouter's devices train",
}
"""Direction -> what lent devices do, for people."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Lending:
    """Decisions and leases of a run as far as one frame shows them; costs and gains of emulated devices modelled."""

    decisions: list[DecisionRow]
    """The newest ones, newest first."""
    leases: dict[int, LeaseRow]
    """Those that `decisions` name, by number."""
    marked: list[LeaseRow]
    """Granted or home again in the timeline's window, oldest first; at most one more than can be marked."""
    counts: dict[str, dict[str, int]]
    """Direction -> admitted, refused, delivered, over the whole run."""
    outcomes: dict[str, LeaseOutcome]
    """Direction -> what its leases cost and brought, over the whole run."""
    summed_at: float
    """When `counts` and `outcomes` were read, unix seconds."""


def read_lending(
    reader: TelemetryReader, run: RunRow, window: tuple[float, float], *, now: float, last: Lending | None
) -> Lending:
    """window: unix seconds that the timeline draws. `last`: of the same run, whose sums are kept while they are young;
    None to count again. Raises what the reader raises."""
    run_id, pace = run.run_id, pace_of(run)
    decisions = [pace.decision(decision) for decision in reader.decisions(run_id, limit=SHOWN_DECISIONS)]
    named = {d.lease for d in decisions if d.lease is not None}
    kept = last if last is not None and 0 <= now - last.summed_at < SUMS_EVERY_S else None
    outcomes = kept.outcomes if kept else {d: pace.outcome(o) for d, o in reader.lease_outcomes(run_id).items()}
    return Lending(
        decisions=decisions,
        leases={lease.lease: pace.lease(lease) for lease in reader.leases_numbered(run_id, named)},
        marked=[pace.lease(lease) for lease in reader.leases_in(run_id, *window, limit=MAX_LEASE_MARKS + 1)],
        counts=kept.counts if kept else reader.lease_counts(run_id),
        outcomes=outcomes,
        summed_at=kept.summed_at if kept else now,
    )


def delivered(lease: LeaseRow) -> str:
    """What a lease brought: "3.5 groups, 4,200 tokens", "2 chunks, 900 tokens", or that it is nothing."""
    if not (lease.groups or lease.chunks or lease.tokens):
        return "nothing" if lease.state == "released" else "nothing yet"
    if lease.direction == "train_on_rollout":
        units = f"{lease.chunks} chunk{'' if lease.chunks == 1 else 's'}"
    else:
        units = f"{lease.groups:.3g} group{'' if lease.groups == 1 else 's'}"
    return f"{units}, {count(lease.tokens)} tokens"


def measured_cost_s(lease: LeaseRow) -> float | None:
    """C_in + C_out + C_grad in seconds; None until the first two are known. Without a gradient there is no C_grad."""
    if lease.in_s is None or lease.out_s is None:
        return None
    return lease.in_s + lease.out_s + (lease.grad_s or 0.0)


def device_list(devices: Sequence[int]) -> str:
    """ "2", "0–3", "1, 4–5"."""
    runs: list[list[int]] = []
    for device in sorted(devices):
        if runs and device == runs[-1][1] + 1:
            runs[-1][1] = device
        else:
            runs.append([device, device])
    return ", ".join(str(a) if a == b else f"{a}–{b}" for a, b in runs)
