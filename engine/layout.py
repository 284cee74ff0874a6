"""Which devices form a replica and which are lent together: pure arithmetic on a job, the same in engine and workers.

    devices   0 1 2 3 | 4 5 6 7 8 9 10 11        partition 4:8, rollout replicas of 1, train replicas of 4
    replicas  0 1 2 3 | 4       8                a replica is named by its first device
    blocks    0       | 4       8                what is lent as a whole: whole replicas of either role

Blocks are what a change of the partition moves, too; they stay where they are when it does, as do the nodes.

Without pools (`colocated`) a train replica's devices have both roles in turn: they generate as so many rollout replicas
side by side, named by their first device too.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from engine.config import Job

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


@dataclass(slots=True, kw_only=True)
class Layout:
    """Replicas and blocks of a run; `move` is the only thing that changes it."""

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
    """What can be lent or change its pool; empty without pools."""
    offset: int
    """First device of the first block; those before it always generate."""
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
                offset=0,
                copies=train_size // rollout_size,
                node_devices=per_node,
            )
        offset = partition.rollout % unit
        return cls(
            devices=count,
            pools=True,
            rollout_size=rollout_size,
            train_size=train_size,
            rollouters=tuple(range(0, partition.rollout, rollout_size)),
            trainers=tuple(range(partition.rollout, count, train_size)),
            blocks=tuple(
                _block(first, "rollout" if first < partition.rollout else "train", unit, rollout_size, train_size)
                for first in range(offset, count - unit + 1, unit)
            ),
            offset=offset,
            copies=1,
            node_devices=per_node,
        )

    def node_of(self, device: int) -> int:
        """Number of the emulated node that hosts the device, with all of its block and of its replica."""
        return max(0, device - self.offset) // self.node_devices

    def replica(self, role: str, first: int) -> tuple[int, ...]:
        """Devices of the replica with this first device, in this role (rollout or train)."""
        size = self.rollout_size * self.copies if role == "rollout" else self.train_size
        return tuple(range(first, first + size))

    def block_of(self, device: int) -> BlockLayout | None:
        """The block with this device; None where nothing can be lent."""
        return next((block for block in self.blocks if device in block.devices), None)

    def move(self, block: int, pool: str) -> BlockLayout:
        """The block's home is this pool from now on."""
        before = next(each for each in self.blocks if each.block == block)
        assert before.pool != pool, f"block {block} is in the {pool} pool already"
        after = replace(before, pool=pool, home=before.away, away=before.home)
        self.blocks = tuple(after if each.block == block else each for each in self.blocks)
        rollouters, trainers = set(self.rollouters), set(self.trainers)
        gone, came = (rollouters, trainers) if pool == "train" else (trainers, rollouters)
        gone.difference_update(after.away)
        came.update(after.home)
        self.rollouters, self.trainers = tuple(sorted(rollouters)), tuple(sorted(trainers))
        return after

    def to_move(self, rollout: int) -> dict[int, str]:
        """Block -> its new pool, of those whose home is not where a RollPool of so many devices has it."""
        wanted = {block.block: "rollout" if block.block < rollout else "train" for block in self.blocks}
        return {block.block: wanted[block.block] for block in self.blocks if block.pool != wanted[block.block]}


def _block(first: int, pool: str, unit: int, rollout_size: int, train_size: int) -> BlockLayout:
    sizes = (rollout_size, train_size) if pool == "rollout" else (train_size, rollout_size)
    return BlockLayout(
        block=first,
        pool=pool,
        devices=tuple(range(first, first + unit)),
        home=tuple(range(first, first + unit, sizes[0])),
        away=tuple(range(first, first + unit, sizes[1])),
    )
