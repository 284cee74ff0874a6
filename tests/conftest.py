"""What holds for every test: no Ray unless the test says so, and no data folder but its own."""

from __future__ import annotations

import importlib.machinery
import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest


def refuse_ray(*arguments: Any, **options: Any) -> None:
    raise AssertionError("this test may not start Ray; mark it with @pytest.mark.ray if it must")


class RayGuard(MetaPathFinder):
    """Takes `ray.init` away at the moment a test imports ray, so that nothing imports it for the guard's sake."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self._patch = patch

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if name != "ray":
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path, target)
        if spec is not None and spec.loader is not None:
            execute = spec.loader.exec_module

            def execute_guarded(module: ModuleType) -> None:
                execute(module)
                self._patch.setattr(module, "init", refuse_ray)

            self._patch.setattr(spec.loader, "exec_module", execute_guarded)
        return spec


@pytest.fixture(autouse=True)
def _no_ray(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.node.get_closest_marker("ray") is not None:
        return
    if "ray" in sys.modules:
        monkeypatch.setattr(sys.modules["ray"], "init", refuse_ray)
    else:
        monkeypatch.setattr(sys, "meta_path", [RayGuard(monkeypatch), *sys.meta_path])


@pytest.fixture(autouse=True)
def _own_data_dir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BIDIRL_DATA_DIR", str(tmp_path / "data"))
