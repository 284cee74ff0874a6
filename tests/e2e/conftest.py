from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.e2e.service import EngineProcess


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EngineProcess]:
    """One engine for the tests of a file: starting Ray costs seconds."""
    process = EngineProcess(tmp_path_factory.mktemp("data"))
    yield process
    process.stop()
