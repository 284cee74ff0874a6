"""The policy that the KL term pulls towards, in trainers that were made with other weights than the run's first."""

from __future__ import annotations

import numpy as np
import pytest

from engine.learning.weights import flatten
from tests.learning.builders import make_groups, make_model, make_trainer


def train(trainer, steps: int) -> None:
    for _ in range(steps):
        trainer.accumulate(make_groups(4, seed=trainer.version, version=trainer.version))
        trainer.finish_step()


def test_the_reference_is_the_model_at_construction_and_stays():
    trainer = make_trainer(kl_coef=0.1)
    train(trainer, 1)
    reference = trainer.reference_vector()
    assert reference.tobytes() == flatten(make_model()).tobytes() != trainer.vector().tobytes()
    reference[:] = 0
    assert trainer.reference_vector().tobytes() == flatten(make_model()).tobytes()


def test_a_follower_with_the_runs_reference_computes_the_gradient_of_the_first_replica():
    source, follower = make_trainer(kl_coef=0.1), make_trainer(make_model(seed=5), kl_coef=0.1)
    train(source, 1)
    vector = source.reference_vector()
    vector.setflags(write=False)
    follower.set_reference(vector)
    follower.take(source.vector(), source.version)
    groups = make_groups(3, version=1)
    assert source.accumulate(groups) == follower.accumulate(groups)
    assert source.gradient().vector.tobytes() == follower.gradient().vector.tobytes()


def test_taking_a_version_and_restoring_a_snapshot_leave_the_reference_alone():
    trainer = make_trainer(kl_coef=0.1)
    train(trainer, 1)
    trainer.take(flatten(make_model(seed=5)), 1)
    trainer.restore(trainer.snapshot())
    assert trainer.reference_vector().tobytes() == flatten(make_model()).tobytes()


def test_without_a_kl_term_there_is_no_reference():
    trainer = make_trainer()
    assert trainer.reference_vector() is None
    with pytest.raises(ValueError, match="kl_coef is 0"):
        trainer.set_reference(trainer.vector())


def test_a_reference_that_does_not_fit_is_refused():
    trainer = make_trainer(kl_coef=0.1)
    with pytest.raises(ValueError, match="do not fit a model"):
        trainer.set_reference(np.zeros(3, dtype=np.float32))
    assert trainer.reference_vector().tobytes() == flatten(make_model()).tobytes()


def test_a_run_resumed_in_a_trainer_with_random_weights_equals_one_that_went_on(tmp_path):
    whole, resumed = make_trainer(kl_coef=0.1), make_trainer(make_model(seed=5), kl_coef=0.1)
    train(whole, 2)
    whole.save(tmp_path / "half")
    resumed.load(tmp_path / "half")
    assert resumed.reference_vector().tobytes() == flatten(make_model()).tobytes()
    for trainer in (whole, resumed):
        train(trainer, 2)
    assert resumed.vector().tobytes() == whole.vector().tobytes()


def test_a_folder_without_a_reference_is_refused_only_where_one_is_needed(tmp_path):
    source = make_trainer()
    train(source, 1)
    source.save(tmp_path / "old")
    assert not (tmp_path / "old" / "reference.npy").exists()
    make_trainer().load(tmp_path / "old")
    trainer = make_trainer(kl_coef=0.1)
    with pytest.raises(ValueError, match=r"no reference.npy, the policy that algorithm.kl_coef pulls towards"):
        trainer.load(tmp_path / "old")
    assert (trainer.version, trainer.vector().tobytes()) == (0, flatten(make_model()).tobytes())


def test_a_reference_of_another_model_is_refused_and_changes_nothing(tmp_path):
    source = make_trainer(kl_coef=0.1)
    train(source, 1)
    source.save(tmp_path / "x")
    np.save(tmp_path / "x" / "reference.npy", np.zeros(3, dtype=np.float32))
    trainer = make_trainer(kl_coef=0.1)
    with pytest.raises(ValueError, match=r"cannot be resumed from: .*do not fit a model"):
        trainer.load(tmp_path / "x")
    assert (trainer.version, trainer.vector().tobytes()) == (0, flatten(make_model()).tobytes())


def test_a_folder_with_a_reference_loads_where_none_is_needed(tmp_path):
    make_trainer(kl_coef=0.1, version=2).save(tmp_path / "x")
    trainer = make_trainer()
    trainer.load(tmp_path / "x")
    assert (trainer.version, trainer.reference_vector()) == (2, None)
