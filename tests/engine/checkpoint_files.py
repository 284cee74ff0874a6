"""The files that a trainer leaves in a checkpoint, small: whole as far as sizes and headers tell."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import torch
from safetensors.numpy import save_file


def write_files(folder: Path, *, version: int = 1, adapter: bool = False) -> None:
    """Of a model of six weights, or of adapters, with the reference of a KL term."""
    folder.mkdir(parents=True, exist_ok=True)
    name = "adapter_model.safetensors" if adapter else "model.safetensors"
    weights = np.arange(6, dtype=np.float32)
    save_file({"weight": weights}, folder / name)
    if adapter:
        (folder / "adapter_config.json").write_text("{}", encoding="utf-8")
    np.save(folder / "reference.npy", weights)
    torch.save({"state": {0: {"exp_avg": torch.zeros(6)}}}, folder / "optimizer.pt")
    (folder / "trainer.json").write_text(json.dumps({"format": 1, "version": version}), encoding="utf-8")


def cut(file: Path) -> None:
    """As a full disk or a copy that broke off leaves it."""
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])
