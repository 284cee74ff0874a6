"""Checkpoints on disk: whole or not there, the newest ones kept, and a damaged record named."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from engine import checkpoints
from engine.run.book import StartPoint

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
