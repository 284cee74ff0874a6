"""Every group of a run from start to consumption, and where a run continues that was stopped within a step."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from engine.learning.sequences import GroupRequest, Partial, PartialGroup
from engine.run.book import StartPoint
from engine.run.groups import Groups
from planner.policy.staleness import Bound
from tests.engine.test_book import sealed

NOW = 20.0
"""When groups come back, unix seconds."""

B = 4

BOUND = Bound(staleness=1, prompts_per_step=B)


def make_groups(start: StartPoint | None = None, *, places: int | None = None) -> Groups:
    return Groups(start or StartPoint(), prompts_per_step=B, order=lambda index: (0, index, 100 + index), places=places)


def begin(groups: Groups, count: int, *, device: int = 0, version: int = 0, bound: Bound = BOUND) -> list[int]:
    return [request.group_id for request in groups.start(device, version, bound, count, now=5.0)]


def finish(groups: Groups, *group_ids: int, version: int = 0) -> None:
    for group_id in group_ids:
        groups.finish(sealed(group_id, version))


def make_step(groups: Groups, *group_ids: int, version: int = 1) -> None:
    groups.retire(groups.take(group_ids), version)


def unfinished(request: GroupRequest, *, tokens: int = 3, version: int = 0) -> PartialGroup:
    partial = Partial(
        tokens=np.zeros(tokens, dtype=np.int32),
        logprobs=np.zeros(tokens, dtype=np.float32),
        versions=((version, tokens),),
    )
    return PartialGroup(
        group_id=request.group_id,
        epoch=request.epoch,
        position=request.position,
        item=request.item,
        bound=request.bound,
        version=version if tokens else None,
        partial=(partial, partial) if tokens else (),
        started_at=4.0 if tokens else None,
    )


def test_groups_are_numbered_in_starting_order_and_ask_for_the_items_of_the_data_order() -> None:
    groups = make_groups()
    first, second = groups.start(0, 0, BOUND, 2, now=5.0), groups.start(1, 0, BOUND, 1, now=6.0)
    assert [(r.group_id, r.position, r.item) for r in (*first, *second)] == [(0, 0, 100), (1, 1, 101), (2, 2, 102)]
    assert (groups.started, groups.flying, groups.buffered, groups[2].began_at) == (3, 3, 0, 6.0)


def test_finished_groups_wait_in_the_order_of_completion() -> None:
    groups = make_groups()
    begin(groups, 3)
    finish(groups, 2, 0)
    assert (groups.flying, groups.buffered, groups.open) == (1, 2, 3)
    by_id = {group.group_id: group for group in groups.unconsumed}
    assert by_id[2].order < by_id[0].order
    assert not by_id[1].finished


def test_an_excluded_group_leaves_the_count() -> None:
    groups = make_groups()
    begin(groups, 2)
    assert groups.exclude(sealed(1)).index == 1
    assert (groups.started, groups.excluded, groups.flying, groups.open) == (2, 1, 1, 1)


def test_the_version_that_the_worker_reports_counts_from_then_on() -> None:
    groups = make_groups()
    begin(groups, 1)
    finish(groups, 0, version=2)
    assert groups.unconsumed[0].version == 2


def test_a_group_older_than_the_weights_it_was_started_on_is_a_broken_protocol() -> None:
    groups = make_groups(StartPoint(version=3))
    begin(groups, 1, version=3)
    with pytest.raises(AssertionError, match="older than the weights"):
        finish(groups, 3 * B, version=2)


# -- groups that come back --------------------------------------------------------------------------------------------


def test_a_group_that_comes_back_waits_with_its_prefix_and_goes_on_from_it_elsewhere() -> None:
    groups = make_groups()
    request = groups.start(0, 2, BOUND, 1, now=5.0)[0]
    back = unfinished(request, version=2)
    groups.come_back(0, [back], NOW)
    assert (groups.flying, groups.buffered, groups.open) == (0, 0, 1)
    returned = groups.returned[0]
    assert (returned.group_id, returned.version, returned.on_policy) == (0, 2, False)
    again = groups.resume(1, 3, [0], now=7.0)[0]
    assert again == back.request()
    assert (groups.returned, groups[0].device, groups[0].version, groups.in_flight[1].keys()) == ((), 1, 2, {0})
    groups.finish(replace(sealed(0), version=2))
    assert groups.unconsumed[0].version == 2


def test_a_group_of_a_bound_of_0_says_that_only_its_own_version_may_continue_it() -> None:
    groups = make_groups()
    request = groups.start(0, 0, Bound(staleness=0, prompts_per_step=B), 1, now=5.0)[0]
    groups.come_back(0, [unfinished(request)], NOW)
    assert groups.returned[0].on_policy


@pytest.mark.parametrize("how", ["no token was sampled", "its device died"])
def test_a_group_without_a_prefix_begins_anew_at_the_version_of_whoever_takes_it(how: str) -> None:
    groups = make_groups()
    request = groups.start(0, 2, Bound(staleness=0, prompts_per_step=B), 1, now=5.0)[0]
    if how == "its device died":
        assert groups.lose(0) == 1
    else:
        groups.come_back(0, [unfinished(request, tokens=0)], NOW)
    returned = groups.returned[0]
    assert (returned.version, returned.on_policy) == (-1, False)
    assert groups.resume(1, 3, [0], now=7.0) == (request,)
    assert (groups.started, groups[0].version, groups.unconsumed[0].version) == (1, 3, 3)


def test_a_prefix_is_not_continued_under_older_weights() -> None:
    groups = make_groups()
    request = groups.start(0, 2, BOUND, 1, now=5.0)[0]
    groups.come_back(0, [unfinished(request, version=2)], NOW)
    with pytest.raises(AssertionError, match="newer than the weights of device 1"):
        groups.resume(1, 1, [0], now=7.0)


def test_a_device_that_is_lost_without_groups_loses_nothing() -> None:
    groups = make_groups()
    begin(groups, 2)
    assert groups.lose(3) == 0
    assert groups.flying == 2


# -- where a run continues --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("started", "finished", "made", "excluded", "expected"),
    [
        pytest.param(3, [], [], [], StartPoint(), id="nothing was learnt: from the start"),
        pytest.param(
            6,
            [0, 1, 2, 3, 5],
            [0, 1, 2, 3],
            [],
            StartPoint(version=1, next_index=6, pending=(4, 5)),
            id="in flight and buffered ones are asked again",
        ),
        pytest.param(
            6,
            [0, 1, 2, 3],
            [0, 1, 2, 3],
            [5],
            StartPoint(version=1, excluded=1, next_index=6, pending=(4,)),
            id="an exclusion of the unfinished step is final",
        ),
    ],
)
def test_a_run_continues_from_the_last_step_made(
    started: int, finished: list[int], made: list[int], excluded: list[int], expected: StartPoint
) -> None:
    groups = make_groups()
    begin(groups, started)
    finish(groups, *finished)
    if made:
        make_step(groups, *made)
    for group_id in excluded:
        groups.exclude(sealed(group_id))
    assert groups.resume_point == expected


def test_groups_that_the_unfinished_step_had_taken_are_asked_again() -> None:
    groups = make_groups()
    begin(groups, 6)
    finish(groups, *range(6))
    make_step(groups, 0, 1, 2, 3)
    groups.take([4, 5])
    assert groups.resume_point == StartPoint(version=1, next_index=6, pending=(4, 5))


def test_what_was_started_after_the_last_step_is_not_part_of_it_unless_an_exclusion_makes_it_known() -> None:
    groups = make_groups()
    begin(groups, 4)
    finish(groups, 0, 1, 2, 3)
    make_step(groups, 0, 1, 2, 3)
    begin(groups, 3)
    assert groups.resume_point == StartPoint(version=1, next_index=4)
    groups.exclude(sealed(5))
    assert groups.resume_point == StartPoint(version=1, excluded=1, next_index=7, pending=(4, 6))


def test_groups_that_a_stopping_run_took_back_are_pending() -> None:
    groups = make_groups()
    requests = groups.start(0, 0, BOUND, 6, now=5.0)
    finish(groups, 0, 1, 2, 3)
    make_step(groups, 0, 1, 2, 3)
    groups.come_back(0, [unfinished(request) for request in requests[4:]], NOW)
    assert groups.flying == 0
    assert groups.resume_point.pending == (4, 5)


def test_a_resumed_run_asks_first_for_what_is_pending_and_counts_on() -> None:
    groups = make_groups(StartPoint(version=2, excluded=1, next_index=12, pending=(7, 10)), places=20)
    assert groups.places_left == 10
    requests = groups.start(0, 2, BOUND, 4, now=5.0)
    assert [request.position for request in requests] == [7, 10, 12, 13]
    assert [request.group_id for request in requests] == [9, 10, 11, 12]
    assert (groups.started - groups.excluded, groups.places_left) == (2 * B + 4, 6)
