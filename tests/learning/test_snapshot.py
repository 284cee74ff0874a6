from __future__ import annotations

import dataclasses
import pickle

import numpy as np
import pytest

from engine.learning import snapshot as snapshots
from engine.learning.snapshot import Snapshot
from engine.learning.weights import flatten
from tests.learning.builders import make_groups, make_model, make_trainer

SETTINGS = {"lr_schedule": "linear", "lr_warmup_steps": 3, "weight_decay": 0.1}


def train(trainer, steps: int, **fields) -> None:
    for _ in range(steps):
        trainer.accumulate(make_groups(4, seed=trainer.version, version=trainer.version, **fields))
        trainer.finish_step()


def frozen(snapshot: Snapshot) -> Snapshot:
    """As it comes out of shared memory."""
    copy = pickle.loads(pickle.dumps(snapshot))
    for array in (copy.parameters, copy.moments):
        array.setflags(write=False)
    return copy


def written(folder, snapshot: Snapshot) -> None:
    snapshots.write(folder, lambda files: snapshot)


def through_files(trainer, folder) -> Snapshot:
    snapshots.write(folder / "step", lambda files: trainer.snapshot(arrays=files))
    return snapshots.read(folder / "step")


@pytest.mark.parametrize("taken_after", [0, 1, 2])
@pytest.mark.parametrize("used", [False, True], ids=["in a new trainer", "in one that trained on"])
@pytest.mark.parametrize("files", [False, True], ids=["memory", "files"])
@pytest.mark.parametrize("kind", ["tied", "untied, shared keys"])
def test_a_restored_trainer_goes_on_bitwise_as_the_first_one(kind, files, used, taken_after, tmp_path):
    first, second = make_trainer(make_model(kind), **SETTINGS), make_trainer(make_model(kind, seed=5), **SETTINGS)
    train(first, taken_after)
    snapshot = through_files(first, tmp_path) if files else frozen(first.snapshot())
    train(first, 3 - taken_after)
    if used:
        train(second, 2)
        second.accumulate(make_groups(2, version=2))
    second.restore(snapshot)
    assert (second.version, second.gradient().tokens) == (taken_after, 0)
    train(second, 3 - taken_after)
    assert second.vector().tobytes() == first.vector().tobytes()
    assert second.snapshot().moments.tobytes() == first.snapshot().moments.tobytes()
    assert second.version == 3


def test_a_snapshot_is_a_copy_that_further_steps_leave_alone():
    trainer = make_trainer()
    train(trainer, 1)
    snapshot = trainer.snapshot()
    before = pickle.dumps(snapshot)
    train(trainer, 1)
    assert pickle.dumps(snapshot) == before
    restored = make_trainer()
    restored.restore(snapshot)
    train(restored, 1)
    assert pickle.dumps(snapshot) == before


def test_before_the_first_update_there_are_no_moments():
    snapshot = make_trainer(version=4).snapshot()
    assert (snapshot.version, snapshot.moments.shape, snapshot.optimizer_steps) == (4, (0, 0), 0)
    assert snapshot.nbytes == snapshot.parameters.nbytes == flatten(make_model()).nbytes


def test_steps_without_a_token_to_learn_from_are_no_steps_of_the_optimizer():
    trainer = make_trainer()
    train(trainer, 1)
    train(trainer, 2, rewards=[1, 1, 1, 1])
    snapshot = trainer.snapshot()
    assert (snapshot.version, snapshot.optimizer_steps) == (3, 1)
    assert snapshot.moments.shape == (2, len(snapshot.parameters))
    assert snapshot.nbytes == 3 * snapshot.parameters.nbytes


