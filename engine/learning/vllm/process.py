"""Bringing vLLM into this process: what must be set before it is imported, and what it must not keep changed.

Import it from here only, and only where it is used.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from engine.config.errors import one_line
from engine.learning.vllm.installed import distribution, extra_for, import_problem

logger = logging.getLogger(__name__)

REQUIRED = {
    # the engine in this process: its step is ours to call, and nothing crosses a process boundary
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    # the model runner that takes our kind of logits processor (drawing.py); the newer one, GPUs' default, has another
    "VLLM_USE_V2_MODEL_RUNNER": "0",
}
"""Set whatever the environment says: nothing here works otherwise."""

DEFAULTS = {"VLLM_NO_USAGE_STATS": "1", "VLLM_LOGGING_LEVEL": "ERROR"}
"""Set where the environment does not say otherwise."""


def import_vllm() -> float:
    """Import it; returns the seconds that took, none the second time. Raises ValueError where it does not import."""
    begin = time.perf_counter()
    if distribution() is None:
        raise ValueError(f"devices.rollouter vllm: vLLM is not installed; get it with: {extra_for(_kind())}")
    os.environ.update(REQUIRED)
    for name, value in DEFAULTS.items():
        os.environ.setdefault(name, value)
    try:
        import vllm
        import vllm._custom_ops as ops
    except (ImportError, RuntimeError, OSError) as error:
        why = import_problem() or one_line(error)
        raise ValueError(f"devices.rollouter vllm: vLLM does not import: {why}; see bidirl doctor") from error
    # packed copies of the linear weights would not see an update of what they were packed from, and a tied output
    # layer would silently keep the old one; without them the weights stay where they are, and are what is used
    ops._supports_onednn = False
    logger.info("vLLM %s was imported in %.1f s.", vllm.__version__, time.perf_counter() - begin)
    return time.perf_counter() - begin


@contextmanager
def keeping_threads() -> Iterator[None]:
    """vLLM binds threads to cores as if the machine were its own, and takes `torch.set_num_threads` away: both are
    undone, since the other role shares this process, and the worker its machine."""
    cores, threads, set_threads = os.sched_getaffinity(0), torch.get_num_threads(), torch.set_num_threads
    try:
        yield
    finally:
        torch.set_num_threads = set_threads
        for thread in os.listdir("/proc/self/task"):
            try:
                os.sched_setaffinity(int(thread), cores)
            except ProcessLookupError:  # it ended meanwhile
                continue
        set_threads(threads)


def _kind() -> str:
    return "cuda" if torch.cuda.is_available() else "cpu"
