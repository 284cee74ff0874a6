"""Folders that anyone can load as a model and that a run can be resumed from.

Layout: what `save_pretrained` writes (config.json, model.safetensors, tokenizer files), optimizer.pt, trainer.json and,
where a KL term has a reference, reference.npy: its weights, float32 [parameters] in the order of `weights.flatten`.
Where adapters are trained, adapter_config.json and adapter_model.safetensors stand in place of the model's files: the
folder loads while the base model is where it was. `merged/`, where asked for, is the whole model by itself.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import load_file, load_model
from transformers import PreTrainedModel, PreTrainedTokenizerBase
from transformers.utils import logging

from engine.learning.lora import has_adapter, load_adapter, save_merged
from engine.learning.weights import Vector, check_fits, flatten, load_flat
from engine.learning.whole_folder import whole_folder

INDEX = "model.safetensors.index.json"

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
    merged: bool = False,
) -> None:
    """Written beside the target and renamed, so that the folder is whole or absent; an existing one is replaced."""
    logging.disable_progress_bar()  # a worker's log is no terminal
    with whole_folder(folder) as fresh:
        model.save_pretrained(fresh)
        tokenizer.save_pretrained(fresh)
        torch.save(optimizer.state_dict(), fresh / "optimizer.pt")
        if merged and has_adapter(model):
            save_merged(fresh / "merged", model, tokenizer)
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
        _load_weights(folder, model)
        optimizer.load_state_dict(state)
        if reference is not None and vector is not None:
            load_flat(reference, vector)
        return int(about["version"])
    except Exception as error:  # damaged bytes make the readers raise nearly anything
        raise ValueError(f"{folder} cannot be resumed from: {error}") from error


def _load_weights(folder: Path, model: PreTrainedModel) -> None:
    if has_adapter(model):
        load_adapter(folder, model)
    elif (folder / INDEX).exists():  # a large model is saved in several files
        placed = json.loads((folder / INDEX).read_text(encoding="utf-8"))["weight_map"]
        state = {
            name: tensor for part in sorted(set(placed.values())) for name, tensor in load_file(folder / part).items()
        }
        missing, unexpected = model.load_state_dict(state, strict=False)
        tied = set(missing) - set(getattr(model, "all_tied_weights_keys", None) or ())
        if tied or unexpected:
            raise ValueError(f"its weights are not the model's: {sorted([*tied, *unexpected])[:3]}")
    else:
        load_model(model, folder / "model.safetensors")


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
