from __future__ import annotations

import numpy as np
import pytest

from engine.learning.snapshot import Snapshot
from engine.learning.weights import flatten, nbytes_of
from tests.learning.builders import make_groups, make_model, make_trainer, relative_l2


def empty_snapshot() -> Snapshot:
    moments = np.zeros((0, 0), dtype=np.float32)
    return Snapshot(version=1, parameters=flatten(make_model()), moments=moments, optimizer_steps=0)


def test_an_auxiliary_that_took_the_steps_version_ships_the_gradient_that_the_primary_would_have():
    primary, auxiliary = make_trainer(), make_trainer(make_model(seed=5), optimizer=False)
    alone = make_trainer()
    for version in range(3):
        groups = make_groups(6, seed=version, version=version)
        auxiliary.take(primary.vector(), primary.version)
        primary.accumulate(groups[:2])
        auxiliary.accumulate(groups[2:])
        primary.finish_step([primary.gradient(), auxiliary.gradient()])
        auxiliary.discard()
        alone.accumulate(groups)
        alone.finish_step()
    assert relative_l2(primary.vector(), alone.vector()) <= 1e-6


@pytest.mark.parametrize("optimizer", [True, False], ids=["primary", "auxiliary"])
@pytest.mark.parametrize("deterministic", [True, False])
def test_taking_a_version_forgets_the_gradient_and_copies_read_only_weights(optimizer, deterministic):
    trainer = make_trainer(optimizer=optimizer, deterministic=deterministic)
    trainer.accumulate(make_groups(3))
    vector = flatten(make_model(seed=5))
    vector.setflags(write=False)
    trainer.take(vector, 7)
    assert (trainer.version, trainer.vector().tobytes()) == (7, vector.tobytes())
    assert (trainer.gradient().tokens, float(np.abs(trainer.gradient().vector).sum())) == (0, 0.0)
    assert trainer.accumulate(make_groups(1, version=7)).lag_max == 0


def test_taking_a_version_leaves_the_optimizers_state_alone():
    trainer = make_trainer()
    trainer.accumulate(make_groups(3))
    trainer.finish_step()
    before = trainer.snapshot()
    trainer.take(flatten(make_model(seed=5)), 1)
    after = trainer.snapshot()
    assert (after.optimizer_steps, after.moments.tobytes()) == (1, before.moments.tobytes())


def test_weights_that_do_not_fit_are_refused_and_nothing_changes():
    trainer = make_trainer(optimizer=False)
    trainer.accumulate(make_groups(3))
    before = trainer.gradient()
    with pytest.raises(ValueError, match="do not fit a model"):
        trainer.take(np.zeros(3, dtype=np.float32), 7)
    assert (trainer.version, trainer.gradient().tokens) == (0, before.tokens)


@pytest.mark.parametrize(
    ("call", "purpose"),
    [
        (lambda trainer, folder: trainer.finish_step(), "finish a step"),
        (lambda trainer, folder: trainer.save(folder), "save a checkpoint"),
        (lambda trainer, folder: trainer.load(folder), "load a checkpoint"),
        (lambda trainer, folder: trainer.snapshot(), "take a snapshot"),
        (lambda trainer, folder: trainer.restore(empty_snapshot()), "restore a snapshot"),
    ],
    ids=["finish_step", "save", "load", "snapshot", "restore"],
)
def test_what_needs_an_optimizer_is_refused_and_changes_nothing(call, purpose, tmp_path):
    trainer = make_trainer(optimizer=False)
    trainer.accumulate(make_groups(3))
    tokens = trainer.gradient().tokens
    with pytest.raises(RuntimeError, match=f"an auxiliary trainer cannot {purpose}: it has no optimizer"):
        call(trainer, tmp_path / "x")
    assert (trainer.version, trainer.gradient().tokens) == (0, tokens)
    assert not (tmp_path / "x").exists()


def test_memory_is_that_of_the_weights_the_gradient_and_the_two_moments():
    weights = flatten(make_model()).nbytes
    buffers = nbytes_of(make_model()) - weights
    assert buffers > 0
    assert make_trainer().nbytes == 4 * weights + buffers
    assert make_trainer(optimizer=False).nbytes == 2 * weights + buffers
    assert make_trainer(kl_coef=0.1).nbytes == 5 * weights + 2 * buffers
    apart = make_trainer(deterministic=True)
    apart.accumulate(make_groups(3, rewards=[0, 1, 0, 1]))
    assert apart.nbytes == 6 * weights + buffers
