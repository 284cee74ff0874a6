"""Folders that anyone can load as a model and that a run can be resumed from.

Layout: what `save_pretrained` writes (config.json, model.safetensors, tokenizer files), optimizer.pt, trainer.json and,
where a KL term has a reference, reference.npy: its weights, float32 [parameters] in the order of `weights.flatten`.
Where adapters are trained, adapter_config.json and adapter_model.safetensors stand in place of the model's files: the
folder loads while the base model is where it was, and trainer.json holds the digest of that base: adapters mean nothing
on another one. `merged/`, where asked for, is the whole model by itself.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file
from transformers import PreTrainedModel, PreTrainedTokenizerBase
from transformers.utils import logging

from engine.config.errors import one_line
from engine.learning.lora import ADAPTER_FILE, has_adapter, load_adapter, save_merged
from engine.learning.weights import Vector, check_fits, flatten, load_flat, not_finite
from engine.learning.whole_folder import whole_folder
from engine.models.files import weight_files

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
    base: str | None = None,
) -> None:
    """Written beside the target and renamed, so that the folder is whole or absent; an existing one is replaced.

    `base`: digest of what is frozen (`lora.base_sha256`), where adapters are trained.
    """
    logging.disable_progress_bar()  # a worker's log is no terminal
    with whole_folder(folder) as fresh:
        model.save_pretrained(fresh)
        tokenizer.save_pretrained(fresh)
        torch.save(optimizer.state_dict(), fresh / "optimizer.pt")
        if merged and has_adapter(model):
            save_merged(fresh / "merged", model, tokenizer)
        if reference is not None:
            np.save(fresh / "reference.npy", flatten(reference))
        about = {"format": FORMAT, "version": version} | ({} if base is None else {"base_sha256": base})
        (fresh / "trainer.json").write_text(json.dumps(about), encoding="utf-8")


def load(
    folder: Path,
    model: PreTrainedModel,
    optimizer: torch.optim.Optimizer,
    *,
    reference: PreTrainedModel | None = None,
    base: str | None = None,
) -> tuple[int, tuple[str, ...]]:
    """Copy weights, optimizer state and, where there is one, the reference in; returns the version and what the log
    should say.

    `base`: digest of the model's frozen weights, where it has adapters. Raises ValueError, which names the file, for
    anything but such a folder, for numbers that are not finite, for adapters of another base model, and for a folder
    without reference.npy when a reference is asked for.
    """
    try:
        with _reading("trainer.json"):
            about = json.loads((folder / "trainer.json").read_text(encoding="utf-8"))
            found, version = about["format"], int(about["version"])
        if found != FORMAT:
            raise ValueError(f"trainer.json has format {found}, this version reads {FORMAT}")
        notes = _check_base(about.get("base_sha256"), base, folder)
        with _reading("optimizer.pt"):
            state = torch.load(folder / "optimizer.pt", weights_only=True)
        vector = None if reference is None else _reference_vector(folder, reference)
        _load_weights(folder, model)
        with _reading("optimizer.pt"):
            optimizer.load_state_dict(state)
        if reference is not None and vector is not None:
            load_flat(reference, vector)
        return version, notes
    except Exception as error:  # damaged bytes make the readers raise nearly anything
        raise ValueError(f"{folder} cannot be resumed from: {error}") from error


@contextmanager
def _reading(name: str) -> Iterator[None]:
    """Whatever a reader raises names the file: its own words often do not."""
    try:
        yield
    except Exception as error:
        reason = one_line(error) or type(error).__name__
        raise ValueError(f"{name} cannot be used: {reason}") from error


def _check_base(saved: str | None, base: str | None, folder: Path) -> tuple[str, ...]:
    """Raise ValueError where adapters were trained on other weights than the model's frozen ones; returns a note where
    that cannot be told."""
    if base is None or saved == base:
        return ()
    if saved is None:
        unchecked = (
            f"{folder} does not say which base model its adapters were trained on, for an older version wrote it; that "
            "model.source is still that model is not checked"
        )
        return (unchecked,)
    raise ValueError(
        "its adapters were trained on a base model with other weights than model.source has now (digest "
        f"{saved[:12]}, now {base[:12]}); allowed: the model that the run was started from"
    )


def _load_weights(folder: Path, model: PreTrainedModel) -> None:
    """Nothing is copied unless every file is read and all of it is finite."""
    if has_adapter(model):
        with _reading(ADAPTER_FILE):
            state = load_file(folder / ADAPTER_FILE)
            _check_finite(state)
        load_adapter(state, model)
        return
    state = {}
    for file in weight_files(folder, "its model"):
        with _reading(file.name):
            part = load_file(file)
            _check_finite(part)
        state |= part
    missing, unexpected = model.load_state_dict(state, strict=False)
    foreign = set(missing) - set(getattr(model, "all_tied_weights_keys", None) or ())
    if foreign or unexpected:
        raise ValueError(f"its weights are not the model's: {sorted([*foreign, *unexpected])[:3]}")


def _check_finite(state: dict[str, Any]) -> None:
    if found := not_finite(state.items()):
        raise ValueError(found)


def _reference_vector(folder: Path, reference: PreTrainedModel) -> Vector:
    path = folder / "reference.npy"
    if not path.exists():
        raise ValueError(
            "it has no reference.npy, the policy that algorithm.kl_coef pulls towards: it was saved with kl_coef 0 or "
            "by an older version; allowed: kl_coef 0, or a new run from the model"
        )
    with _reading(path.name):
        vector: Vector = np.load(path, allow_pickle=False)
        check_fits(reference, vector)
        return vector
