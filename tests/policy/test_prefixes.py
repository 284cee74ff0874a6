"""Unfinished groups that came back: who may go on with them, and that they take up room."""

from __future__ import annotations

import pytest

from planner.policy import actions as act
from planner.policy.decide import decide
from planner.policy.prefixes import may_continue, resumes
from planner.policy.state import Returned
from tests.policy.builders import bound, make_rollout, make_state


def returned(group_id: int, version: int = 3, *, on_policy: bool = False) -> Returned:
    return Returned(group_id=group_id, version=version, on_policy=on_policy)


@pytest.mark.parametrize(
    ("group", "version", "allowed"),
    [
        pytest.param(returned(1), 3, True, id="the same weights"),
        pytest.param(returned(1), 4, True, id="newer weights: it keeps its oldest version"),
        pytest.param(returned(1), 2, False, id="older weights would make it older than it was started"),
        pytest.param(returned(1, on_policy=True), 3, True, id="s=0: the same weights"),
        pytest.param(returned(1, on_policy=True), 4, False, id="s=0: newer ones would mix two policies"),
        pytest.param(returned(1, on_policy=True), 2, False, id="s=0: older ones too"),
        pytest.param(returned(1, version=-1), 0, True, id="its prefix is lost: it begins anew"),
        pytest.param(returned(1, version=-1, on_policy=True), 5, True, id="s=0: so does this one"),
    ],
)
def test_a_prefix_is_continued_by_weights_that_may(group: Returned, version: int, allowed: bool) -> None:
    assert may_continue(group, version) is allowed


def test_each_group_goes_to_the_replica_with_the_most_room_that_may_continue_it() -> None:
    groups = (returned(7, on_policy=True), returned(8), returned(9))
    free = {0: 3, 1: 2}
    found = resumes(make_state(returned=groups), free, {0: 4, 1: 3})
    # 7 needs version 3; 8 and 9 go on anywhere: to device 0, which has room for 3 and then still for 2
    assert {resume.device: resume.group_ids for resume in found} == {1: (7,), 0: (8, 9)}
    assert free == {0: 1, 1: 1}


def test_a_group_that_no_replica_may_continue_or_has_room_for_waits() -> None:
    free = {0: 1}
    groups = (returned(7, on_policy=True), returned(8), returned(9))
    found = resumes(make_state(returned=groups), free, {0: 4})
    assert [resume.group_ids for resume in found] == [(8,)]
    assert free == {0: 0}


@pytest.mark.parametrize("arm", ["no_borrow", "opportunistic", "bidirectional_paper", "bidirectional"])
def test_new_groups_start_only_in_the_room_that_prefixes_leave(arm: str) -> None:
    state = make_state(
        arm=arm,
        bound=bound(1),
        started=2,
        rollout=(make_rollout(free_groups=3),),
        returned=(returned(0, version=0), returned(1, version=0)),
    )
    actions = decide(state, 0.0)
    assert [action.group_ids for action in actions if isinstance(action, act.ResumeGroups)] == [(0, 1)]
    assert [action.count for action in actions if isinstance(action, act.StartGroups)] == [1]
