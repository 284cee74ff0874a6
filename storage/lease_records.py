"""Records of the scheduler: every decision, every lease with what it cost and brought, and the states decided on.

As in `records.py`, which hands these out too: one class a table, unix seconds, and words that `words.py` does not know
are refused. A figure that is not known yet, or that nothing predicted, is None and never 0.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from storage import words
from storage.codec import json_column


@dataclass(frozen=True, slots=True, kw_only=True)
class DecisionRow:
    """One decision about lending, taken or refused. Raises ValueError for an unknown action or direction."""

    run_id: str
    """The run."""
    id: int
    """Counts the run's decisions."""
    at: float
    """Decided, unix seconds."""
    step: int
    """Number of the step that was being filled (version + 1)."""
    action: str
    """One of `words.DECISIONS`."""
    direction: str
    """One of `words.DIRECTIONS`."""
    block: int | None = None
    """Block of devices that it is about; None when it is about none in particular."""
    lease: int | None = None
    """Lease that it granted or ended; None for a refusal."""
    gain_s: float | None = None
    """Predicted gain, seconds, costs not deducted; None without a prediction."""
    cost_s: float | None = None
    """Predicted cost, seconds; None without a prediction."""
    reason: str
    """Why, one sentence."""
    inputs: dict[str, Any] = field(metadata=json_column("inputs_json"), default_factory=dict)
    """The numbers that it was made on."""

    def __post_init__(self) -> None:
        words.require("action of a decision", self.action, words.DECISIONS)
        words.require("direction of a decision", self.direction, words.DIRECTIONS)


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseRow:
    """One lease from its grant to its end, stored whole after each change. Raises ValueError for unknown words."""

    run_id: str
    """The run."""
    lease: int
    """Counts the run's leases."""
    direction: str
    """One of `words.DIRECTIONS`."""
    block: int
    """Block of devices that was lent."""
    devices: list[int] = field(metadata=json_column("devices_json"))
    """Its devices, indices inside the run."""
    state: str
    """One of `words.LEASE_STATES`."""
    reason: str
    """Why it was granted, one sentence."""
    gain_s: float | None = None
    """Predicted gain, seconds, costs not deducted; None without a prediction."""
    cost_s: float | None = None
    """Predicted cost, seconds; None without a prediction."""
    granted_at: float
    """Granted, unix seconds."""
    ready_at: float | None = None
    """Prepared, unix seconds."""
    working_at: float | None = None
    """First useful token or gradient, unix seconds."""
    ended_at: float | None = None
    """Decided to end, unix seconds."""
    released_at: float | None = None
    """The home role works again, unix seconds."""
    ended_by: str | None = None
    """One of `words.LEASE_ENDS`; None while nothing ended it."""
    end_reason: str | None = None
    """Why it ended, one sentence."""
    groups: float = 0.0
    """Groups trained, or generated: finished ones plus parts in group-equivalents."""
    chunks: int = 0
    """Chunks trained."""
    tokens: int = 0
    """Tokens generated or trained."""
    cpu_s: float = 0.0
    """CPU seconds of its auxiliary work."""
    busy_s: float = 0.0
    """Device-seconds of its auxiliary rollout or train spans."""
    in_s: float | None = None
    """Measured C_in: from the grant to the first useful work, seconds."""
    out_s: float | None = None
    """Measured C_out: from the end until the home role works again, seconds."""
    grad_s: float | None = None
    """Measured C_grad: merging its gradient, seconds."""
    phases: dict[str, float] = field(metadata=json_column("phases_json"), default_factory=dict)
    """Phase -> seconds."""
    measured_gain_s: float | None = None
    """Seconds won, costs deducted: negative when it lost time. None while it cannot be told."""
    regret_s: float | None = None
    """Seconds lost against the better of lending and not lending; None while it cannot be told."""
    foretold_gain_s: float | None = None
    """Seconds won, costs deducted, by the work that the prediction is about, which is less than all of it where the
    lease went on into further steps; None while it cannot be told, and for a lease of before it was kept."""

    def __post_init__(self) -> None:
        words.require("direction of a lease", self.direction, words.DIRECTIONS)
        words.require("state of a lease", self.state, words.LEASE_STATES)
        if self.ended_by is not None:
            words.require("end of a lease", self.ended_by, words.LEASE_ENDS)


@dataclass(frozen=True, slots=True, kw_only=True)
class StateRow:
    """What the policy saw at one moment and the actions it gave, to be replayed. Opaque to storage."""

    run_id: str
    """The run."""
    seq: int
    """Counts the run's states."""
    at: float
    """Observed, unix seconds."""
    data: bytes
    """zlib-compressed JSON, written and read by whoever reports it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseOutcome:
    """What the leases of one direction came to so far."""

    in_out_median_s: float | None
    """Median of C_in + C_out over the leases that have both, seconds; None without any."""
    judged: int
    """Leases whose gain was measured."""
    paid_off: int
    """Of these, the ones that won time."""
    lost: int
    """Of these, the ones that lost time."""
    gain_s: float | None = None
    """Sum of the measured gains, costs deducted, seconds; None without any."""
    regret_s: float | None = None
    """Sum of the regrets, seconds; None without any."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseVerdict:
    """What was expected of a lease and what it brought, in short: for charts of a whole run."""

    lease: int
    """Counts the run's leases."""
    direction: str
    """One of `words.DIRECTIONS`."""
    granted_at: float
    """Granted, unix seconds."""
    gain_s: float | None
    """Predicted gain, seconds, costs not deducted; None without a prediction."""
    cost_s: float | None
    """Predicted cost, seconds; None without a prediction."""
    measured_gain_s: float
    """Seconds won, costs deducted."""
    regret_s: float
    """Seconds lost against the better of lending and not lending."""
    foretold_gain_s: float | None = None
    """Seconds won by the work that the prediction is about; None for a lease of before it was kept."""

    @property
    def as_foretold_s(self) -> float:
        """What the prediction is compared with: seconds won by the work that it is about, or by all of it where no more
        is known."""
        return self.measured_gain_s if self.foretold_gain_s is None else self.foretold_gain_s

    @property
    def predicted_s(self) -> float | None:
        """Predicted gain, costs deducted, seconds; None without a prediction."""
        return None if self.gain_s is None or self.cost_s is None else self.gain_s - self.cost_s
