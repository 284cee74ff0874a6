"""One thread per process, as the engine's workers have it; results then do not depend on the machine's cores."""

from __future__ import annotations

import pytest
import torch


@pytest.fixture(autouse=True, scope="package")
def _one_thread() -> None:
    torch.set_num_threads(1)
