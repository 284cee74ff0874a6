"""How a primary and an auxiliary side share one ordered queue of trainer work so that both end together.

    queue  --full-size chunks, to whoever is ready earlier-->  primary | auxiliary
           --last 2 * max_chunk units, sized by joint_tail_split-->  primary | auxiliary

Nothing is assigned before it is pulled, so an error of the stage-time model costs at most one chunk (design section 7).
The plan made here is a prediction; a live run asks `joint_tail_split` again at each pull.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from planner.stage_model import StageTime

Side = Literal["primary", "auxiliary"]

TAIL_CHUNKS = 2
"""Full-size chunks that are left when the tail begins: one for each side, so that the last one of either is sized."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Chunk:
    """Units of the queue that one side trains in one go."""

    side: Side
    """who pulls it"""
    first: int
    """place in the queue of its first unit"""
    n: int
    """units, at least 1"""
    start: float
    """seconds, in the clock of the ready times"""
    end: float
    """seconds, in the clock of the ready times"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pulls:
    """The whole queue in chunks, in the order of pulling."""

    chunks: tuple[Chunk, ...]
    """together every unit once, in queue order"""

    @property
    def finish_primary(self) -> float | None:
        """Seconds at which the primaries end; None when they pull nothing."""
        return self._finish("primary")

    @property
    def finish_auxiliary(self) -> float | None:
        """Seconds at which the auxiliaries end; None when they pull nothing."""
        return self._finish("auxiliary")

    @property
    def finish(self) -> float | None:
        """Seconds at which the last unit is trained; None for an empty queue."""
        return max((chunk.end for chunk in self.chunks), default=None)

    def _finish(self, side: Side) -> float | None:
        return max((chunk.end for chunk in self.chunks if chunk.side == side), default=None)


def joint_tail_split(
    *,
    units: Sequence[float],
    now: float,
    other_ready: float,
    replicas: int,
    other_replicas: int,
    model: StageTime,
    primary: bool,
) -> int:
    """Units of the remaining queue that the side that pulls `now` takes so that the later of both sides ends earliest.

    The other side gets the rest at `other_ready` (s); one that gets nothing is not waited for. Among equally good
    splits the primary gets more. `units`: workload of each (group-equivalents). `primary`: the pulling side's role.
    """

    def last_end(taken: int) -> float:
        mine, others = math.fsum(units[:taken]), math.fsum(units[taken:])
        ends = []
        if taken > 0:
            ends.append(now + model.seconds(mine, replicas))
        if taken < len(units):
            ends.append(other_ready + model.seconds(others, other_replicas))
        return max(ends, default=now)

    # min keeps the first of equals
    takes = range(len(units), -1, -1) if primary else range(len(units) + 1)
    return min(takes, key=last_end)


def lazy_pull(
    *,
    units: Sequence[float],
    ready_primary: float,
    ready_auxiliary: float,
    primaries: int,
    auxiliaries: int,
    model: StageTime,
    max_chunk: int,
) -> Pulls:
    """Who pulls what, and when: the side that is ready earlier pulls next, the primary when both are.

    `ready_*`: seconds at which a side can pull its first chunk; a side without replicas never does. A side to which the
    tail gives nothing has ended, and the other one goes on alone.
    Raises ValueError when no side has a replica or `max_chunk` is below 1.
    """
    if primaries + auxiliaries < 1 or min(primaries, auxiliaries) < 0:
        raise ValueError(f"at least one side must have a replica, got {primaries} and {auxiliaries}")
    if max_chunk < 1:
        raise ValueError(f"max_chunk must be at least 1 unit, got {max_chunk!r}")
    replicas: dict[Side, int] = {"primary": primaries, "auxiliary": auxiliaries}
    ready: dict[Side, float] = {"primary": ready_primary, "auxiliary": ready_auxiliary}
    pulling = [side for side in replicas if replicas[side] > 0]  # the primary first: min keeps the first of equals
    chunks: list[Chunk] = []
    first = 0
    while first < len(units):
        side = min(pulling, key=ready.__getitem__)
        rest = units[first:]
        n = min(max_chunk, len(rest))
        if len(pulling) > 1 and len(rest) <= TAIL_CHUNKS * max_chunk:
            other: Side = "auxiliary" if side == "primary" else "primary"
            share = joint_tail_split(
                units=rest,
                now=ready[side],
                other_ready=ready[other],
                replicas=replicas[side],
                other_replicas=replicas[other],
                model=model,
                primary=side == "primary",
            )
            if share == 0:
                pulling = [other]
                continue
            n = min(share, max_chunk)
        end = ready[side] + model.seconds(math.fsum(rest[:n]), replicas[side])
        chunks.append(Chunk(side=side, first=first, n=n, start=ready[side], end=end))
        ready[side] = end
        first += n
    return Pulls(chunks=tuple(chunks))
