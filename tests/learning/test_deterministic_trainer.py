from __future__ import annotations

import dataclasses
import random

import numpy as np
import pytest

from engine.learning import micro_batches
from engine.learning.trainer import Gradient
from tests.learning.builders import MODEL_KINDS, make_groups, make_model, make_trainer, relative_l2


def groups_of(step: int, count: int = 7):
    """Two epochs, so that keys do not sort by position alone; some carry no signal."""
    groups = make_groups(count, seed=step, version=step)
    return [dataclasses.replace(group, epoch=1 - index % 2) for index, group in enumerate(groups)]


def split_run(seed: int, *, steps: int = 3, **settings) -> bytes:
    """Parameters after steps whose groups went to random replicas, in random order and chunks."""
    rng = random.Random(seed)
    primaries = [make_trainer(deterministic=True, **settings) for _ in range(rng.randint(1, 2))]
    auxiliaries = [make_trainer(deterministic=True, optimizer=False, **settings) for _ in range(rng.randint(0, 2))]
    for step in range(steps):
        groups = groups_of(step)
        rng.shuffle(groups)
        for auxiliary in auxiliaries:
            auxiliary.take(primaries[0].vector(), step)
        replicas = [*primaries, *auxiliaries]
        while groups:
            chunk, replica = groups[: rng.randint(1, 4)], rng.choice(replicas)
            if rng.random() < 0.5:
                replica.accumulate(chunk)
                done = len(chunk)
            else:
                _, done = replica.accumulate_until(chunk, lambda: rng.random() < 0.5)
            groups = groups[done:]
        parts = [replica.gradient() for replica in replicas]
        rng.shuffle(parts)
        stats = {primary.finish_step(parts) for primary in primaries}
        assert len(stats) == 1
        assert len({primary.vector().tobytes() for primary in primaries}) == 1
    return primaries[0].vector().tobytes()


@pytest.mark.parametrize("settings", [{}, {"kl_coef": 0.1}], ids=["plain", "with a reference"])
def test_who_trained_what_in_which_order_does_not_change_a_bit(settings, monkeypatch):
    monkeypatch.setattr(micro_batches, "MICRO_BATCH_TOKENS", 60)
    single = make_trainer(deterministic=True, **settings)
    for step in range(3):
        single.accumulate(groups_of(step))
        single.finish_step()
    assert {split_run(seed, **settings) for seed in range(6)} == {single.vector().tobytes()}


@pytest.mark.parametrize("kind", MODEL_KINDS)
def test_it_learns_what_the_ordinary_trainer_learns(kind):
    ordinary, apart = make_trainer(make_model(kind)), make_trainer(make_model(kind), deterministic=True)
    groups = groups_of(0)
    expected, stats = ordinary.accumulate(groups), apart.accumulate(groups)
    assert (stats.tokens, stats.groups, stats.no_signal) == (expected.tokens, expected.groups, expected.no_signal)
    assert stats.loss_sum == pytest.approx(expected.loss_sum, rel=1e-5)
    gradient = apart.gradient()
    assert relative_l2(gradient.vector.sum(axis=0), ordinary.gradient().vector) <= 1e-6
    one, other = apart.finish_step(), ordinary.finish_step()
    assert one.grad_norm == pytest.approx(other.grad_norm, rel=1e-5)
    assert (one.tokens, one.version) == (other.tokens, other.version)
    # the parameters are not compared: a bias of the keys has no gradient but rounding, which AdamW blows up to a step


def test_the_gradient_has_a_row_per_group_with_signal_in_the_order_of_the_data():
    trainer = make_trainer(deterministic=True)
    with_signal = [
        dataclasses.replace(group, epoch=epoch, position=position)
        for group, (epoch, position) in zip(make_groups(3, rewards=[1, 0, 0, 1]), [(1, 0), (0, 9), (0, 4)], strict=True)
    ]
    flat = dataclasses.replace(make_groups(1, rewards=[1, 1, 1, 1])[0], position=5)
    trainer.accumulate([*with_signal[:2], flat])
    trainer.accumulate(with_signal[2:])
    gradient = trainer.gradient()
    assert gradient.keys == ((0, 4), (0, 9), (1, 0))
    assert gradient.vector.shape == (3, len(trainer.vector()))
    for row, group in zip(gradient.vector, reversed(with_signal), strict=True):
        alone = make_trainer()
        alone.accumulate([group])
        assert row.tobytes() == alone.gradient().vector.tobytes()


