"""Which devices form a replica and which are lent together: pure arithmetic on a job, the same in engine and workers.

    devices   0 1 2 3 | 4 5 6 7 8 9 10 11        partition 4:8, rollout replicas of 1, train replicas of 4
    replicas  0 1 2 3 | 4       8                a replica is named by its first device
    blocks    0       | 4       8                what is lent as a whole: whole replicas of either role

Without pools (`colocated`) a train replica's devices have both roles in turn: they generate as so many rollout replicas
side by side, named by their first device too.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from engine.config import BORROWING_ARMS, Job

NODE_DEVICES = 32
"""Most devices of an emulated node: a process costs some 40 MB and a percent of a core, a device next to nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockLayout:
    """Devices that are lent together."""

    block: int
    """Its number is that of its first device."""
    pool: str
    """Home pool, rollout or train."""
    devices: tuple[int, ...]
    home: tuple[int, ...]
    """First devices of the replicas of its home role."""
    away: tuple[int, ...]
    """First devices of the replicas of the other role, under a lease."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """Replicas and blocks of a run."""

    devices: int
    pools: bool
    rollout_size: int
    """Devices of a rollout replica."""
    train_size: int
    """Devices of a train replica."""
    rollouters: tuple[int, ...]
    """First devices of the rollout replicas that are at home."""
    trainers: tuple[int, ...]
    """First devices of the train replicas that are at home."""
    blocks: tuple[BlockLayout, ...]
    """Empty where nothing can be lent."""
    copies: int
    """Rollout replicas side by side behind one name; more than 1 without pools only."""
    node_devices: int
    """Devices of a full emulated node: whole blocks."""

    @classmethod
    def of(cls, job: Job) -> Layout:
        """The layout of a job whose replica sizes fit its partition (`check_runnable`)."""
        rollout_size, train_size = job.devices.rollout_replica_size, job.devices.train_replica_size
        partition, count = job.partition, job.device_count
        unit = math.lcm(rollout_size, train_size)
        per_node = max(unit, NODE_DEVICES - NODE_DEVICES % unit)
        if partition is None:
            leaders = tuple(range(0, count, train_size))
            return cls(
                devices=count,
                pools=False,
                rollout_size=rollout_size,
                train_size=train_size,
                rollouters=leaders,
                trainers=leaders,
                blocks=(),
                copies=train_size // rollout_size,
                node_devices=per_node,
            )
        lendable = job.schedule.arm in BORROWING_ARMS
        return cls(
            devices=count,
            pools=True,
            rollout_size=rollout_size,
            train_size=train_size,
            rollouters=tuple(range(0, partition.rollout, rollout_size)),
            trainers=tuple(range(partition.rollout, count, train_size)),
            blocks=_blocks(partition.rollout, count, unit, rollout_size, train_size) if lendable else (),
            copies=1,
            node_devices=per_node,
        )

    def node_of(self, device: int) -> int:
        """Number of the emulated node that hosts the device: with all of its block, or else of its replica."""
        return self._first_with(device) // self.node_devices

    def _first_with(self, device: int) -> int:
        """First device of those that belong together."""
        if self.blocks:
            unit = len(self.blocks[0].devices)
            return device - device % unit
        begin = self.trainers[0] if self.pools and device >= self.trainers[0] else 0
        size = self.rollout_size if self.pools and not begin else self.train_size
        return device - (device - begin) % size

    def replica(self, role: str, first: int) -> tuple[int, ...]:
        """Devices of the replica with this first device, in this role (rollout or train)."""
        size = self.rollout_size * self.copies if role == "rollout" else self.train_size
        return tuple(range(first, first + size))

    def block_of(self, device: int) -> BlockLayout | None:
        """The block with this device; None where nothing can be lent."""
        return next((block for block in self.blocks if device in block.devices), None)


def _blocks(rollout: int, count: int, unit: int, rollout_size: int, train_size: int) -> tuple[BlockLayout, ...]:
    blocks = []
    for first in range(0, count, unit):
        pool = "rollout" if first < rollout else "train"
        sizes = (rollout_size, train_size) if pool == "rollout" else (train_size, rollout_size)
        blocks.append(
            BlockLayout(
                block=first,
                pool=pool,
                devices=tuple(range(first, first + unit)),
                home=tuple(range(first, first + unit, sizes[0])),
                away=tuple(range(first, first + unit, sizes[1])),
            )
        )
    return tuple(blocks)
