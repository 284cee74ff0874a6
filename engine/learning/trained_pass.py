"""How a model runs while its gradient is taken: adapters drop out, layers are computed again where that was asked for.

All else stays as in evaluation: no other dropout, so that the policy that learns is the one that answered.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from transformers import PreTrainedModel
from transformers.modeling_layers import GradientCheckpointingLayer

from engine.learning.lora import dropping


def check_checkpointing(model: PreTrainedModel) -> None:
    """Raises ValueError where the model cannot compute its layers again."""
    layers = checkpointed_layers(model)
    for layer in layers:
        for name, value in vars(layer).items():
            if "dropout" in name and isinstance(value, float):
                setattr(layer, name, 0.0)  # some layers drop out by themselves while they are recomputed
    if not layers:
        raise ValueError(
            f"model.gradient_checkpointing true: a model of type {model.config.model_type!r} cannot compute its layers "
            "again; allowed: false"
        )


def checkpointed_layers(model: torch.nn.Module) -> list[GradientCheckpointingLayer]:
    return [module for module in model.modules() if isinstance(module, GradientCheckpointingLayer)]


@contextmanager
def trained_pass(model: PreTrainedModel, *, recompute: bool) -> Iterator[None]:
    """Within it a forward pass is one that is trained on; `recompute`: layers keep only their inputs."""
    layers = checkpointed_layers(model) if recompute else []
    if recompute:
        model.gradient_checkpointing_enable({"use_reentrant": False})
    for layer in layers:
        layer.training = True  # of the layer alone: what is inside of it stays in evaluation and drops nothing out
    try:
        with dropping(model):
            yield
    finally:
        for layer in layers:
            layer.training = False
        if recompute:
            model.gradient_checkpointing_disable()
