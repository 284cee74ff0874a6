"""Groups counted by version and bound: what the choosing rule needs of them, kept up to date at O(1) a group.

A run with thousands of devices has tens of thousands of unconsumed groups; to the rules those of one version and one
bound are alike. `Tally` is the owner's mutable count, `Counted` the frozen picture a decision reads.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from planner.policy.bound import Bound, Unconsumed


@dataclass(frozen=True, slots=True, kw_only=True)
class CountedCell:
    """Groups of one version and one bound."""

    version: int
    bound: Bound
    count: int
    """groups, finished or not"""
    ready: tuple[tuple[int, int], ...] = ()
    """(completion order, group number) of the finished ones, first first"""


@dataclass(frozen=True, slots=True)
class Counted:
    """A frozen count; its length is the number of groups."""

    cells: tuple[CountedCell, ...] = ()
    total: int = 0

    def __len__(self) -> int:
        return self.total

    @property
    def finished(self) -> int:
        """Groups that are finished."""
        return sum(len(cell.ready) for cell in self.cells)


class _Cell:
    __slots__ = ("bound", "count", "first", "picture", "ready", "version")

    def __init__(self, version: int, bound: Bound) -> None:
        self.version = version
        self.bound = bound
        self.count = 0
        self.ready: list[tuple[int, int]] = []  # (completion order, group number), in completion order
        self.first = 0  # those before it are gone: groups mostly leave in the order in which they finished
        self.picture: CountedCell | None = None


class Tally:
    """Counts groups as they come, finish and go."""

    def __init__(self) -> None:
        self._cells: dict[tuple[int, int], _Cell] = {}
        self._total = 0
        self._picture: Counted | None = None

    def __len__(self) -> int:
        return self._total

    def _touch(self, version: int, bound: Bound) -> _Cell:
        key = (version, bound.start_allowance)
        cell = self._cells.get(key)
        if cell is None:
            cell = self._cells[key] = _Cell(version, bound)
        cell.picture = self._picture = None
        return cell

    def add(self, version: int, bound: Bound, count: int = 1) -> None:
        """Groups were started (or taken, where a step's own are counted)."""
        self._touch(version, bound).count += count
        self._total += count

    def finish(self, group_id: int, version: int, bound: Bound, order: int) -> None:
        """A counted group finished; `order` grows with each call."""
        self._touch(version, bound).ready.append((order, group_id))

    def remove(self, group_id: int, version: int, bound: Bound) -> None:
        """A group was taken, excluded, or given up. Raises KeyError when none like it is counted."""
        cell = self._touch(version, bound)
        if cell.first < len(cell.ready) and cell.ready[cell.first][1] == group_id:
            cell.first += 1
        else:
            cell.ready = [entry for entry in cell.ready[cell.first :] if entry[1] != group_id]
            cell.first = 0
        cell.count -= 1
        self._total -= 1
        if cell.count == 0:
            del self._cells[version, bound.start_allowance]

    def clear(self) -> None:
        """Forget all of them."""
        self._cells.clear()
        self._total, self._picture = 0, None

    def picture(self) -> Counted:
        """The count as it is now; unchanged cells are shared with the picture before."""
        if self._picture is None:
            self._picture = Counted(tuple(map(_picture_of, self._cells.values())), self._total)
        return self._picture


def _picture_of(cell: _Cell) -> CountedCell:
    if cell.picture is None:
        ready = tuple(cell.ready[cell.first :])
        cell.picture = CountedCell(version=cell.version, bound=cell.bound, count=cell.count, ready=ready)
    return cell.picture


def count_unconsumed(groups: Iterable[Unconsumed] | Counted) -> Counted:
    """The groups, counted."""
    if isinstance(groups, Counted):
        return groups
    tally = Tally()
    finished: list[Unconsumed] = []
    for group in groups:
        tally.add(group.version, group.bound)
        if group.finished:
            finished.append(group)
    for group in sorted(finished, key=lambda g: (g.order, g.group_id)):
        tally.finish(group.group_id, group.version, group.bound, group.order)
    return tally.picture()


def pairs(groups: Iterable[tuple[int, Bound]] | Counted) -> Iterator[tuple[int, Bound, int]]:
    """(version, bound, how many) of groups that are counted or come one by one."""
    if isinstance(groups, Counted):
        yield from ((cell.version, cell.bound, cell.count) for cell in groups.cells)
    else:
        yield from ((version, bound, 1) for version, bound in groups)
