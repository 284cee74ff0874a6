"""Low-rank adapters on a loaded model, through peft: put on, told apart from what is frozen, saved and added in.

The adapted layers stay as they are wherever the model works: a rollouter computes W x + B A x like the trainer, so both
have the same policy to the last bit, and new weights are those of the adapters alone.
"""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, PreTrainedModel, PreTrainedTokenizerBase

from engine.config import LoraConfig
from engine.config.errors import one_line
from engine.models.source import LORA_INSTALL, needs_package

ADAPTER = "default"
"""The name that peft gives a model's only adapter."""

ADAPTER_FILE = "adapter_model.safetensors"
"""The file that peft saves adapters in."""


def add_adapter(model: PreTrainedModel, config: LoraConfig, *, seed: int) -> None:
    """Freeze the model and put fresh adapters on it, in float32: A from the seed, B zero, so that nothing changes yet.

    Raises ValueError where peft is not installed, or a target names no layer that can be adapted.
    """
    needs_package("peft", "model.lora: it", LORA_INSTALL)
    from peft import LoraConfig as PeftConfig

    targets = config.targets if isinstance(config.targets, str) else list(config.targets)
    wanted = PeftConfig(
        r=config.r,
        lora_alpha=config.alpha,  # type: ignore[arg-type]  # any number
        target_modules=targets,
        lora_dropout=config.dropout,
        task_type="CAUSAL_LM",
    )
    layers = [name for name, part in model.named_modules() if is_linear(part)]
    allowed = f"allowed: all-linear, or of {', '.join(sorted({name.rpartition('.')[2] for name in layers}))}"
    unknown = [
        target
        for target in ([] if isinstance(targets, str) else targets)
        if not any(name == target or name.endswith(f".{target}") for name in layers)
    ]
    if unknown:  # the library only minds when none of them is found
        raise ValueError(f"model.lora.targets: {unknown[0]!r} names no linear layer of the model; {allowed}")
    try:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            model.add_adapter(wanted)
    except ValueError as error:
        raise ValueError(
            f"model.lora.targets {config.targets!r} cannot be adapted: {one_line(error, 200)}; {allowed}"
        ) from error
    for parameter in model.parameters():
        if parameter.requires_grad:
            parameter.data = parameter.data.float()
    model.eval()


def is_linear(module: torch.nn.Module) -> bool:
    """A layer with a matrix; some models have one of their own in place of torch's."""
    return isinstance(module, torch.nn.Linear) or type(module).__name__ == "Conv1D"


def has_adapter(model: torch.nn.Module) -> bool:
    """Whether adapters are what is trained."""
    return bool(getattr(model, "_hf_peft_config_loaded", False))


def base_sha256(model: PreTrainedModel) -> str | None:
    """Hex digest of what adapters are put on: names, shapes and values of the frozen weights; None without adapters.

    Of the values as bfloat16, so that a base is the same whatever type it computes in. Takes 1.6 CPU seconds a billion
    weights.
    """
    if not has_adapter(model):
        return None
    digest = hashlib.sha256()
    for name, parameter in model.named_parameters():
        if not parameter.requires_grad:
            digest.update(f"{name.replace('.base_layer.', '.')} {tuple(parameter.shape)}\n".encode())
            values = parameter.detach().to(torch.bfloat16).contiguous().view(-1)
            digest.update(values.view(torch.uint8).cpu().numpy().data)
    return digest.hexdigest()


def reference_copy(model: PreTrainedModel) -> PreTrainedModel:
    """A model of its own that shares what is frozen, which never changes, and copies what is trained."""
    return copy.deepcopy(model, {id(p): p for p in model.parameters() if not p.requires_grad})


@contextmanager
def dropping(model: torch.nn.Module) -> Iterator[None]:
    """Adapters drop out within, and nothing else of the model does."""
    layers = [
        module
        for name, module in model.named_modules()
        if ".lora_dropout." in name and isinstance(module, torch.nn.Dropout)
    ]
    for layer in layers:
        layer.train()
    try:
        yield
    finally:
        for layer in layers:
            layer.eval()


def merged_weights(model: PreTrainedModel) -> dict[str, torch.Tensor]:
    """Of the model without adapters that computes the same: its own names, W + alpha / r * B A in place of W."""
    from peft.tuners.lora import LoraLayer

    merged = {}
    for name, tensor in model.state_dict().items():
        if ".lora_" in name:
            continue
        layer = model.get_submodule(name.rpartition(".base_layer.")[0]) if ".base_layer." in name else None
        if isinstance(layer, LoraLayer) and name.endswith(".weight"):
            tensor = tensor + layer.get_delta_weight(ADAPTER).to(tensor.dtype)
        merged[name.replace(".base_layer.", ".")] = tensor
    return merged


def save_merged(folder: Path, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> None:
    """A folder of a model without adapters."""
    with torch.device("meta"):
        whole = AutoModelForCausalLM.from_config(model.config)
    whole.load_state_dict(merged_weights(model), assign=True)
    whole.tie_weights()
    whole.generation_config = model.generation_config
    whole.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def load_adapter(state: Mapping[str, torch.Tensor], model: PreTrainedModel) -> None:
    """Copy the weights of an adapter's file in. Raises ValueError when they are of another shape or number."""
    from peft.utils import get_peft_model_state_dict, set_peft_model_state_dict

    own = get_peft_model_state_dict(model)
    state = {name.removeprefix("base_model.model."): tensor for name, tensor in state.items()}
    if {name: tensor.shape for name, tensor in own.items()} != {name: tensor.shape for name, tensor in state.items()}:
        raise ValueError("its adapter has other layers or another rank than model.lora says")
    set_peft_model_state_dict(model, state)
