"""The books of a run: the step being filled, where its gradient lies, and who holds the version that it is made at."""

from __future__ import annotations

import pytest

from engine.learning.stats import ChunkStats
from engine.run.book import Book, StartPoint, TrainEntry
from engine.worker.messages import SealedGroup, ShippedGradient
from tests.engine.simulated_run import make_job

B = 4


def make_book(start: StartPoint | None = None, *, trainers: int = 1, **sections: dict[str, object]) -> Book:
    """One rollouter (device 0) with weights, and trainers (devices 1 and on) that are ready."""
    start = start or StartPoint()
    book = Book(make_job(**sections), start, order=lambda index: (0, index, 100 + index), now=0.0)
    book.add_devices(rollout=[0], train=range(1, 1 + trainers), pools=True)
    book.rollout[0].version = start.version
    for device in book.trainers:
        book.at_version(device, start.version)
    return book


def sealed(group_id: int, version: int = 0) -> SealedGroup:
    return SealedGroup(
        group_id=group_id,
        epoch=0,
        item=0,
        version=version,
        prompt="",
        prompt_tokens=3,
        responses=(),
        reward_mean=None,
        started_at=0.0,
        finished_at=0.0,
        data=b"",
    )


def taken(book: Book, count: int = B) -> None:
    """The step takes so many groups."""
    requests = book.groups.start(0, book.step.version, book.bound, count, now=0.0)
    for request in requests:
        book.group_finished(sealed(request.group_id, version=book.step.version))
    book.take(request.group_id for request in requests)


def trained(book: Book, device: int, *group_ids: int) -> None:
    book.hand_chunk(device, group_ids, now=1.0)
    book.chunk_done(device, group_ids, (), ChunkStats(groups=len(group_ids)), now=2.0)


def gradient(name: str) -> ShippedGradient:
    return ShippedGradient(handle=name, tokens=1, keys=())


def test_a_step_cannot_take_more_than_its_groups() -> None:
    book = make_book()
    with pytest.raises(AssertionError, match="took more than its 4 groups"):
        taken(book, B + 1)


def test_a_chunk_leaves_the_queue_when_it_is_handed_out_and_counts_when_it_is_trained() -> None:
    book = make_book()
    taken(book)
    book.hand_chunk(1, (0, 1), now=5.0)
    book.hand_chunk(1, (2,), now=6.0)
    trainer = book.train[1]
    assert (list(book.step.queue), trainer.busy, trainer.busy_since, book.step.trained) == ([3], "chunk", 5.0, 0)
    book.chunk_done(1, (0, 1), (), ChunkStats(groups=2), now=7.0)
    assert (trainer.busy, trainer.busy_since, book.step.trained) == ("chunk", 7.0, 2)
    book.chunk_done(1, (2,), (), ChunkStats(groups=1), now=8.0)
    assert (trainer.busy, book.step.trained, book.step.stats.groups) == (None, 3, 3)


def test_a_steps_sums_are_kept_by_the_role_of_its_trainers_also_where_a_device_changes_its_home() -> None:
    book = make_book(trainers=2)
    taken(book)
    book.train[2].lease = 7
    trained(book, 1, 0)
    trained(book, 2, 1, 2)
    book.train[2].lease = None
    trained(book, 2, 3)
    assert {role: stats.groups for role, stats in book.step.by_role.items()} == {"auxiliary": 2, "primary": 2}
    assert (book.step.stats.groups, book.step.trained, len(book.step.parts)) == (4, 4, 2)


def test_groups_that_a_chunk_gives_back_are_at_the_head_of_the_queue_again_in_their_order() -> None:
    book = make_book()
    taken(book)
    book.hand_chunk(1, (0, 1, 2), now=0.0)
    book.chunk_done(1, (0,), (1, 2), ChunkStats(groups=1), now=1.0)
    assert (list(book.step.queue), book.step.trained) == ([1, 2, 3], 1)


def test_a_chunk_that_reports_other_groups_than_it_was_handed_is_a_broken_protocol() -> None:
    book = make_book()
    taken(book)
    book.hand_chunk(1, (0, 1), now=0.0)
    with pytest.raises(AssertionError, match="was handed"):
        book.chunk_done(1, (0,), (2,), ChunkStats(), now=1.0)


def test_a_gradient_is_shipped_once_and_what_comes_after_it_is_a_part_of_its_own() -> None:
    book = make_book(trainers=2)
    taken(book)
    trained(book, 1, 0)
    book.gradient_shipped(1, gradient("first"))
    assert book.train[1].shipped
    trained(book, 1, 1)
    assert not book.train[1].shipped
    trained(book, 2, 2, 3)
    assert [(part.device, part.groups, part.gradient is not None) for part in book.step.parts] == [
        (1, [0], True),
        (1, [1], False),
        (2, [2, 3], False),
    ]
    assert book.step.trained == B


