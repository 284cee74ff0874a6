"""Test data only: turns some of a run's idle spans into auxiliary work, with the leases and decisions behind it."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from storage.records import DecisionRow, LeaseRow, Span

LEND = "12 groups are missing for step {step}: lending block {block} wins {gain:.2f} s and costs {cost:.2f} s."
REFUSE = "Lending block {block} would win {gain:.2f} s and cost {cost:.2f} s, so it stays at home."


def make_lease(**overrides: Any) -> LeaseRow:
    """A lease that is over and paid off."""
    values: dict[str, Any] = {
        "run_id": "demo-0001",
        "lease": 1,
        "direction": "rollout_on_train",
        "block": 1,
        "devices": [1],
        "state": "released",
        "reason": "12 groups are missing.",
        "gain_s": 1.0,
        "cost_s": 0.4,
        "granted_at": 0.0,
        "released_at": 1.0,
        "ended_by": "policy",
        "groups": 3.5,
        "tokens": 4200,
        "in_s": 0.25,
        "out_s": 0.125,
        "measured_gain_s": 0.5,
        "regret_s": 0.0,
    }
    return LeaseRow(**{**values, **overrides})


def make_decision(**overrides: Any) -> DecisionRow:
    """A refusal."""
    values: dict[str, Any] = {
        "run_id": "demo-0001",
        "id": 1,
        "at": 0.0,
        "step": 7,
        "action": "refuse",
        "direction": "rollout_on_train",
        "block": 1,
        "gain_s": 0.25,
        "cost_s": 0.4,
        "reason": "It would cost more than it wins.",
    }
    return DecisionRow(**{**values, **overrides})


def lend(spans: Sequence[Span], rng: random.Random) -> tuple[list[Span], list[LeaseRow]]:
    """Half of the idle spans of the last minutes become switch in, auxiliary work and switch out."""
    result: list[Span] = []
    leases: list[LeaseRow] = []
    for span in spans:
        if span.kind != "idle" or rng.random() < 0.5:
            result.append(span)
            continue
        trains = span.cause == "staleness_cap"
        edges = [span.t0 + part * (span.t1 - span.t0) for part in (0.0, 0.15, 0.9, 1.0)]
        kinds = ("switch_in", "train" if trains else "rollout", "switch_out")
        result += [
            replace(span, t0=t0, t1=t1, kind=kind, role="auxiliary", cause=None, cpu_s=t1 - t0)
            for t0, t1, kind in zip(edges[:-1], edges[1:], kinds, strict=True)
        ]
        cost = edges[1] - edges[0] + edges[3] - edges[2]
        gain = rng.uniform(-0.3, 0.9)
        leases.append(
            make_lease(
                run_id=span.run_id,
                direction="train_on_rollout" if trains else "rollout_on_train",
                block=span.device,
                devices=[span.device],
                reason=LEND.format(step=span.step, block=span.device, gain=cost + 0.6, cost=cost),
                gain_s=cost + 0.6,
                cost_s=cost,
                granted_at=edges[0],
                ready_at=edges[1],
                working_at=edges[1],
                ended_at=edges[2],
                released_at=edges[3],
                ended_by="revoked" if rng.random() < 0.2 else "policy",
                groups=float(rng.randint(1, 4)),
                chunks=rng.randint(1, 3) if trains else 0,
                tokens=rng.randint(200, 20_000),
                in_s=edges[1] - edges[0],
                out_s=edges[3] - edges[2],
                grad_s=0.04 if trains else None,
                measured_gain_s=gain,
                regret_s=max(0.0, -gain),
            )
        )
    return result, leases


def numbered(leases: Sequence[LeaseRow]) -> list[LeaseRow]:
    """In the order of their grants."""
    ordered = sorted(leases, key=lambda lease: lease.granted_at)
    return [replace(lease, lease=number) for number, lease in enumerate(ordered, start=1)]


def decisions_about(leases: Sequence[LeaseRow]) -> list[DecisionRow]:
    """A grant and an end for each lease, and a refusal after each."""
    rows: list[DecisionRow] = []
    for lease in leases:
        common: dict[str, Any] = {
            "run_id": lease.run_id,
            "direction": lease.direction,
            "block": lease.block,
            "step": lease.lease,
        }
        told = {"lease": lease.lease, "gain_s": lease.gain_s, "cost_s": lease.cost_s, "reason": lease.reason}
        rows.append(make_decision(**common, **told, action="lend", at=lease.granted_at))
        ended = {"lease": lease.lease, "gain_s": None, "cost_s": None, "reason": "The home role needs its device."}
        rows.append(make_decision(**common, **ended, action="end", at=lease.ended_at or lease.granted_at))
        refused = {"gain_s": 0.2, "cost_s": 0.41, "reason": REFUSE.format(block=lease.block, gain=0.2, cost=0.41)}
        rows.append(make_decision(**common, **refused, at=lease.released_at or lease.granted_at))
    rows.sort(key=lambda row: row.at)
    return [replace(row, id=number) for number, row in enumerate(rows, start=1)]
