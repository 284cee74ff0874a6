"""A lease under way: what is measured of it, what it was worth, and its row."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from math import isfinite

from planner.policy.lease_gain import gain_by_use
from planner.policy.leases import Lease
from planner.policy.state import Estimates
from planner.profile import SwitchCosts
from storage.records import LeaseRow


@dataclass(slots=True)
class LiveLease:
    """A lease under way, and what is measured of it; times in unix seconds."""

    life: Lease
    device: int
    """First device of its block."""
    alone_s: float | None
    """Seconds after which, by the model, the step would have ended without it."""
    hidden: bool
    """Granted while the device was at the optimizer: until that is over the preparation costs nothing."""
    began_at: float | None = None
    """When the device took the command up."""
    ready_at: float | None = None
    working_at: float | None = None
    ended_at: float | None = None
    ended_by: str | None = None
    end_reason: str | None = None
    released_at: float | None = None
    step_closed_at: float | None = None
    spoiled: bool = False
    """A worker died while it was out or before its step closed: what that cost is not the lease's doing."""
    share: float = 1.0
    """Of the lease's work, that one of its replicas does."""
    partners: int = 1
    """Leases of the same decision, itself included: what it foretold is won by all of them together."""
    primaries: int = 1
    """Replicas of its role at home when it was granted."""
    groups: float = 0.0
    chunks: int = 0
    tokens: int = 0
    cpu_s: float = 0.0
    busy_s: float = 0.0
    grad_s: float | None = None
    gain_s: float | None = None
    """Measured, once it is over."""
    foretold_groups: float | None = None
    """Of its groups, those of the step that it was granted in, once that has closed."""
    foretold_gain_s: float | None = None
    """Measured, by the work that its prediction is about."""
    phases: dict[str, float] = field(default_factory=dict)

    @property
    def since(self) -> float:
        """From when its preparation costs time."""
        return self.began_at if self.hidden and self.began_at is not None else self.life.granted_at

    @property
    def in_s(self) -> float | None:
        """C_in: from the decision to the first useful work."""
        if self.working_at is None:
            return None
        return self.working_at - self.since

    @property
    def out_s(self) -> float | None:
        """C_out: from the decision to end it until the home role can work, the chunk under way not counted."""
        if self.released_at is None or self.ended_at is None:
            return None
        return self.released_at - self.ended_at - self.phases.get("out_chunk", 0.0)


def gain_of(lease: LiveLease, estimates: Estimates | None, *, error: float = 1.0) -> float | None:
    """Seconds won, the measured costs deducted.

    A lease for the end of a step is measured by it, once it has come: when the model saw it without the lease, with the
    `error` that its forecasts have (`Forecasts.error`), less when it came, shared by the leases of the decision.
    Any other by the use that was made of it.
    """
    return _gain_of(lease, lease.groups, lease.share, estimates, error)


def foretold_gain_of(lease: LiveLease, estimates: Estimates | None, *, error: float = 1.0) -> float | None:
    """The same by the work that was foretold when it was granted, and in the seconds in which it was.

    A trainer's gate is about the units of that step, which the primaries together would have trained, and the lease is
    kept beyond it while it pays; a rollouter's is about all that it does, in its own time.
    """
    if lease.life.direction != "train_on_rollout":
        return _gain_of(lease, lease.groups, lease.share, estimates, error)
    groups = lease.groups if lease.foretold_groups is None else min(lease.groups, lease.foretold_groups)
    return _gain_of(lease, groups, 1 / lease.primaries, estimates, error)


def _gain_of(lease: LiveLease, groups: float, share: float, estimates: Estimates | None, error: float) -> float | None:
    if lease.released_at is None:
        return None
    if lease.alone_s is not None:
        if lease.step_closed_at is None:
            return None
        return (lease.life.granted_at + error * lease.alone_s - lease.step_closed_at) / lease.partners
    if estimates is None:
        return None
    in_s = lease.in_s if lease.in_s is not None else (lease.ended_at or lease.released_at) - lease.since
    grad_s = estimates.train_on_rollout.grad_s if lease.grad_s is None else lease.grad_s
    costs = SwitchCosts(in_s=in_s, out_s=lease.out_s or 0.0, grad_s=grad_s)
    return gain_by_use(lease.life.direction, groups=groups, share=share, estimates=estimates, costs=costs)


def row_of(run_id: str, lease: LiveLease) -> LeaseRow:
    """The lease as it is stored."""
    life, gain_s = lease.life, lease.gain_s
    return LeaseRow(
        run_id=run_id,
        lease=life.lease_id,
        direction=life.direction,
        block=lease.device,
        devices=list(life.block),
        state=str(life.state),
        reason=life.reason,
        gain_s=life.gain_s if isfinite(life.gain_s) else None,
        cost_s=life.cost_s if isfinite(life.cost_s) else None,
        granted_at=life.granted_at,
        ready_at=lease.ready_at,
        working_at=lease.working_at,
        ended_at=lease.ended_at,
        released_at=lease.released_at,
        ended_by=lease.ended_by,
        end_reason=lease.end_reason,
        groups=lease.groups,
        chunks=lease.chunks,
        tokens=lease.tokens,
        cpu_s=lease.cpu_s,
        busy_s=lease.busy_s,
        in_s=lease.in_s,
        out_s=lease.out_s,
        grad_s=lease.grad_s,
        phases=dict(lease.phases),
        measured_gain_s=gain_s,
        regret_s=None if gain_s is None else max(0.0, -gain_s),
        foretold_gain_s=lease.foretold_gain_s,
    )


def cut_off(row: LeaseRow, at: float) -> LeaseRow:
    """A stored lease whose engine ended before it did."""
    return replace(
        row,
        state="released",
        ended_at=row.ended_at or at,
        released_at=at,
        ended_by="run_ended",
        end_reason="the engine ended",
    )
