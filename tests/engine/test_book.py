"""The books of a run: what they count, and where a run continues that was stopped in the middle of a step."""

from __future__ import annotations

import pytest

from engine.run.book import Book, StartPoint
from engine.worker.messages import SealedGroup
from tests.engine.simulated_run import make_job

B = 4


def make_book(start: StartPoint | None = None, **sections: dict[str, object]) -> Book:
    """One rollouter (device 0) with weights and one trainer (device 1)."""
    start = start or StartPoint()
    book = Book(make_job(**sections), start, order=lambda index: (0, index, 100 + index), now=0.0)
    book.add_devices(rollout=[0], train=[1], pools=True)
    book.rollout[0].version, book.train[1].ready = start.version, True
    return book


def sealed(group_id: int, version: int = 0) -> SealedGroup:
    return SealedGroup(
        group_id=group_id,
        epoch=0,
        item=0,
        version=version,
        prompt="",
        responses=(),
        reward_mean=None,
        started_at=0.0,
        finished_at=0.0,
        data=b"",
    )


def finish(book: Book, *group_ids: int) -> None:
    for group_id in group_ids:
        book.group_finished(sealed(group_id))


def make_step(book: Book, *group_ids: int) -> None:
    book.take(group_ids)
    book.step_done(0.0)


def test_groups_are_numbered_in_starting_order_and_ask_for_the_items_of_the_data_order() -> None:
    book = make_book()
    first, second = book.start_groups(0, 2), book.start_groups(0, 1)
    assert [(r.group_id, r.position, r.item) for r in (*first, *second)] == [(0, 0, 100), (1, 1, 101), (2, 2, 102)]
    assert (book.started, book.in_flight, book.buffered) == (3, 3, 0)


def test_finished_groups_wait_in_the_order_of_completion() -> None:
    book = make_book()
    book.start_groups(0, 3)
    finish(book, 2, 0)
    assert (book.in_flight, book.buffered) == (1, 2)
    by_id = {group.group_id: group for group in book.unconsumed}
    assert by_id[2].order < by_id[0].order
    assert not by_id[1].finished


def test_an_excluded_group_leaves_the_count_and_makes_room_for_another_prompt() -> None:
    book = make_book()
    book.start_groups(0, 2)
    before = book.state().prompts_left
    group = book.group_excluded(sealed(1))
    assert group.index == 1
    assert (book.started, book.excluded, book.in_flight) == (2, 1, 1)
    assert book.state().prompts_left == before + 1


def test_the_version_that_the_worker_reports_counts_from_then_on() -> None:
    book = make_book()
    book.start_groups(0, 1)
    book.group_finished(sealed(0, version=2))
    assert book.unconsumed[0].version == 2


def test_a_group_older_than_the_weights_it_was_started_on_is_a_broken_protocol() -> None:
    book = make_book(StartPoint(version=3))
    book.start_groups(0, 1)
    with pytest.raises(AssertionError, match="older than the weights"):
        book.group_finished(sealed(3 * B, version=2))


def test_a_step_cannot_take_more_than_its_groups() -> None:
    book = make_book()
    book.start_groups(0, B + 1)
    finish(book, *range(B + 1))
    with pytest.raises(AssertionError, match="took more than its 4 groups"):
        book.take(range(B + 1))


@pytest.mark.parametrize(
    ("started", "finished", "taken", "made", "excluded", "expected"),
    [
        pytest.param(3, [], [], [], [], StartPoint(), id="nothing was learnt: from the start"),
        pytest.param(
            6,
            [0, 1, 2, 3, 5],
            [],
            [0, 1, 2, 3],
            [],
            StartPoint(version=1, next_index=6, pending=(4, 5)),
            id="in flight and buffered ones are asked again",
        ),
        pytest.param(
            6,
            [0, 1, 2, 3, 4, 5],
            [4, 5],
            [0, 1, 2, 3],
            [],
            StartPoint(version=1, next_index=6, pending=(4, 5)),
            id="so are those that the unfinished step had taken",
        ),
        pytest.param(
            6,
            [0, 1, 2, 3],
            [],
            [0, 1, 2, 3],
            [5],
            StartPoint(version=1, excluded=1, next_index=6, pending=(4,)),
            id="an exclusion of the unfinished step is final",
        ),
    ],
)
def test_a_run_continues_from_the_last_step_made(
    started: int, finished: list[int], taken: list[int], made: list[int], excluded: list[int], expected: StartPoint
) -> None:
    book = make_book()
    book.start_groups(0, started)
    finish(book, *finished)
    if made:
        make_step(book, *made)
    book.take(taken)
    for group_id in excluded:
        book.group_excluded(sealed(group_id))
    assert book.resume_point == expected


def test_what_was_started_after_the_last_step_is_not_part_of_it_unless_an_exclusion_makes_it_known() -> None:
    book = make_book()
    book.start_groups(0, 4)
    finish(book, 0, 1, 2, 3)
    make_step(book, 0, 1, 2, 3)
    book.start_groups(0, 3)
    assert book.resume_point == StartPoint(version=1, next_index=4)
    book.group_excluded(sealed(5))
    assert book.resume_point == StartPoint(version=1, excluded=1, next_index=7, pending=(4, 6))


def test_groups_that_a_stopping_run_took_back_are_pending() -> None:
    book = make_book()
    book.start_groups(0, 6)
    finish(book, 0, 1, 2, 3)
    make_step(book, 0, 1, 2, 3)
    book.groups_aborted(0, [4, 5])
    assert book.in_flight == 0
    assert book.resume_point.pending == (4, 5)


def test_a_resumed_run_asks_first_for_what_is_pending_and_counts_on() -> None:
    book = make_book(StartPoint(version=2, excluded=1, next_index=12, pending=(7, 10)))
    requests = book.start_groups(0, 4)
    assert [request.position for request in requests] == [7, 10, 12, 13]
    assert [request.group_id for request in requests] == [9, 10, 11, 12]
    assert (book.started - book.excluded, book.steps_left) == (2 * B + 4, 3)


def test_groups_started_under_a_bound_of_0_are_never_continued_under_new_weights() -> None:
    book = make_book(schedule={"staleness": 0.5})
    book.start_groups(0, 1)
    assert book.state().rollout[0].may_update_in_flight
    book.bound = type(book.bound)(staleness=0, prompts_per_step=B)
    book.start_groups(0, 1)
    assert not book.state().rollout[0].may_update_in_flight


def test_a_checkpoint_asked_for_while_the_optimizer_works_is_due_at_the_version_it_makes() -> None:
    book = make_book()
    book.start_groups(0, B)
    finish(book, *range(B))
    book.step.checkpoint_due = True
    make_step(book, *range(B))
    assert book.step.checkpoint_due