def test_a_checkpoint_and_a_snapshot_hold_the_same_optimizer(tmp_path):
    trainer, loaded = make_trainer(), make_trainer()
    train(trainer, 2)
    trainer.save(tmp_path / "x")
    loaded.load(tmp_path / "x")
    assert pickle.dumps(loaded.snapshot()) == pickle.dumps(trainer.snapshot())


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"parameters": np.zeros(3, dtype=np.float32)}, r"shape \(3,\) do not fit"),
        ({"parameters": flatten(make_model()).astype(np.float64)}, "float64, only float32"),
        ({"moments": np.zeros((2, 3), dtype=np.float32)}, r"moments of float32 \(2, 3\) after 1 optimizer steps"),
        ({"moments": np.zeros((0, 0), dtype=np.float32)}, r"moments of float32 \(0, 0\) after 1 optimizer steps"),
        ({"optimizer_steps": 0}, r"after 0 optimizer steps do not fit the model: float32 \(0, 0\) would"),
    ],
    ids=["parameters", "type", "moments", "no moments", "no steps"],
)
def test_a_snapshot_that_does_not_fit_is_refused_and_changes_nothing(changes, match):
    source, trainer = make_trainer(), make_trainer()
    train(source, 1)
    trainer.accumulate(make_groups(2))
    before = (pickle.dumps(trainer.snapshot()), trainer.gradient().tokens)
    with pytest.raises(ValueError, match=match):
        trainer.restore(dataclasses.replace(source.snapshot(), **changes))
    assert (pickle.dumps(trainer.snapshot()), trainer.gradient().tokens) == before


def test_writing_replaces_what_was_there_and_leaves_nothing_beside_it(tmp_path):
    trainer = make_trainer()
    written(tmp_path / "run" / "last", trainer.snapshot())
    train(trainer, 1)
    written(tmp_path / "run" / "last", trainer.snapshot())
    assert [path.name for path in (tmp_path / "run").iterdir()] == ["last"]
    assert snapshots.read(tmp_path / "run" / "last").version == 1


def test_a_write_that_fails_leaves_the_older_folder_and_nothing_else(tmp_path, monkeypatch):
    written(tmp_path / "last", make_trainer(version=3).snapshot())

    def fail(*_args) -> None:
        raise OSError("disk full")

    monkeypatch.setattr(np, "save", fail)
    with pytest.raises(OSError, match="disk full"):
        written(tmp_path / "last", make_trainer(version=4).snapshot())
    assert [path.name for path in tmp_path.iterdir()] == ["last"]
    assert snapshots.read(tmp_path / "last").version == 3


def test_moments_lie_in_their_file_alone_and_a_disk_without_room_for_them_is_told(tmp_path, monkeypatch):
    trainer = make_trainer()
    train(trainer, 1)
    taken = snapshots.write(tmp_path / "last", lambda files: trainer.snapshot(arrays=files))
    assert isinstance(taken.moments, np.memmap)
    assert snapshots.read(tmp_path / "last").moments.tobytes() == trainer.snapshot().moments.tobytes()

    def full(*_args) -> None:
        raise OSError("no space left")

    monkeypatch.setattr(snapshots.os, "posix_fallocate", full)
    train(trainer, 1)
    with pytest.raises(OSError, match="no space left"):
        snapshots.write(tmp_path / "last", lambda files: trainer.snapshot(arrays=files))
    assert snapshots.read(tmp_path / "last").version == 1


@pytest.mark.parametrize(
    ("damage", "match"),
    [
        (lambda folder: (folder / "snapshot.json").unlink(), "snapshot.json"),
        (lambda folder: (folder / "moments.npy").unlink(), "moments.npy"),
        (lambda folder: (folder / "parameters.npy").write_bytes(b"short"), "cannot be restored from"),
        (lambda folder: (folder / "snapshot.json").write_text('{"format": 9}'), "format 9, this version reads 1"),
    ],
    ids=["no snapshot.json", "no moments", "broken", "newer format"],
)
def test_a_folder_that_is_not_whole_is_refused(damage, match, tmp_path):
    written(tmp_path / "x", make_trainer().snapshot())
    damage(tmp_path / "x")
    with pytest.raises(ValueError, match=match):
        snapshots.read(tmp_path / "x")


def test_only_the_newest_snapshots_of_a_run_are_kept(tmp_path):
    taken = make_trainer().snapshot()
    for version in (2, 9, 10, 11):
        written(snapshots.folder_of(tmp_path, version), taken)
    snapshots.prune(tmp_path, keep=2)
    assert sorted(tmp_path.iterdir()) == [snapshots.folder_of(tmp_path, version) for version in (10, 11)]
    snapshots.prune(tmp_path / "none", keep=2)
