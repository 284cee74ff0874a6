"""When a live change of s takes effect: predicted for the answer, then observed."""

from __future__ import annotations

import pytest

from planner.policy.staleness import Bound, Unconsumed
from planner.policy.staleness_change import Outcome, StalenessChanges, predict_effective_step


def started(*versions: int, s: float = 2) -> list[Unconsumed]:
    bound = Bound(staleness=s, prompts_per_step=4)
    return [
        Unconsumed(group_id=place, version=version, bound=bound, finished=False)
        for place, version in enumerate(versions)
    ]


@pytest.mark.parametrize(
    ("slots_left", "unconsumed", "expected", "latest"),
    [
        pytest.param(4, [], 5, 5, id="nothing is started: this very step"),
        pytest.param(3, [], 6, 6, id="step 5 holds a group already"),
        pytest.param(2, started(5, 5), 6, 8, id="2 groups fill the 2 slots; s=2 allows them up to step 7"),
        pytest.param(2, started(5, 5, 5), 7, 8, id="the third one is in step 6"),
        pytest.param(4, started(*[5] * 12), 8, 8, id="12 groups fill steps 5, 6 and 7"),
        pytest.param(4, started(5, s=0.5), 6, 7, id="one of lag 1 may slip into step 6"),
        pytest.param(4, started(5, s=0), 6, 6, id="at s=0 nothing is late"),
    ],
)
def test_the_answer_names_the_step_that_can_be_expected_and_the_latest(
    slots_left: int, unconsumed: list[Unconsumed], expected: int, latest: int
) -> None:
    effective = predict_effective_step(version=5, slots_left=slots_left, prompts_per_step=4, unconsumed=unconsumed)
    assert (effective.expected, effective.latest) == (expected, latest)


def test_a_change_is_effective_at_the_first_step_made_only_of_groups_started_under_it() -> None:
    changes = StalenessChanges()
    assert changes.applied(change_id=1, first_group_id=6) == []
    assert changes.step_done(step=0, group_ids=[0, 1, 2]) == []
    assert changes.step_done(step=1, group_ids=[6, 5, 7]) == []
    assert changes.waiting == (1,)
    assert changes.step_done(step=2, group_ids=[9, 8, 10]) == [Outcome(change_id=1, step=2)]
    assert changes.step_done(step=3, group_ids=[11, 12]) == []
    assert changes.waiting == ()


def test_two_changes_each_get_their_step() -> None:
    changes = StalenessChanges()
    changes.applied(change_id=1, first_group_id=2)
    changes.applied(change_id=2, first_group_id=6)
    assert changes.step_done(step=0, group_ids=[0, 1]) == []
    assert changes.step_done(step=1, group_ids=[2, 3]) == [Outcome(change_id=1, step=1)]
    assert changes.step_done(step=2, group_ids=[4, 6]) == []
    assert changes.step_done(step=3, group_ids=[8, 7]) == [Outcome(change_id=2, step=3)]


def test_a_step_with_the_first_group_of_the_next_change_is_neithers() -> None:
    changes = StalenessChanges()
    changes.applied(change_id=1, first_group_id=2)
    changes.applied(change_id=2, first_group_id=6)
    assert changes.step_done(step=0, group_ids=[4, 5, 6]) == []
    assert changes.waiting == (1, 2)
    assert changes.step_done(step=1, group_ids=[2, 3]) == [Outcome(change_id=1, step=1)]


def test_a_change_that_a_later_one_overtakes_never_takes_effect() -> None:
    changes = StalenessChanges()
    changes.applied(change_id=1, first_group_id=2)
    changes.applied(change_id=2, first_group_id=3)
    assert changes.step_done(step=0, group_ids=[1, 2]) == []
    assert changes.step_done(step=1, group_ids=[3, 4]) == [
        Outcome(change_id=1, step=None),
        Outcome(change_id=2, step=1),
    ]


def test_a_change_under_which_nothing_was_started_is_overtaken_at_once() -> None:
    changes = StalenessChanges()
    changes.applied(change_id=1, first_group_id=2)
    assert changes.applied(change_id=2, first_group_id=2) == [Outcome(change_id=1, step=None)]
    assert changes.waiting == (2,)
