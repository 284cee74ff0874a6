"""The staleness rules in tables, with the arithmetic beside them."""

from __future__ import annotations

import math
import pickle

import pytest

from planner.policy.staleness import (
    Bound,
    Unconsumed,
    choose,
    choose_many,
    lag_limit,
    may_start,
    overdue,
    step_violations,
)


def bound(s: float, B: int = 8) -> Bound:
    return Bound(staleness=s, prompts_per_step=B)


def groups(*rows: tuple[int, Bound, bool]) -> list[Unconsumed]:
    """(version, bound, finished), numbered in the given order, which is that of completion too."""
    return [
        Unconsumed(group_id=place, version=version, bound=rule, finished=finished, order=place)
        for place, (version, rule, finished) in enumerate(rows)
    ]


@pytest.mark.parametrize(
    ("s", "B", "k", "F", "limit"),
    [
        pytest.param(0, 8, 0, 0, 0, id="strictly on-policy"),
        pytest.param(0.5, 8, 0, 4, 1, id="half of the step one version old"),
        pytest.param(1, 8, 1, 0, 1, id="whole step one version old"),
        pytest.param(1.5, 7, 1, 3, 2, id="10.5 groups round down to 10 = 7 + 3"),
        pytest.param(2.3, 10, 2, 3, 3, id="22.999... in binary means 23 = 20 + 3"),
        pytest.param(0.01, 8, 0, 0, 1, id="so small that no group may be late"),
        pytest.param(3 - 1e-12, 8, 3, 0, 3, id="a rounding error below a whole number is that number"),
    ],
)
def test_bound_splits_into_whole_steps_and_a_rest(s: float, B: int, k: int, F: int, limit: int) -> None:
    rule = bound(s, B)
    assert (rule.k, rule.F, rule.start_allowance, lag_limit(rule)) == (k, F, k * B + F, limit)


@pytest.mark.parametrize("s", [-0.1, math.nan, math.inf])
def test_a_staleness_that_is_no_number_from_0_is_refused_with_its_value(s: float) -> None:
    with pytest.raises(ValueError, match=rf"staleness must be a number >= 0, got {s}"):
        bound(s)


def test_a_step_without_prompts_is_refused() -> None:
    with pytest.raises(ValueError, match="prompts_per_step must be at least 1, got 0"):
        bound(1, 0)


def test_a_bound_survives_pickling() -> None:
    copy = pickle.loads(pickle.dumps(bound(2.3, 10)))
    assert copy == bound(2.3, 10)
    assert (copy.k, copy.F, copy.start_allowance) == (2, 3, 23)


@pytest.mark.parametrize(
    ("loaded_version", "started", "excluded", "s", "allowed"),
    [
        pytest.param(0, 7, 0, 0, True, id="s=0: 7 < 8"),
        pytest.param(0, 8, 0, 0, False, id="s=0: 8 is not < 8"),
        pytest.param(0, 8, 1, 0, True, id="an excluded group leaves the count"),
        pytest.param(1, 8, 0, 0, True, id="the next version opens the next step"),
        pytest.param(0, 11, 0, 0.5, True, id="s=0.5: 11 < 8 + 4"),
        pytest.param(0, 12, 0, 0.5, False, id="s=0.5: 12 is not < 12"),
    ],
)
def test_a_replica_may_start_a_group(loaded_version: int, started: int, excluded: int, s: float, allowed: bool) -> None:
    got = may_start(loaded_version=loaded_version, started=started, excluded=excluded, bound=bound(s))
    assert got is allowed


OLD, NEW, HALF, MOST = bound(2), bound(0), bound(0.5), bound(0.75)
TEN_DUE_NOW = [(3, HALF, False)] * 4 + [(3, MOST, False)] * 6
"""All 10 may slip from step 3 to step 4, which has 8 slots: 2 must be in step 3."""


@pytest.mark.parametrize(
    ("version", "slots_left", "unconsumed", "expected"),
    [
        pytest.param(
            3, 2, groups((3, NEW, True), (1, OLD, False)), 0, id="the old one is due at 3 too, one slot is kept"
        ),
        pytest.param(3, 1, groups((3, OLD, True), (1, OLD, False)), None, id="the last slot is the old one's"),
        pytest.param(
            3, 1, groups((3, NEW, False), (2, OLD, True)), None, id="oldest first yields to a newer one that is due now"
        ),
        pytest.param(3, 1, groups((2, OLD, True), (3, NEW, True)), 1, id="the newer one that is due now goes first"),
        pytest.param(3, 2, groups((2, OLD, True), (3, NEW, True)), 0, id="with room for both the older goes first"),
        pytest.param(
            3, 1, groups((3, HALF, True), (3, NEW, False)), None, id="at its own deadline a group that may slip waits"
        ),
        pytest.param(
            3, 1, groups((3, HALF, True), (3, HALF, False)), 0, id="for one that may slip too it need not wait"
        ),
        pytest.param(
            3, 2, groups((3, OLD, True), *TEN_DUE_NOW), None, id="the next step cannot hold all that may slip"
        ),
        pytest.param(3, 3, groups((3, OLD, True), *TEN_DUE_NOW), 0, id="one slot more than those need"),
    ],
)
def test_groups_of_two_bounds_share_a_step(
    version: int, slots_left: int, unconsumed: list[Unconsumed], expected: int | None
) -> None:
    choice = choose(version=version, slots_left=slots_left, taken=[], unconsumed=unconsumed)
    assert choice.group_id == expected, choice.reason


