"""What a simulated run is: the job's shape, its profile, and what goes wrong on the way."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from planner.policy.improvements import DEFAULT, Improvements
from planner.profile import Profile, SwitchCosts

FREE = SwitchCosts(in_s=0.0, out_s=0.0, grad_s=0.0)
"""A switch that costs nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """The devices of one block die; what they held is lost."""

    at: float
    """virtual seconds"""
    block: int
    back_after_s: float
    """until the block's home role works again"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """One simulated run. Raises ValueError for what cannot run."""

    profile: Profile
    arm: str
    streaming: bool
    """the trainer may start on a partial batch"""
    staleness: float
    rollout_devices: int
    train_devices: int
    rollout_replica_size: int = 1
    train_replica_size: int = 4
    prompts_per_step: int = 64
    group_size: int = 8
    steps: int = 14
    seed: int = 0
    improvements: Improvements = DEFAULT
    rollout_on_train: bool = True
    train_on_rollout: bool = True
    lend_cap: int | None = None
    """most devices lent at the same time; None: as many as pay"""
    min_lease_s: float = 0.0
    """virtual seconds that a lease lasts at least"""
    length_hint: float | None = None
    """correlation, over groups, between the log of the expected length that the policy is told and that of the real
    one; None: lengths cannot be predicted"""
    exclusion_rate: float = 0.0
    """share of groups that are excluded when they finish"""
    failures: tuple[Failure, ...] = ()
    decide_every_s: float = 0.0
    """least virtual time between two decisions; 0: at every decision point"""
    chunks_ahead: int = 1
    """chunks that a trainer may hold: a live engine hands out one more than the running one, since its answers take
    time; here they take none"""
    revoke_at: tuple[float, ...] = ()
    """virtual seconds at which an operator takes back every lease"""
    recorded: tuple[tuple[int, ...], ...] | None = None
    """response tokens of a real run's groups by place in the data order, used over and over beyond their end; None:
    lengths are drawn from the profile"""

    def __post_init__(self) -> None:
        if self.recorded is not None:
            self._check_recorded(self.recorded)
        if self.colocated:
            self._check_colocated()
            return
        for name, devices, size in (
            ("rollout", self.rollout_devices, self.rollout_replica_size),
            ("train", self.train_devices, self.train_replica_size),
        ):
            if devices < size or devices % size:
                raise ValueError(f"{devices} {name} devices are no multiple of the {name} replica size {size}")
        if self.slot_groups < 1:
            raise ValueError(
                f"rollout slots must hold a group of {self.group_size} responses, got {self.profile.rollout.slots}"
            )

    def _check_recorded(self, recorded: tuple[tuple[int, ...], ...]) -> None:
        if not recorded:
            raise ValueError("recorded lengths must be those of at least 1 group, got none")
        for place, lengths in enumerate(recorded):
            if len(lengths) != self.group_size or min(lengths) < 1:
                raise ValueError(
                    f"every recorded group must have {self.group_size} responses of at least 1 token, group {place} "
                    f"has {lengths}"
                )

    def _check_colocated(self) -> None:
        size, part = self.train_replica_size, self.rollout_replica_size
        if self.train_devices:
            raise ValueError(f"arm colocated has one pool: train_devices must be 0, got {self.train_devices}")
        if size % part:
            raise ValueError(
                f"arm colocated needs a train replica size that is a multiple of the rollout replica size {part}, got "
                f"{size}"
            )
        if self.devices < size or self.devices % size:
            raise ValueError(f"{self.devices} devices are no multiple of the train replica size {size}")
        if self.staleness or self.streaming or self.failures or self.revoke_at:
            raise ValueError("arm colocated is on-policy, takes whole batches and has no blocks that could fail")
        if self.slot_groups * (size // part) < 1:
            raise ValueError(
                f"rollout slots must hold a group of {self.group_size} responses, got {self.profile.rollout.slots}"
            )

    @property
    def colocated(self) -> bool:
        """No pools: every device has both roles in turn; `rollout_devices` are all of them."""
        return self.arm == "colocated"

    @property
    def devices(self) -> int:
        """Devices of both pools."""
        return self.rollout_devices + self.train_devices

    @property
    def slot_groups(self) -> int:
        """Groups that a rollout replica takes at once."""
        return self.profile.rollout.slots // self.group_size

    @property
    def block_size(self) -> int:
        """Devices of the smallest lendable block: a multiple of both replica sizes."""
        return math.lcm(self.rollout_replica_size, self.train_replica_size)

    @property
    def directions(self) -> frozenset[str]:
        """Which pool's devices may be lent."""
        allowed = {"rollout_on_train": self.rollout_on_train, "train_on_rollout": self.train_on_rollout}
        return frozenset(name for name, on in allowed.items() if on and self.arm not in allowed.keys() - {name})

    @property
    def lendable(self) -> bool:
        """Each pool can host whole replicas of the other role (hot-switch compatible, design section 6)."""
        if self.colocated:
            return False
        return self.rollout_devices % self.block_size == 0 and self.train_devices % self.block_size == 0

    def with_free_switches(self) -> Setup:
        """The same run where a switch costs nothing."""
        return replace(self, profile=replace(self.profile, rollout_on_train=FREE, train_on_rollout=FREE))
