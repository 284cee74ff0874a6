"""Folders that anyone can load as a model and that a run can be resumed from.

Layout: what `save_pretrained` writes (config.json, model.safetensors, tokenizer files), optimizer.pt, trainer.json and,
where a KL term has a reference, reference.npy: its weights, float32 [parameters] in the order of `weights.flatten`.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import load_model
from transformers import PreTrainedModel, PreTrainedTokenizerBase
from transformers.utils import logging

from engine.learning.weights import Vector, check_fits, flatten, load_flat
from engine.learning.whole_folder import whole_folder

FORMAT = 1
"""Of trainer.json and optimizer.pt; another number is refused rather than guessed at."""


def save(
    folder: Path,
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    optimizer: torch.optim.Optimizer,
    *,
    version: int,
    reference: PreTrainedModel | None = None,
) -> None:
    """Written beside the target and renamed, so that the folder is whole or absent; an existing one is replaced."""
    logging.disable_progress_bar()  # a worker's log is no terminal
    with whole_folder(folder) as fresh:
        model.save_pretrained(fresh)
        tokenizer.save_pretrained(fresh)
        torch.save(optimizer.state_dict(), fresh / "optimizer.pt")
        if reference is not None:
            np.save(fresh / "reference.npy", flatten(reference))
        (fresh / "trainer.json").write_text(json.dumps({"format": FORMAT, "version": version}), encoding="utf-8")


def load(
    folder: Path,
    model: PreTrainedModel,
    optimizer: torch.optim.Optimizer,
    *,
    reference: PreTrainedModel | None = None,
) -> int:
    """Copy weights, optimizer state and, where there is one, the reference in; returns the version.

    Raises ValueError for anything but such a folder, and for one without reference.npy when a reference is asked for.
    """
    try:
        about = json.loads((folder / "trainer.json").read_text(encoding="utf-8"))
        if about["format"] != FORMAT:
            raise ValueError(f"trainer.json has format {about['format']}, this version reads {FORMAT}")
        state = torch.load(folder / "optimizer.pt", weights_only=True)
        vector = None if reference is None else _reference_vector(folder, reference)
        load_model(model, folder / "model.safetensors")
        optimizer.load_state_dict(state)
        if reference is not None and vector is not None:
            load_flat(reference, vector)
        return int(about["version"])
    except Exception as error:  # damaged bytes make the readers raise nearly anything
        raise ValueError(f"{folder} cannot be resumed from: {error}") from error


def _reference_vector(folder: Path, reference: PreTrainedModel) -> Vector:
    path = folder / "reference.npy"
    if not path.exists():
        raise ValueError(
            "it has no reference.npy, the policy that algorithm.kl_coef pulls towards: it was saved with kl_coef 0 or "
            "by an older version; allowed: kl_coef 0, or a new run from the model"
        )
    vector: Vector = np.load(path, allow_pickle=False)
    check_fits(reference, vector)
    return vector
