from __future__ import annotations

import dataclasses
from collections.abc import Callable

import numpy as np
import pytest

from engine.learning import micro_batches
from engine.learning.stats import ChunkStats
from tests.learning.builders import make_groups, make_trainer, relative_l2


def stop_at(question: int) -> Callable[[], bool]:
    """Says yes when asked for the n-th time, from 1, and ever after."""
    asked = iter(range(1, 1000))
    return lambda: next(asked) >= question


@pytest.fixture
def small_batches(monkeypatch):
    """Of about one of `make_groups`' groups."""
    monkeypatch.setattr(micro_batches, "MICRO_BATCH_TOKENS", 60)


@pytest.mark.usefixtures("small_batches")
@pytest.mark.parametrize("deterministic", [True, False])
def test_without_a_stop_it_is_accumulate(deterministic):
    groups = make_groups(7)
    until, whole = make_trainer(deterministic=deterministic), make_trainer(deterministic=deterministic)
    stats, done = until.accumulate_until(groups, lambda: False)
    expected = whole.accumulate(groups)
    assert done == 7
    assert (stats.groups, stats.tokens, stats.no_signal) == (expected.groups, expected.tokens, expected.no_signal)
    assert stats.loss_sum == pytest.approx(expected.loss_sum, rel=1e-5)
    assert until.gradient().tokens == whole.gradient().tokens
    assert relative_l2(until.gradient().vector, whole.gradient().vector) <= 1e-6


@pytest.mark.usefixtures("small_batches")
@pytest.mark.parametrize("question", [1, 2, 4])
def test_a_stop_keeps_the_groups_before_it_and_the_rest_can_be_trained_elsewhere(question):
    groups = make_groups(9, rewards=[1, 0, 0, 1])
    first, second, whole = make_trainer(), make_trainer(), make_trainer()
    stats, done = first.accumulate_until(groups, stop_at(question))
    assert question <= done < 9
    assert stats.groups == done
    rest = second.accumulate(groups[done:])
    expected = whole.accumulate(groups)
    assert (stats + rest).tokens == expected.tokens
    together = first.gradient().vector + second.gradient().vector
    assert relative_l2(together, whole.gradient().vector) <= 1e-6


def test_the_first_bundle_is_trained_without_a_question_and_a_bundle_is_one_micro_batch():
    groups = make_groups(4, rewards=[1, 0, 0, 1])  # far fewer tokens than one micro batch

    def never() -> bool:
        raise AssertionError("asked")

    stats, done = make_trainer().accumulate_until(groups, never)
    assert (stats.groups, done) == (4, 4)


def test_no_groups_are_no_work():
    assert make_trainer().accumulate_until([], lambda: True) == (ChunkStats(), 0)


@pytest.mark.usefixtures("small_batches")
def test_a_group_that_cannot_be_trained_on_is_refused_before_the_first_bundle():
    trainer = make_trainer()
    good, bad = make_groups(8, rewards=[1, 0, 0, 1]), make_groups(1, version=3)
    with pytest.raises(ValueError, match="has version 3, the trainer only 0"):
        trainer.accumulate_until([*good, *bad], lambda: False)
    assert (trainer.gradient().tokens, float(np.abs(trainer.gradient().vector).max())) == (0, 0.0)


@pytest.mark.usefixtures("small_batches")
def test_groups_without_signal_are_counted_in_the_prefix():
    flat = make_groups(5, rewards=[1, 1, 1, 1])
    last = dataclasses.replace(make_groups(1, rewards=[1, 0, 0, 1])[0], position=5)
    stats, done = make_trainer().accumulate_until([*flat, last], lambda: True)
    assert (stats.groups, stats.no_signal, done) == (6, 5, 6)
