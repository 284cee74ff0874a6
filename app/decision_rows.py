"""Rows of the Decisions table and the line above it. Pure: records in, words out; a figure not known is a dash.

A lease's outcome stands once: beside its grant, or beside its end when the grant is no longer among the rows.
"""

from __future__ import annotations

from dataclasses import dataclass

from app.clock import DASH, PageClock, duration
from app.lending import DIRECTION_WORDS, Lending, delivered, device_list, measured_cost_s
from app.markup import literal
from app.modelled import REAL, Pace
from app.status import symbol
from storage.records import DecisionRow, LeaseRow
from storage.words import DIRECTIONS

ACTION_WORDS = {"lend": "lent", "refuse": "refused", "end": "ended", "revoke": "revoked"}


@dataclass(frozen=True, slots=True, kw_only=True)
class DecisionLine:
    """One row, ready to be drawn."""

    action: str
    """One of `words.DECISIONS`."""
    time: str
    """hh:mm:ss."""
    step: str
    """Step that was being filled."""
    what: str
    """ "lent", with the number of the lease."""
    direction: str
    """What the devices would do."""
    devices: str
    """Which ones, or the block of a refusal."""
    gain: str
    """Predicted, seconds."""
    cost: str
    """Predicted, seconds."""
    state: str = ""
    """Of the lease; empty where no outcome is shown."""
    delivered: str = ""
    """Groups or chunks, and tokens."""
    measured_cost: str = ""
    """C_in + C_out + C_grad, seconds."""
    cost_parts: str = ""
    """Its parts."""
    measured_gain: str = ""
    """Seconds won, costs deducted."""
    lost_time: bool = False
    """Whether the measured gain is negative."""
    regret: str = ""
    """Seconds."""
    reason: str
    """As given."""


def decision_lines(lending: Lending, clock: PageClock) -> list[DecisionLine]:
    """Newest first."""
    granted = {d.lease for d in lending.decisions if d.action == "lend"}
    shown: set[int] = set()
    lines = []
    for decision in lending.decisions:
        lease = lending.leases.get(decision.lease) if decision.lease is not None else None
        with_outcome = lease is not None and (
            decision.action == "lend" or (lease.lease not in granted and lease.lease not in shown)
        )
        if lease is not None and with_outcome:
            shown.add(lease.lease)
        lines.append(_line(decision, lease, with_outcome, clock))
    return lines


def _line(decision: DecisionRow, lease: LeaseRow | None, with_outcome: bool, clock: PageClock) -> DecisionLine:
    number = "" if decision.lease is None else f" · {decision.lease}"
    devices = DASH if decision.block is None else f"block {decision.block}"
    outcome: dict[str, object] = {}
    if lease is not None:
        devices = device_list(lease.devices) or devices
        if with_outcome:
            outcome = _outcome(lease)
    return DecisionLine(
        action=decision.action,
        time=clock.time(decision.at),
        step=str(decision.step),
        what=ACTION_WORDS[decision.action] + number,
        direction=DIRECTION_WORDS[decision.direction],
        devices=devices,
        gain=seconds(decision.gain_s),
        cost=seconds(decision.cost_s),
        reason=decision.reason,
        **outcome,  # type: ignore[arg-type]
    )


def _outcome(lease: LeaseRow) -> dict[str, object]:
    ended = f", {lease.ended_by.replace('_', ' ')}" if lease.ended_by not in (None, "policy") else ""
    parts = (("in", lease.in_s), ("out", lease.out_s), ("gradient", lease.grad_s))
    return {
        "state": lease.state + ended,
        "delivered": delivered(lease),
        "measured_cost": seconds(measured_cost_s(lease)),
        "cost_parts": " + ".join(f"{name} {seconds(part)} s" for name, part in parts if part is not None),
        "measured_gain": seconds(lease.measured_gain_s),
        "lost_time": lease.measured_gain_s is not None and lease.measured_gain_s < 0,
        "regret": seconds(lease.regret_s),
    }


def seconds(value: float | None) -> str:
    """Seconds to three figures or so, without the unit, which the column's head says."""
    if value is None:
        return DASH
    size = abs(value)
    text = f"{value:.2f}" if size < 10 else f"{value:.1f}" if size < 100 else f"{value:,.0f}"
    return text.replace("-", "−")


def summaries(lending: Lending, guards: dict[str, str], pace: Pace = REAL) -> list[str]:
    """Markdown, a line for each direction that has anything to tell. pace: of the run, whose costs are modelled."""
    lines = []
    for direction in DIRECTIONS:
        counts, outcome, guard = lending.counts[direction], lending.outcomes[direction], guards.get(direction)
        if not any(counts.values()) and guard is None:
            continue
        facts = [f"**{DIRECTION_WORDS[direction]}**", *(f"{n:,} {name}" for name, n in counts.items())]
        if outcome.in_out_median_s is not None:
            facts.append(f"median C_in + C_out {duration(outcome.in_out_median_s)}{pace.unit}".replace("_", "\\_"))
        if outcome.judged:
            share = outcome.paid_off / outcome.judged
            facts.append(f"{outcome.paid_off:,} of {outcome.judged:,} measured paid off ({share:.0%})")
        if guard is not None:
            facts.append(f":orange[{symbol('shield')} {literal(guard)}]")
        lines.append(" · ".join(facts))
    return lines


def nothing_decided(arm: str, *, lends: bool, live: bool) -> str:
    """Why the table is empty, one sentence or two. lends: whether the arm may lend."""
    if not lends:
        return f"Arm {literal(arm)} lends nothing: every device keeps to its own work."
    if not live:
        return "Nothing was decided in this run."
    return "Nothing decided yet. Rows appear when devices of one pool wait while the other pool has work for them."
