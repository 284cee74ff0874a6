"""Which unconsumed groups may be taken without leaving others behind: the arithmetic under `staleness.choose`.

Groups of one version and one bound are alike, so they are counted in cells. A cell's deadline is version + k: its
groups may be trained at any step up to it, and at the next one as one of at most F. All groups can be placed into the
steps to come exactly when, for each deadline D, those due by D minus those that may slip to D + 1 fit into the slots
left of this step plus B for each later step up to D. Taking a group is allowed when that stays true.
"""

from __future__ import annotations

from collections.abc import Iterable

from planner.policy.bound import Bound, Unconsumed
from planner.policy.counted import Counted, count_unconsumed, pairs


class Cell:
    """The unconsumed groups of one version and one bound: to the rules they are all alike."""

    __slots__ = ("bound", "count", "deadline", "ready", "slips_left", "version")

    def __init__(self, version: int, bound: Bound) -> None:
        self.version = version
        self.bound = bound
        self.deadline = version + bound.k
        self.slips_left = bound.F  # how many may still be trained one step after the deadline
        self.count = 0
        self.ready: list[tuple[int, int]] = []  # heap of (order, group_id) of the finished: sorted is one


def cells_of(
    version: int, taken: Iterable[tuple[int, Bound]] | Counted, unconsumed: Iterable[Unconsumed] | Counted
) -> list[Cell]:
    """The groups counted by version and bound, with the slips that this step's groups have used up taken off."""
    cells: dict[tuple[int, int], Cell] = {}
    for counted in count_unconsumed(unconsumed).cells:
        cell = cells[counted.version, counted.bound.start_allowance] = Cell(counted.version, counted.bound)
        cell.count, cell.ready = counted.count, list(counted.ready)
    for group_version, bound, count in pairs(taken):
        if group_version + bound.k + 1 == version:
            slipped = cells.get((group_version, bound.start_allowance))
            if slipped is not None:
                slipped.slips_left -= count
    sizes = {cell.bound.prompts_per_step for cell in cells.values()}
    assert len(sizes) <= 1, f"prompts_per_step is fixed for a run, got groups of {sorted(sizes)}"
    for cell in cells.values():
        assert cell.version <= version, f"a group of version {cell.version} at the trainer's version {version}"
    return list(cells.values())


def next_cell(cells: list[Cell], version: int, slots_left: int) -> Cell | None:
    """The cell whose first finished group is taken next, or None to wait."""
    needed = _needed(cells, version)
    best: Cell | None = None
    for cell in cells:
        if (
            cell.ready
            and _valid(cell, version)
            and _needed_besides(cell, needed, version) < slots_left
            and (best is None or (cell.version, cell.ready[0]) < (best.version, best.ready[0]))
        ):
            best = cell
    return best


def _valid(cell: Cell, version: int) -> bool:
    return cell.deadline >= version or (cell.deadline + 1 == version and cell.slips_left > 0)


def _needed(cells: list[Cell], version: int) -> list[int]:
    """At i = D - v + 1, from D = v - 1: how many groups due by D must be in this step so that all of them are in time.

    Of each cell due at D, F may slip to D + 1 (from D = v - 1 they slip into this step, so none is spared); each step
    after this one up to D takes B. Needing at most the slots left is, with one bound, what design section 4 demands:
    N_(v-k-1) = 0 and N_(v-k+i) <= i * B + F when the step ends.
    """
    last = max((cell.deadline for cell in cells), default=version)
    size = max(last - version, 0) + 2
    due, slips = [0] * size, [0] * size
    for cell in cells:
        at = max(cell.deadline - version + 1, 0)
        due[at] += cell.count
        slips[at] += min(cell.bound.F, cell.count)
    per_step = cells[0].bound.prompts_per_step if cells else 0
    needed, total = [due[0]], due[0]
    for later, (new, slip) in enumerate(zip(due[1:], slips[1:], strict=True)):
        total += new
        needed.append(total - slip - later * per_step)
    return needed


def _needed_besides(cell: Cell, needed: list[int], version: int) -> int:
    """The slots of this step that others need and that taking a group of this cell would not give back.

    Taking one costs a slot and lowers by one what its own and every later deadline need, so only earlier ones can come
    up short; and its own, when the cell is so small that all of it may slip and so needed nothing there.
    """
    at = cell.deadline - version + 1
    end = at + 1 if at > 0 and cell.count <= cell.bound.F else at
    return max(needed[:end], default=0)


def why_no_more(cells: list[Cell], version: int, slots_left: int) -> str:
    """One sentence on why step `version` takes no further group now."""
    if slots_left <= 0:
        return f"step {version} is full"
    ready = [cell for cell in cells if cell.ready]
    if not ready:
        return f"step {version} lacks {slots_left} groups and no finished group is waiting"
    if next_cell(cells, version, slots_left) is not None:
        return f"step {version} lacks {slots_left} groups and may take more that have finished"
    valid = [cell for cell in ready if _valid(cell, version)]
    if not valid:
        oldest = min(ready, key=lambda cell: cell.version)
        return (
            f"step {version} may not train the finished groups: the oldest is of version {oldest.version} "
            f"under staleness {oldest.bound.staleness:g}"
        )
    needed = _needed(cells, version)
    first = min(valid, key=lambda cell: (cell.version, cell.ready[0]))
    most = _needed_besides(first, needed, version)
    due = needed.index(most) + version - 1
    newest = max(cell.version for cell in cells if cell.deadline <= due)
    return f"step {version} keeps its {slots_left} free slots for {most} groups due earlier, up to version {newest}"
