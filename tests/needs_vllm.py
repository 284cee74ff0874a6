"""Which tests run only where vLLM is installed, and how loudly they say that they do not."""

from __future__ import annotations

import warnings

import pytest

from engine.learning.vllm.installed import extra_for, problem

MISSING = problem("cpu")

if MISSING:
    warnings.warn(
        f"*** {MISSING}: the tests of the vLLM rollouter are SKIPPED; get it with: {extra_for('cpu')} ***", stacklevel=1
    )

needs_vllm = pytest.mark.skipif(MISSING is not None, reason=f"{MISSING}; get it with: {extra_for('cpu')}")
"""Mark of a test that imports vLLM: a quarter of a minute of one core, and as much to start it."""

VLLM_TIMEOUT_S = 900
"""Such a test may start vLLM on a machine that is busy with others."""
