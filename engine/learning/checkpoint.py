"""Folders that anyone can load as a model and that a run can be resumed from.

Layout: what `save_pretrained` writes (config.json, model.safetensors, tokenizer files), optimizer.pt and trainer.json.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from pathlib import Path

import torch
from safetensors.torch import load_model
from transformers import PreTrainedModel, PreTrainedTokenizerBase
from transformers.utils import logging

FORMAT = 1
"""Of trainer.json and optimizer.pt; another number is refused rather than guessed at."""


def save(
    folder: Path,
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    optimizer: torch.optim.Optimizer,
    *,
    version: int,
) -> None:
    """Written beside the target and renamed, so that the folder is whole or absent; an existing one is replaced."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    fresh = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
    logging.disable_progress_bar()  # a worker's log is no terminal
    try:
        model.save_pretrained(fresh)
        tokenizer.save_pretrained(fresh)
        torch.save(optimizer.state_dict(), fresh / "optimizer.pt")
        (fresh / "trainer.json").write_text(json.dumps({"format": FORMAT, "version": version}), encoding="utf-8")
        fresh.chmod(0o755)  # mkdtemp's folder is the owner's alone
        if folder.exists():
            shutil.rmtree(folder)
        os.replace(fresh, folder)
    finally:
        shutil.rmtree(fresh, ignore_errors=True)


def load(folder: Path, model: PreTrainedModel, optimizer: torch.optim.Optimizer) -> int:
    """Copy weights and optimizer state in; returns the version. Raises ValueError for anything but such a folder."""
    try:
        about = json.loads((folder / "trainer.json").read_text(encoding="utf-8"))
        if about["format"] != FORMAT:
            raise ValueError(f"trainer.json has format {about['format']}, this version reads {FORMAT}")
        state = torch.load(folder / "optimizer.pt", weights_only=True)
        load_model(model, folder / "model.safetensors")
        optimizer.load_state_dict(state)
        return int(about["version"])
    except Exception as error:  # damaged bytes make the readers raise nearly anything
        raise ValueError(f"{folder} cannot be resumed from: {error}") from error
