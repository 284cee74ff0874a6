"""Emulated runs in the seconds that their devices stand for, and the words that say so. Pure.

Telemetry holds the wall time that an emulated device took: `time_scale` times the time that it stands for. Costs,
gains, amounts of device time and speeds are shown modelled, as `engine.results` gives them; axes, clocks and the time
left stay wall time. What real devices did comes back as it is.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from storage.records import DecisionRow, LeaseOutcome, LeaseRow, LeaseVerdict, RunRow

EMULATED = "EMULATED"
"""How pages and exports label every figure of emulated devices."""

LEARNS_NOTHING = "Emulated devices learn nothing: no rewards, answers or accuracy."
KEEPS_NOTHING = "Emulated devices learn nothing, so there is no checkpoint to keep or to go on from."


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """How the time of a run's devices relates to the wall time that its telemetry holds."""

    scale: float | None = None
    """Wall seconds for one modelled second; None for real devices, whose seconds are their own."""

    @property
    def emulated(self) -> bool:
        """Whether the devices stand for others."""
        return self.scale is not None

    @property
    def unit(self) -> str:
        """What follows a unit: ", modelled", or nothing for real devices."""
        return ", modelled" if self.emulated else ""

    @property
    def badge(self) -> str:
        """What follows a heading, markdown with a space before it; nothing for real devices."""
        return f" :violet-badge[{EMULATED}]" if self.emulated else ""

    @property
    def hover(self) -> str:
        """Last line of a hover text; nothing for real devices."""
        return f"<br>{EMULATED}" if self.emulated else ""

    @property
    def speed(self) -> str:
        """ "50 times faster", against the devices that they stand for."""
        scale = self.scale or 1.0
        if scale == 1:
            return "as fast"
        return f"{max(scale, 1 / scale):.3g} times {'faster' if scale < 1 else 'slower'}"

    @property
    def wall_time(self) -> str:
        """What an axis of wall time says of itself; nothing for real devices, where there is no other time."""
        return f"wall time, {self.speed} {'as' if self.scale == 1 else 'than'} modelled" if self.emulated else ""

    @property
    def second(self) -> str:
        """ "1 second here stands for 50"."""
        return f"1 second here stands for {1 / (self.scale or 1.0):.3g}"

    def seconds(self, wall_s: float) -> float:
        """Modelled seconds of wall seconds, or device-seconds of device-seconds."""
        return wall_s / (self.scale or 1.0)

    def rate(self, per_wall_s: float) -> float:
        """Per modelled second, of so many per wall second."""
        return per_wall_s * (self.scale or 1.0)

    def sums(self, wall_s: Mapping[str, float]) -> dict[str, float]:
        """Modelled device-seconds by column."""
        return {column: self.seconds(value) for column, value in wall_s.items()}

    def lease(self, lease: LeaseRow) -> LeaseRow:
        """The lease with modelled costs and gains; its moments stay those of the wall clock."""
        if not self.emulated:
            return lease
        return replace(
            lease,
            gain_s=self._maybe(lease.gain_s),
            cost_s=self._maybe(lease.cost_s),
            in_s=self._maybe(lease.in_s),
            out_s=self._maybe(lease.out_s),
            grad_s=self._maybe(lease.grad_s),
            measured_gain_s=self._maybe(lease.measured_gain_s),
            regret_s=self._maybe(lease.regret_s),
            foretold_gain_s=self._maybe(lease.foretold_gain_s),
        )

    def decision(self, decision: DecisionRow) -> DecisionRow:
        """The decision with modelled cost and gain."""
        if not self.emulated:
            return decision
        return replace(decision, gain_s=self._maybe(decision.gain_s), cost_s=self._maybe(decision.cost_s))

    def outcome(self, outcome: LeaseOutcome) -> LeaseOutcome:
        """What leases came to, with the modelled cost of switching, gain and regret."""
        if not self.emulated:
            return outcome
        return replace(
            outcome,
            in_out_median_s=self._maybe(outcome.in_out_median_s),
            gain_s=self._maybe(outcome.gain_s),
            regret_s=self._maybe(outcome.regret_s),
        )

    def verdict(self, verdict: LeaseVerdict) -> LeaseVerdict:
        """The verdict with modelled costs and gains; its moment stays that of the wall clock."""
        if not self.emulated:
            return verdict
        return replace(
            verdict,
            gain_s=self._maybe(verdict.gain_s),
            cost_s=self._maybe(verdict.cost_s),
            measured_gain_s=self.seconds(verdict.measured_gain_s),
            regret_s=self.seconds(verdict.regret_s),
            foretold_gain_s=self._maybe(verdict.foretold_gain_s),
        )

    def _maybe(self, wall_s: float | None) -> float | None:
        return None if wall_s is None else self.seconds(wall_s)


REAL = Pace()
"""Of devices that stand for nothing but themselves."""


def is_emulated(run: RunRow) -> bool:
    """Whether its devices only stand for others."""
    return run.kind == "emulated"


def pace_of(run: RunRow) -> Pace:
    """The pace of a run's devices."""
    return Pace(scale=run.time_scale or 1.0) if is_emulated(run) else REAL


def explained(pace: Pace) -> str:
    """What an emulated run is, for who points at its badge."""
    return f"Emulated devices: the engine and the policy are real, the devices wait out modelled times; {pace.second}."
