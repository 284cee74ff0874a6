"""Where each device is at home while an operator changes the partition: what still has to move, and what is on its way.

    home -> [its lease ends, its work is done] -> on its way (the policy's Move) -> at home in the other pool

Decides nothing: `planner.policy.steered` says when a block may go, workers say when it has arrived.
"""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass, replace

from engine.layout import BlockLayout, Layout
from engine.run.lending import Lending
from engine.worker.messages import WorkerSpec
from planner.policy.state import Moving


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrival:
    """A block that came to its new home."""

    devices: tuple[int, ...]
    to: str
    seconds: float
    """From its Move until its new role could work."""


class Homes:
    """Of one run."""

    def __init__(self, layout: Layout, specs: list[WorkerSpec]) -> None:
        """Both are shared with the run's other parts, and follow every move."""
        self.layout = layout
        self.specs = specs
        self.wanted: int | None = None
        """Devices that the RollPool is to have; None: as it is."""
        self.under_way: dict[int, float] = {}
        """Block -> since when it moves, unix seconds."""
        self.arrivals: list[Arrival] = []
        """Since the partition was last asked to change."""

    def want(self, rollout: int) -> tuple[int, ...]:
        """The RollPool is to have so many devices. Returns those that are to change their pool."""
        self.wanted, self.arrivals = rollout, []
        return tuple(sorted(self.leaving))

    @property
    def settled(self) -> bool:
        """Every device is where it is wanted."""
        return not self._waiting and not self.under_way

    @property
    def _waiting(self) -> dict[int, str]:
        return {} if self.wanted is None else self.layout.to_move(self.wanted)

    def moving(self, lending: Lending, awaited: Set[int]) -> tuple[Moving, ...]:
        """Blocks that are to leave and have not, as the policy sees them; dead ones wait until they live again."""
        if self.wanted is None:
            return ()
        return tuple(
            Moving(block=block, to=to, home=entry.layout.home, awaited=not awaited.isdisjoint(entry.layout.home))
            for block, to in self._waiting.items()
            if block not in self.under_way and not (entry := lending.entries[block]).dead
        )

    @property
    def leaving(self) -> frozenset[int]:
        """Devices whose block is to leave its pool."""
        if self.wanted is None:
            return frozenset()
        waiting = self._waiting
        return frozenset(device for block in self.layout.blocks if block.block in waiting for device in block.devices)

    def leave(self, block: int, to: str, now: float) -> BlockLayout:
        """A block sets out; from now on its home is the other pool."""
        after = self.layout.move(block, to)
        self.under_way[block] = now
        for device in after.devices:
            spec = self.specs[device]
            self.specs[device] = replace(
                spec, home=to, rolls=spec.rolls or to == "rollout", trains=spec.trains or to == "train"
            )
        return after

    def arrive(self, block: int, at: float) -> BlockLayout:
        """A block works in its new role."""
        layout = next(each for each in self.layout.blocks if each.block == block)
        seconds = max(0.0, at - self.under_way.pop(block))
        self.arrivals.append(Arrival(devices=layout.devices, to=layout.pool, seconds=seconds))
        return layout

    def die(self, device: int) -> None:
        """A device died; on its way or not, its next worker begins at its new home."""
        block = self.layout.block_of(device)
        if block is not None:
            self.under_way.pop(block.block, None)
