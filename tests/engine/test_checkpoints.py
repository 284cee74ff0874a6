"""Checkpoints on disk: whole or not there, the newest ones kept, and a damaged record named."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from engine import checkpoints
from engine.run.book import StartPoint
from tests.engine.checkpoint_files import cut, write_files
from tests.learning.builders import make_trainer

POINT = StartPoint(version=50, excluded=3, next_index=1700, pending=(1690, 1695))


def make_checkpoint(root: Path, version: int) -> Path:
    folder = checkpoints.folder_of(root, version)
    folder.mkdir(parents=True)
    checkpoints.complete(folder, StartPoint(version=version))
    return folder


def test_the_newest_checkpoint_gives_its_folder_and_its_start_point(tmp_path: Path) -> None:
    make_checkpoint(tmp_path, 25)
    folder = make_checkpoint(tmp_path, 50)
    checkpoints.complete(folder, POINT)
    assert checkpoints.newest(tmp_path) == (folder, POINT)
    assert folder.name == "step-000050"
    assert list(folder.glob("*.part")) == []


def test_a_folder_without_its_record_is_no_checkpoint(tmp_path: Path) -> None:
    make_checkpoint(tmp_path, 25)
    checkpoints.folder_of(tmp_path, 50).mkdir()
    (checkpoints.folder_of(tmp_path, 50) / "resume.json.part").write_text("{")
    assert [version for version, _ in checkpoints.checkpoints(tmp_path)] == [25]


@pytest.mark.parametrize("name", ["step-50", "step-000050.tmp", "other", "step-abcdef", ".step-000050"])
def test_a_folder_of_another_name_is_no_checkpoint(name: str, tmp_path: Path) -> None:
    (tmp_path / name).mkdir()
    (tmp_path / name / "resume.json").write_text("{}")
    assert checkpoints.checkpoints(tmp_path) == []


def test_a_run_without_checkpoints_has_no_newest_one(tmp_path: Path) -> None:
    assert checkpoints.newest(tmp_path) is None
    assert checkpoints.newest(tmp_path / "missing") is None


def test_checkpoints_are_in_the_order_of_their_versions_also_beyond_a_million(tmp_path: Path) -> None:
    for version in (1_000_000, 2, 999_999, 10):
        make_checkpoint(tmp_path, version)
    assert [version for version, _ in checkpoints.checkpoints(tmp_path)] == [2, 10, 999_999, 1_000_000]


@pytest.mark.parametrize(("keep", "left"), [(1, [4]), (2, [3, 4]), (9, [1, 2, 3, 4])])
def test_only_the_newest_are_kept(keep: int, left: list[int], tmp_path: Path) -> None:
    for version in (1, 2, 3, 4):
        make_checkpoint(tmp_path, version)
    (tmp_path / "notes.txt").write_text("not ours to remove")
    checkpoints.prune(tmp_path, keep)
    assert [version for version, _ in checkpoints.checkpoints(tmp_path)] == left
    assert (tmp_path / "notes.txt").exists()


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("", id="empty"),
        pytest.param("{", id="cut off"),
        pytest.param("[]", id="no mapping"),
        pytest.param("null", id="nothing"),
        pytest.param(json.dumps({"version": 1}), id="pending is missing"),
        pytest.param(json.dumps({"pending": [], "color": "red"}), id="an unknown field"),
    ],
)
def test_a_damaged_record_is_named(text: str, tmp_path: Path) -> None:
    path = make_checkpoint(tmp_path, 50) / "resume.json"
    path.write_text(text)
    with pytest.raises(ValueError, match=r"resume\.json is no record to resume from"):
        checkpoints.newest(tmp_path)


# -- what a run may be resumed from -----------------------------------------------------------------------------------


def make_whole(root: Path, version: int, *, adapter: bool = False) -> Path:
    folder = checkpoints.folder_of(root, version)
    write_files(folder, version=version, adapter=adapter)
    checkpoints.complete(folder, StartPoint(version=version))
    return folder


@pytest.mark.parametrize("adapter", [False, True], ids=["weights", "adapters"])
def test_a_whole_checkpoint_is_resumed_from(adapter: bool, tmp_path: Path) -> None:
    make_whole(tmp_path, 25, adapter=adapter)
    folder = make_whole(tmp_path, 50, adapter=adapter)
    assert checkpoints.resumable(tmp_path) == (folder, StartPoint(version=50))


def test_what_a_trainer_saved_is_whole(tmp_path: Path) -> None:
    folder = checkpoints.folder_of(tmp_path, 0)
    make_trainer(kl_coef=0.1).save(folder)
    checkpoints.complete(folder, StartPoint(version=0))
    assert checkpoints.resumable(tmp_path) == (folder, StartPoint(version=0))


def test_a_run_without_checkpoints_has_none_to_resume_from(tmp_path: Path) -> None:
    assert checkpoints.resumable(tmp_path / "missing") is None


@pytest.mark.parametrize("adapter", [False, True], ids=["weights", "adapters"])
@pytest.mark.parametrize("name", ["model", "optimizer.pt", "reference.npy", "trainer.json", "resume.json"])
def test_a_file_that_was_cut_off_is_named_with_the_newest_whole_checkpoint(
    name: str, adapter: bool, tmp_path: Path
) -> None:
    for version in (10, 20, 30, 40):
        make_whole(tmp_path, version, adapter=adapter)
    if name == "model":
        name = "adapter_model.safetensors" if adapter else "model.safetensors"
    for version in (30, 40):
        cut(checkpoints.folder_of(tmp_path, version) / name)
    with pytest.raises(ValueError) as caught:  # noqa: PT011 - the message is compared below
        checkpoints.resumable(tmp_path)
    told = str(caught.value)
    assert told.startswith(str(checkpoints.folder_of(tmp_path, 40)))
    assert name in told
    assert told.endswith(f"; step-000020 is whole: to continue from it, move step-000040 out of {tmp_path}")
    checkpoints.folder_of(tmp_path, 40).rename(tmp_path / "aside")
    checkpoints.folder_of(tmp_path, 30).rename(tmp_path / "aside too")
    assert checkpoints.resumable(tmp_path) == (checkpoints.folder_of(tmp_path, 20), StartPoint(version=20))


@pytest.mark.parametrize("name", ["model.safetensors", "optimizer.pt", "trainer.json"])
def test_a_file_that_is_missing_is_named(name: str, tmp_path: Path) -> None:
    (make_whole(tmp_path, 10) / name).unlink()
    with pytest.raises(ValueError, match=rf"step-000010 is damaged: .*{name}.*; no older one is whole"):
        checkpoints.resumable(tmp_path)
