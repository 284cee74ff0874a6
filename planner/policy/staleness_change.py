"""When a live change of s takes effect: the first step made only of groups started under it.

A new s governs starts at once and never touches a group already started, so its effect on what is trained comes later.
`predict_effective_step` is for the answer to the command, `StalenessChanges` says when it has really happened. Groups
are told apart by their numbers, not by their bounds: after 2 -> 0 -> 2 the groups of the first 2 are not the second's.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from planner.policy.bound import Unconsumed


@dataclass(frozen=True, slots=True, kw_only=True)
class EffectiveStep:
    """Where a change that is applied now can be expected to be effective."""

    expected: int
    """step, when the groups already started are trained first and the step in hand gets nothing else"""
    latest: int
    """step that holds no group started earlier, however long those take, as long as s is not changed again"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What became of a change."""

    change_id: int
    """the id that it was announced with"""
    step: int | None
    """first step made only of groups started under it; None: a later change took effect before this one"""


def predict_effective_step(
    *, version: int, slots_left: int, prompts_per_step: int, unconsumed: Sequence[Unconsumed]
) -> EffectiveStep:
    """The step to name in the answer, from the state at the moment the change is applied (arguments as in `choose`).

    expected: v when step v holds no group and none is started, else the step after the one that the n unconsumed
    groups reach, v + 1 + ceil(max(0, n - slots_left) / B). latest: one after the last step that the bounds allow them.
    """
    begun = slots_left < prompts_per_step or bool(unconsumed)
    beyond = max(0, len(unconsumed) - slots_left)
    expected = version + (1 + -(-beyond // prompts_per_step) if begun else 0)
    ends = [group.version + group.bound.k + (group.bound.F > 0) + 1 for group in unconsumed]
    return EffectiveStep(expected=expected, latest=max([expected, *ends]))


class StalenessChanges:
    """The changes of a run that are not effective yet, told apart by the numbers of the groups started under each.

    Owned by the engine's run loop: `applied` when a change governs starts, `step_done` for every step in order.
    """

    def __init__(self) -> None:
        self._waiting: list[tuple[int, int]] = []  # (change_id, first_group_id), in order of application

    def applied(self, *, change_id: int, first_group_id: int) -> list[Outcome]:
        """A change governs starts from group `first_group_id` on (groups are numbered in the order of starting).

        Gives the outcome of changes that this one has overtaken: nothing was started under them.
        """
        overtaken = [waiting for waiting in self._waiting if waiting[1] == first_group_id]
        self._waiting = [waiting for waiting in self._waiting if waiting[1] != first_group_id]
        assert not self._waiting or self._waiting[-1][1] < first_group_id, "groups are numbered in starting order"
        self._waiting.append((change_id, first_group_id))
        return [Outcome(change_id=overtaken_id, step=None) for overtaken_id, _ in overtaken]

    def step_done(self, *, step: int, group_ids: Iterable[int]) -> list[Outcome]:
        """The outcomes that the groups of a finished step decide, oldest change first."""
        ids = list(group_ids)
        assert ids, f"step {step} has no groups"
        for place in range(len(self._waiting) - 1, -1, -1):
            change_id, first = self._waiting[place]
            end = self._waiting[place + 1][1] if place + 1 < len(self._waiting) else None
            if min(ids) >= first and (end is None or max(ids) < end):
                overtaken = self._waiting[:place]
                self._waiting = self._waiting[place + 1 :]
                return [Outcome(change_id=earlier, step=None) for earlier, _ in overtaken] + [
                    Outcome(change_id=change_id, step=step)
                ]
        return []

    @property
    def waiting(self) -> tuple[int, ...]:
        """Ids of the changes whose effect is still to come."""
        return tuple(change_id for change_id, _ in self._waiting)
