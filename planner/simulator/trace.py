"""What a simulated run leaves behind."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from planner.policy import leases as policy_leases
from planner.policy.actions import Action
from planner.simulator.account import Account
from planner.throughput import throughput


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedStep:
    """One optimizer step."""

    version: int
    """version at which it consumed its groups"""
    began_at: float
    ended_at: float
    """virtual seconds; when rollouters hold the version that it made"""
    tokens: int
    """prompt plus response tokens of its groups"""
    lags: dict[int, int]
    """lag -> groups"""
    places: tuple[int, ...]
    """its groups' places in the data order"""


@dataclass(slots=True, kw_only=True)
class Lease:
    """One lease, as it went."""

    life: policy_leases.Lease
    """what was decided, and where it is in its life"""
    lease: int
    block: int
    working_at: float | None = None
    ended_at: float | None = None
    """when its end was decided"""
    released_at: float | None = None
    alone_until: float | None = None
    """when the step would have been complete without the lease, by the model at its grant"""
    step_closed_at: float | None = None
    """when it was"""
    groups: float = 0.0
    """groups' worth of tokens that its rollouters finished, or that its trainers trained"""
    gain_s: float | None = None
    """measured gain; known when the block is home again"""
    end_reason: str = ""

    @property
    def direction(self) -> str:
        """rollout_on_train or train_on_rollout."""
        return self.life.direction

    @property
    def granted_at(self) -> float:
        """Virtual seconds."""
        return self.life.granted_at

    @property
    def reason(self) -> str:
        """Why it was granted."""
        return self.life.reason


@dataclass(slots=True, kw_only=True)
class Trace:
    """A simulated run. Times in virtual seconds."""

    staleness: float
    devices: int
    steps: list[SimulatedStep] = field(default_factory=list)
    leases: list[Lease] = field(default_factory=list)
    excluded: list[int] = field(default_factory=list)
    """places of the data order whose groups were excluded"""
    refused: Counter[str] = field(default_factory=Counter)
    """direction -> how often its gate was asked and did not admit a lease"""
    switch_s: list[float] = field(default_factory=list)
    """seconds of each change of role of the arm without pools"""
    account: Account = field(default_factory=Account)
    actions: list[tuple[float, Action]] = field(default_factory=list)
    """when and what was decided; empty unless it was asked for"""
    decisions: int = 0
    events: int = 0

    @property
    def wall_s(self) -> float:
        """Until the last step was made."""
        return self.steps[-1].ended_at if self.steps else 0.0

    @property
    def throughput(self) -> float | None:
        """Tokens per second of the steady part (design section 8)."""
        return throughput([(step.tokens, step.ended_at - step.began_at) for step in self.steps], self.staleness)

    @property
    def lags(self) -> Counter[int]:
        """Groups by lag."""
        total: Counter[int] = Counter()
        for step in self.steps:
            total.update(step.lags)
        return total