def test_what_only_a_lost_device_had_accumulated_is_queued_again_and_what_it_shipped_is_kept() -> None:
    book = make_book(trainers=2)
    taken(book)
    trained(book, 1, 0)
    book.gradient_shipped(1, gradient("first"))
    trained(book, 1, 1, 2)
    book.forget_part(1)
    assert (list(book.step.queue), book.step.trained) == ([1, 2, 3], 1)
    book.forget_part(1)
    assert book.step.trained == 1


@pytest.mark.parametrize(
    ("before", "busy"),
    [
        pytest.param([], "gone", id="it has nothing: it goes at once"),
        pytest.param([(0,)], "gradient", id="it has a gradient: it waits until that is shipped"),
    ],
)
def test_a_trainer_leaves_its_role_when_the_engine_has_what_it_accumulated(
    before: list[tuple[int, ...]], busy: str
) -> None:
    book = make_book(trainers=2)
    taken(book)
    for chunk in before:
        trained(book, 2, *chunk)
    book.leave(2)
    assert (book.train[2].busy if 2 in book.train else "gone") == busy
    book.gradient_shipped(2, gradient("late"))
    assert 2 not in book.train
    assert book.step.trained == len(before)


def test_a_trainer_that_leaves_ends_its_chunk_first() -> None:
    book = make_book(trainers=2)
    taken(book)
    book.hand_chunk(2, (0, 1), now=0.0)
    book.leave(2)
    assert (book.train[2].busy, book.train[2].leaving) == ("chunk", True)
    book.chunk_done(2, (0,), (1,), ChunkStats(groups=1), now=1.0)
    assert book.train[2].busy == "gradient"
    book.gradient_shipped(2, gradient("last"))
    assert (2 in book.train, list(book.step.queue), book.step.trained) == (False, [1, 2, 3], 1)


def test_a_primary_takes_part_while_it_holds_the_steps_version_and_joins_when_it_comes_to_it() -> None:
    book = make_book(StartPoint(version=3), trainers=2)
    assert not book.at_version(1, 2)
    assert (list(book.train), list(book.joining)) == ([2], [1])
    assert book.at_version(1, 3)
    assert (list(book.train), list(book.joining)) == ([1, 2], [])


def test_nobody_joins_a_step_while_it_is_being_made() -> None:
    book = make_book(trainers=2)
    book.train.pop(1)
    book.joining[1] = TrainEntry(1)
    book.step.closing_since = 5.0
    assert book.at_version(1, 0), "it is at its version and needs nothing"
    assert (list(book.train), list(book.joining)) == ([2], [1])
    book.step.closing_since = None
    assert book.at_version(1, 0)
    assert list(book.train) == [1, 2]


def test_an_auxiliary_that_is_behind_stays_and_is_not_ready() -> None:
    book = make_book()
    book.train[0] = TrainEntry(0, lease=4)
    assert not book.at_version(0, 1)
    assert (book.train[0].ready, list(book.joining)) == (False, [])


def test_only_those_who_were_told_to_make_a_step_are_at_its_version() -> None:
    book = make_book(trainers=2)
    taken(book)
    book.train[0] = TrainEntry(0, version=0, ready=True, lease=4)
    book.step.finishing = (1, 2)
    for device in (1, 2):
        book.train[device].busy = "optimizer"
    book.step_done(9.0)
    assert {device: (trainer.version, trainer.busy) for device, trainer in book.train.items()} == {
        1: (1, None),
        2: (1, None),
        0: (0, None),
    }


def test_a_checkpoint_asked_for_while_the_optimizer_works_is_due_at_the_version_it_makes() -> None:
    book = make_book()
    taken(book)
    book.step.checkpoint_due = True
    book.step_done(0.0)
    assert (book.step.version, book.step.checkpoint_due) == (1, True)


def test_a_stopping_run_forgets_the_unfinished_step() -> None:
    book = make_book()
    taken(book)
    trained(book, 1, 0)
    book.discard_step()
    assert (book.step.trained, list(book.step.queue), book.groups.resume_point) == (0, [], StartPoint())


def test_fewer_steps_are_left_where_exclusions_use_the_items_up() -> None:
    job = make_job(algorithm={"steps": 4}, task={"items": 16, "epochs": 1})
    book = Book(job, StartPoint(), order=lambda index: (0, index, index), now=0.0, places=16)
    book.add_devices(rollout=[0], train=[1], pools=True)
    assert book.steps_left == 4
    book.groups.start(0, 0, book.bound, 1, now=0.0)
    book.group_excluded(sealed(0))
    assert (book.steps_left, book.started, book.excluded) == (3, 1, 1)
