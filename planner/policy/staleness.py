"""Which groups may be started and which finished one is trained next, so that none is ever trained too late.

Pure rules of design section 4 on plain data: no clock, no Ray, no state between calls. They drop nothing: a group that
may not be taken now is waited for, and `overdue` names those that no step can train any more (a broken protocol, never
the result of these rules).

Why they cannot get stuck. `choose` keeps it true that all unconsumed groups can be placed into the steps to come
(`reservation` says when). Starting a group keeps it true, since `may_start` counts every group of the run against
(u + 1) * B + floor(s * B); excluding one only makes room; generating one again under newer weights and its old bound
only moves its deadline back; and the end of a step changes nothing in it. None of this needs all groups to share one
bound, so a live change of s is safe in both directions. When nothing is in flight, a group of the earliest deadline can
always be taken; when nothing is unconsumed, a replica that holds the trainer's version may always start one.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from heapq import heappop

from planner.policy.bound import Bound, Unconsumed, lag_limit
from planner.policy.counted import Counted
from planner.policy.reservation import cells_of, next_cell, why_no_more

__all__ = [
    "Bound",
    "Choice",
    "Selection",
    "Unconsumed",
    "choose",
    "choose_many",
    "lag_limit",
    "may_start",
    "overdue",
    "step_violations",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """The next group of the step, or the reason to wait."""

    group_id: int | None
    """the group to take; None: wait"""
    reason: str
    """one sentence"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """All groups that may be taken now, in the order of taking, and why there are no more."""

    group_ids: tuple[int, ...]
    """groups to take, first first"""
    reason: str
    """one sentence: what the next one waits for"""


def may_start(*, loaded_version: int, started: int, excluded: int, bound: Bound) -> bool:
    """Whether a replica may sample the first token of one more group (design section 4, starting).

    `loaded_version` is that of the replica's own weights: the trainer's would promise a version that the group will
    not have, and deadlocks. `started` and `excluded` count groups over the whole run, auxiliaries included.
    """
    return started - excluded < bound.start_cap(loaded_version)


def choose(
    *,
    version: int,
    slots_left: int,
    taken: Sequence[tuple[int, Bound]] | Counted,
    unconsumed: Iterable[Unconsumed] | Counted,
) -> Choice:
    """The next group of step `version`, or why to wait. Arguments as in `choose_many`; O(groups)."""
    selection = choose_many(version=version, slots_left=slots_left, taken=taken, unconsumed=unconsumed, limit=1)
    if not selection.group_ids:
        return Choice(group_id=None, reason=selection.reason)
    return Choice(group_id=selection.group_ids[0], reason="the oldest finished group that leaves the slots others need")


def choose_many(
    *,
    version: int,
    slots_left: int,
    taken: Sequence[tuple[int, Bound]] | Counted,
    unconsumed: Iterable[Unconsumed] | Counted,
    limit: int | None = None,
) -> Selection:
    """What `choose` would take one after the other until it must wait, the step is full or `limit` groups are taken.

    `version` is the trainer's, v; `slots_left` the groups that step v still lacks; `taken` the (version, bound) of
    those it has; `unconsumed` every group in flight or finished, in any order. The oldest version goes first, then the
    first completed, and only what leaves room for the groups that must be in this step. Costs one pass over the groups,
    none when they come counted, and then O(versions * bounds) for each one taken. A whole-batch trainer takes the
    selection when it fills the step.
    """
    cells = cells_of(version, taken, unconsumed)
    picked: list[int] = []
    wanted = slots_left if limit is None else min(limit, slots_left)
    while len(picked) < wanted:
        cell = next_cell(cells, version, slots_left - len(picked))
        if cell is None:
            break
        picked.append(heappop(cell.ready)[1])
        cell.count -= 1
        cell.slips_left -= cell.deadline < version
    return Selection(group_ids=tuple(picked), reason=why_no_more(cells, version, slots_left - len(picked)))


def overdue(*, version: int, taken: Sequence[tuple[int, Bound]], unconsumed: Iterable[Unconsumed]) -> list[str]:
    """One sentence for each set of groups that neither step `version` nor a later one may train; normally empty.

    The rules above never let this happen; counters that were lost on a resume, or a second authority on versions, do.
    """
    return [
        f"{cell.count} groups of version {cell.version} are left behind at step {version}: started under "
        f"staleness {cell.bound.staleness:g} they had to be trained by step {cell.deadline}, "
        f"or {cell.bound.F} of them at step {cell.deadline + 1}"
        for cell in cells_of(version, taken, unconsumed)
        if cell.deadline + 1 < version or (cell.deadline + 1 == version and cell.count > cell.slips_left)
    ]


def step_violations(consumed: Sequence[tuple[int, Bound]], version: int) -> list[str]:
    """What is wrong with a finished step, from the (version, bound) of its groups; empty when the step is valid."""
    problems: list[str] = []
    slipped: dict[int, list[Bound]] = {}
    for group_version, bound in consumed:
        lag = version - group_version
        if lag < 0:
            problems.append(f"step {version} trained a group of version {group_version}, which did not exist yet")
        elif lag == bound.k + 1:
            slipped.setdefault(bound.start_allowance, []).append(bound)
        elif lag > bound.k + 1:
            problems.append(
                f"step {version} trained a group of lag {lag}; staleness {bound.staleness:g} allows {lag_limit(bound)}"
            )
    problems += [
        f"step {version} trained {len(bounds)} groups of lag {bounds[0].k + 1}; "
        f"staleness {bounds[0].staleness:g} allows {bounds[0].F} of {bounds[0].prompts_per_step}"
        for bounds in slipped.values()
        if len(bounds) > bounds[0].F
    ]
    return problems