@pytest.mark.parametrize(
    ("slots_left", "unconsumed", "reason"),
    [
        pytest.param(0, groups((3, NEW, True)), "step 3 is full", id="full"),
        pytest.param(4, [], "step 3 lacks 4 groups and no finished group is waiting", id="nothing there"),
        pytest.param(
            1,
            groups((3, OLD, True), (1, OLD, False), (2, OLD, False)),
            "step 3 keeps its 1 free slots for 1 groups due earlier, up to version 1",
            id="reserved",
        ),
        pytest.param(
            4,
            groups((1, HALF, True)),
            "step 3 may not train the finished groups: the oldest is of version 1 under staleness 0.5",
            id="too old",
        ),
    ],
)
def test_waiting_has_a_reason_with_numbers(slots_left: int, unconsumed: list[Unconsumed], reason: str) -> None:
    assert choose(version=3, slots_left=slots_left, taken=[], unconsumed=unconsumed).reason == reason


def test_a_selection_that_stopped_at_its_limit_says_that_there_is_more() -> None:
    selection = choose_many(version=0, slots_left=8, taken=[], unconsumed=groups(*[(0, NEW, True)] * 3), limit=2)
    assert selection.group_ids == (0, 1)
    assert selection.reason == "step 0 lacks 6 groups and may take more that have finished"


def test_a_selection_takes_no_more_late_groups_than_may_slip_even_when_more_are_left_behind() -> None:
    # F = 0.5 * 8 = 4 groups of lag 1; a fifth one is a broken protocol, which the step must not hide
    selection = choose_many(version=3, slots_left=8, taken=[], unconsumed=groups(*[(2, HALF, True)] * 5))
    assert selection.group_ids == (0, 1, 2, 3)
    assert selection.reason == (
        "step 3 may not train the finished groups: the oldest is of version 2 under staleness 0.5"
    )


@pytest.mark.parametrize(
    ("consumed", "problem"),
    [
        pytest.param([(3, NEW)] * 8, None, id="all of the step's version"),
        pytest.param([(2, HALF)] * 4 + [(3, HALF)] * 4, None, id="half of it one version old"),
        pytest.param([(2, HALF)] * 4 + [(2, bound(0.75))] * 4, None, id="each bound has its own share"),
        pytest.param(
            [(2, HALF)] * 5, "step 3 trained 5 groups of lag 1; staleness 0.5 allows 4 of 8", id="one too many"
        ),
        pytest.param(
            [(2, HALF)] * 3 + [(2, bound(0.51))] * 2, "5 groups of lag 1", id="0.5 and 0.51 are one bound here"
        ),
        pytest.param([(2, NEW)], "step 3 trained 1 groups of lag 1; staleness 0 allows 0 of 8", id="late at s=0"),
        pytest.param([(0, OLD)], "step 3 trained 1 groups of lag 3; staleness 2 allows 0 of 8", id="late at s=2"),
        pytest.param([(0, HALF)], "step 3 trained a group of lag 3; staleness 0.5 allows 1", id="much too late"),
        pytest.param([(4, OLD)], "version 4, which did not exist yet", id="from the future"),
    ],
)
def test_a_finished_step_is_checked(consumed: list[tuple[int, Bound]], problem: str | None) -> None:
    problems = step_violations(consumed, 3)
    assert len(problems) == (problem is not None)
    assert problem is None or problem in problems[0]


@pytest.mark.parametrize(
    ("taken", "unconsumed", "count"),
    [
        pytest.param([], groups((3, NEW, True), (1, OLD, False)), 0, id="in time"),
        pytest.param([], groups(*[(2, HALF, False)] * 4), 0, id="as many as may slip"),
        pytest.param([(2, HALF)], groups(*[(2, HALF, False)] * 4), 1, id="one has slipped already"),
        pytest.param([], groups((2, NEW, True)), 1, id="late at s=0"),
        pytest.param([], groups((0, HALF, True), (1, HALF, True)), 2, id="much too late, two versions"),
    ],
)
def test_groups_that_no_step_can_train_are_named(
    taken: list[tuple[int, Bound]], unconsumed: list[Unconsumed], count: int
) -> None:
    sentences = overdue(version=3, taken=taken, unconsumed=unconsumed)
    assert len(sentences) == count
    assert all("left behind at step 3" in sentence for sentence in sentences)
