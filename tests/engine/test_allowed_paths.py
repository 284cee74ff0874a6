"""A job reads from the data folder, its own folder and BIDIRL_ALLOWED_ROOTS, whatever the path looks like."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from engine.allowed_paths import ROOTS_VARIABLE, resolve


@pytest.fixture
def folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("data/models", "job/models", "elsewhere/models", "job-but-longer", "first", "second"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "job" / "link").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "elsewhere" / "link").symlink_to(tmp_path / "job")
    monkeypatch.setenv("HOME", str(tmp_path / "elsewhere"))
    monkeypatch.delenv(ROOTS_VARIABLE, raising=False)
    return tmp_path


@pytest.mark.parametrize(
    ("path", "real"),
    [
        pytest.param("models", "job/models", id="relative to the job file"),
        pytest.param(".", "job", id="the job's folder itself"),
        pytest.param("{root}/data/models", "data/models", id="in the data folder"),
        pytest.param("../data/models", "data/models", id="there on a detour"),
        pytest.param("{root}/elsewhere/link/models", "job/models", id="a link that leads inside"),
    ],
)
def test_a_path_inside_resolves_to_the_real_one(path: str, real: str, folders: Path) -> None:
    found = resolve(path.format(root=folders), base_dir=folders / "job", data_root=folders / "data")
    assert found == folders / real


@pytest.mark.parametrize(
    "path",
    [
        pytest.param("{root}/elsewhere/models", id="absolute"),
        pytest.param("../elsewhere/models", id="upwards"),
        pytest.param("link/models", id="through a link"),
        pytest.param("~/models", id="home"),
        pytest.param("{root}/job-but-longer", id="a folder whose name only begins alike"),
        pytest.param("/", id="everything"),
    ],
)
def test_a_path_that_leads_elsewhere_is_refused_with_what_is_allowed(path: str, folders: Path) -> None:
    given = path.format(root=folders)
    with pytest.raises(ValueError, match="is outside the folders a job may read") as caught:
        resolve(given, base_dir=folders / "job", data_root=folders / "data")
    message = str(caught.value)
    assert repr(given) in message
    assert f"({folders / 'job'}, {folders / 'data'})" in message
    assert message.endswith("name its folder in BIDIRL_ALLOWED_ROOTS")


def test_more_folders_are_named_as_in_path(folders: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(ROOTS_VARIABLE, os.pathsep.join(["", str(folders / "first"), str(folders / "second")]))
    for name in ("first", "second"):
        assert resolve(str(folders / name), base_dir=folders / "job", data_root=folders / "data") == folders / name
    with pytest.raises(ValueError, match="outside"):
        resolve(str(folders / "elsewhere"), base_dir=folders / "job", data_root=folders / "data")


def test_a_path_that_does_not_exist_is_named_with_where_it_was_looked_for(folders: Path) -> None:
    with pytest.raises(ValueError, match=r"'model' does not exist \(looked for .*/job/model\)"):
        resolve("model", base_dir=folders / "job", data_root=folders / "data")