def test_rows_are_summed_in_the_order_of_the_data_in_float64():
    trainer = make_trainer(deterministic=True, learning_rate=1.0, max_grad_norm=1e30)
    size = len(trainer.vector())

    def part(values: dict[tuple[int, int], float]) -> Gradient:
        rows = np.array([np.full(size, value) for value in values.values()], dtype=np.float32)
        return Gradient(vector=rows, tokens=1, keys=tuple(values))

    # in float32 1e8 + 1 is 1e8: any order but float64's would lose the ones
    step = trainer.finish_step([part({(0, 2): -1e8, (0, 1): 1.0}), part({(0, 0): 1e8, (1, 0): 1.0})])
    assert step.grad_norm == pytest.approx(np.sqrt(size))  # (1e8 + 1 - 1e8 + 1) / 2 tokens = 1 in each place


def test_nothing_accumulated_and_what_was_discarded_are_no_rows():
    trainer = make_trainer(deterministic=True)
    size = len(trainer.vector())
    for _ in range(2):
        gradient = trainer.gradient()
        assert (gradient.vector.shape, gradient.keys, gradient.tokens) == ((0, size), (), 0)
        trainer.accumulate(groups_of(0))
        trainer.discard()
    trainer.accumulate(groups_of(0))
    trainer.finish_step()
    assert trainer.gradient().keys == ()
    assert trainer.finish_step().grad_norm is None


def test_a_group_trained_twice_is_refused_and_the_step_stays_open():
    one, other = make_trainer(deterministic=True), make_trainer(deterministic=True)
    groups = make_groups(3, rewards=[1, 0, 0, 1])
    one.accumulate(groups[:2])
    other.accumulate(groups[1:])
    before = one.vector().tobytes()
    with pytest.raises(ValueError, match="epoch 0, position 1 was trained twice"):
        one.finish_step([one.gradient(), other.gradient()])
    assert (one.version, one.vector().tobytes(), one.gradient().keys) == (0, before, ((0, 0), (0, 1)))
    with pytest.raises(ValueError, match=r"\[\(0, 1\)\] would be trained twice"):
        one.accumulate([groups[2], groups[1]])
    assert one.gradient().keys == ((0, 0), (0, 1))


def test_a_gradient_that_is_not_one_row_per_group_is_refused():
    trainer, ordinary = make_trainer(deterministic=True), make_trainer()
    ordinary.accumulate(make_groups(3, rewards=[1, 0, 0, 1]))
    with pytest.raises(ValueError, match="for 0 groups: a deterministic trainer takes one row per group"):
        trainer.finish_step([ordinary.gradient()])
    assert trainer.version == 0


def test_a_snapshot_continues_bitwise_in_deterministic_mode_too():
    first, second = make_trainer(deterministic=True), make_trainer(make_model(seed=5), deterministic=True)
    first.accumulate(groups_of(0))
    first.finish_step()
    second.restore(first.snapshot())
    for trainer in (first, second):
        trainer.accumulate(groups_of(1))
        trainer.finish_step()
    assert second.vector().tobytes() == first.vector().tobytes()


def test_a_group_that_fails_half_way_leaves_nothing_in_the_next_ones_row(monkeypatch):
    monkeypatch.setattr(micro_batches, "MICRO_BATCH_TOKENS", 20)
    trainer, expected = make_trainer(deterministic=True), make_trainer(deterministic=True)
    first, second = make_groups(2, rewards=[1, 0, 0, 1])
    backward, calls = trainer._loss.backward, iter([False, True])

    def fail_at_the_second(batch):
        if next(calls, False):
            raise MemoryError
        return backward(batch)

    monkeypatch.setattr(trainer._loss, "backward", fail_at_the_second)
    with pytest.raises(MemoryError):
        trainer.accumulate([first])
    assert trainer.gradient().keys == ()
    for one in (trainer, expected):
        one.accumulate([second, first])
    assert trainer.gradient().vector.tobytes() == expected.gradient().vector.tobytes()
    assert trainer.gradient().tokens == expected.gradient().tokens
