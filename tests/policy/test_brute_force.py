"""A slice of the random schedules in every test run, and the proof that they notice when a rule is weakened.

The full count is `python tests/policy/brute_force.py --schedules 20000`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from planner.policy import reservation, staleness
from tests.policy import brute_force

NEEDED, NEXT, START = reservation._needed, reservation.next_cell, staleness.may_start
NOTHING = [-1000] * 9
"""No deadline needs a slot: more entries than any schedule has deadlines."""


def test_random_schedules_with_live_changes_neither_deadlock_nor_leave_a_group_behind() -> None:
    result = brute_force.run(300)
    assert result["findings"] == []
    assert result["schedules"] == 300
    assert result["with_live_change"] > 100
    assert result["steps_of_mixed_bounds"] > 50


def test_two_plays_of_one_seed_are_equal() -> None:
    first, second = brute_force.run(20), brute_force.run(20)
    assert first | {"seconds": 0} == second | {"seconds": 0}


def own_bound_only(cells: list[reservation.Cell], version: int, slots_left: int) -> reservation.Cell | None:
    """Each bound reserves for its own groups and ignores those of the other bounds."""
    found = (
        NEXT([cell for cell in cells if cell.bound == bound], version, slots_left)
        for bound in {cell.bound for cell in cells}
    )
    return min((cell for cell in found if cell), key=lambda cell: (cell.version, cell.ready[0]), default=None)


WEAKENED: dict[str, tuple[str, Callable[..., Any]]] = {
    "nothing is reserved": ("reservation._needed_besides", lambda cell, needed, version: 0),
    "one slot too few is reserved": (
        "staleness.next_cell",
        lambda cells, version, slots_left: NEXT(cells, version, slots_left + 1),
    ),
    "reserved only at the last valid step": (
        "reservation._needed",
        lambda cells, version: NEEDED(cells, version)[:2] + NOTHING,
    ),
    "a group's own deadline is not looked at": (
        "reservation._needed_besides",
        lambda cell, needed, version: max(needed[: cell.deadline - version + 1], default=0),
    ),
    "each bound reserves for itself": ("staleness.next_cell", own_bound_only),
    "the late share is never used": ("reservation._valid", lambda cell, version: cell.deadline >= version),
    "a start counts on the next version": (
        "brute_force.may_start",
        lambda **given: START(**given | {"loaded_version": given["loaded_version"] + 1}),
    ),
    "one start too many": ("brute_force.may_start", lambda **given: START(**given | {"started": given["started"] - 1})),
    "an excluded group stays in the count": ("brute_force.may_start", lambda **given: START(**given | {"excluded": 0})),
}


@pytest.mark.parametrize("name", WEAKENED)
def test_a_weakened_rule_is_noticed(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    target, rule = WEAKENED[name]
    module, function = target.split(".")
    monkeypatch.setattr(
        {"reservation": reservation, "staleness": staleness, "brute_force": brute_force}[module], function, rule
    )
    assert brute_force.run(300, stop_at=1)["findings"], f"300 schedules did not notice that {name}"
