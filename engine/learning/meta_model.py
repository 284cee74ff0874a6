"""A folder's model without its numbers: built from config.json on the meta device and held against what the files hold.

Exact, for transformers itself builds the model and places the weights, and cheap, for neither takes memory. Refuses
what is no causal language model, what needs code that comes with the folder, and weights of another model than
config.json describes: transformers would leave out what it has no place for, and draw at random what is missing.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM, PretrainedConfig, PreTrainedModel
from transformers.conversion_mapping import get_model_conversion_mapping
from transformers.modeling_utils import LoadStateDictConfig
from transformers.models.auto.configuration_auto import CONFIG_MAPPING_NAMES
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING
from transformers.utils import logging

from engine.config.errors import one_line
from engine.models.files import ModelFiles, read_config, weight_files

ALLOWED = "allowed: a causal language model (a decoder alone), such as one of type llama, qwen3 or gpt2"

CAUSAL_TYPES = ("gpt_neox", "gpt_neox_japanese")
"""Their configurations say `is_decoder: false`, which they never look at."""

SEES_AHEAD = 1e-2
"""Of the largest logit: a batch's rows differ by rounding alone, 4e-3 in bfloat16, where no token sees ahead."""

LAYER = re.compile(r"(?:^|\.)(?:layers|h|layer|blocks)\.(\d+)\.")
"""Number of a layer in the name of a weight."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Placed:
    """What became of a folder's weights when they were put into the model; empty three times where all is well."""

    missing: Collection[str]
    """Weights of the model that no file holds; tied ones are not among them."""
    left_over: Collection[str]
    """Weights of the files that the model has no place for; buffers that it computes itself are not among them."""
    mismatched: Collection[tuple[str, tuple[int, ...], tuple[int, ...]]]
    """Name, shape in the files, shape by config.json."""


def model_config(folder: Path, where: str) -> PretrainedConfig:
    """Raises ValueError for a type that transformers does not know, that needs code of its own, or is no decoder."""
    document = read_config(folder, where)
    kind = document["model_type"]
    if kind not in CONFIG_MAPPING_NAMES:
        if "auto_map" in document:
            raise ValueError(
                f"{where}: model_type {kind!r} needs code that comes with the folder (auto_map in config.json), which "
                f"is never run; {ALLOWED}"
            )
        known = f"none of the {len(CONFIG_MAPPING_NAMES)} that transformers {version('transformers')} knows"
        raise ValueError(f"{where}: model_type {kind!r} is {known}; {ALLOWED}")
    try:
        config: PretrainedConfig = AutoConfig.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
    except Exception as error:  # the library raises its own, and whatever a wrong value runs into
        raise ValueError(f"{where}: config.json cannot be used: {one_line(error)}") from error
    if config.is_encoder_decoder:
        raise ValueError(f"{where}: model_type {kind!r} is an encoder with a decoder; {ALLOWED}")
    if type(config) not in MODEL_FOR_CAUSAL_LM_MAPPING:
        raise ValueError(f"{where}: model_type {kind!r} has no causal language model in transformers; {ALLOWED}")
    return config


def meta_model(config: PretrainedConfig, where: str) -> PreTrainedModel:
    """The model, without memory for its weights. Raises ValueError for one that sees what comes after a token."""
    try:
        with torch.device("meta"):
            model: PreTrainedModel = AutoModelForCausalLM.from_config(config, trust_remote_code=False)
    except Exception as error:  # the library raises its own, and whatever a wrong value runs into
        raise ValueError(f"{where}: no model can be made of its config.json: {one_line(error)}") from error
    text = model.config.get_text_config(decoder=True)  # some decoders set what their file leaves open
    sees_all = getattr(text, "use_bidirectional_attention", None) in (True, "all")
    encoder = getattr(text, "is_decoder", None) is False and text.model_type not in CAUSAL_TYPES
    if encoder or sees_all:
        names = ", ".join(config.architectures or ()) or "no architecture named"
        reason = "is_decoder is false" if encoder else "use_bidirectional_attention is true"
        raise ValueError(
            f"{where}: it is an encoder, whose tokens see what comes after them ({names}; {reason} in config.json); "
            f"{ALLOWED}"
        )
    return model


def declares_causal(model: PreTrainedModel) -> bool:
    """Whether its attention says of itself that a token sees nothing behind it; older models say nothing."""
    return any(getattr(module, "is_causal", None) is True for module in model.modules())


@torch.no_grad()
def check_causal(model: PreTrainedModel, where: str) -> None:
    """Raises ValueError for a loaded model in which another last token changes what was computed for those before."""
    ids = torch.tensor([[0, 1, 2], [0, 1, 3]], device=model.device) % model.config.get_text_config().vocab_size
    first, second = model(input_ids=ids, use_cache=False).logits[:, :-1].float()
    if (first - second).abs().max() > SEES_AHEAD * first.abs().max():
        raise ValueError(f"{where}: what it computes for a token depends on the tokens after it; {ALLOWED}")


def check_weights(model: PreTrainedModel, files: ModelFiles, where: str) -> None:
    """Raises ValueError unless the files hold the weights of this model, which is on the meta device: all of them, of
    its shapes, and nothing else."""
    stored = files.shapes or _pickled_shapes(files.folder, where)
    check_placed(_place(model, stored, where), stored, model.config, where)


def check_placed(placed: Placed, stored: Iterable[str], config: PretrainedConfig, where: str) -> None:
    """Raises ValueError with what does not belong together; `stored`: names of the files' weights."""
    parts = []
    if placed.mismatched:
        name, found, wanted = sorted(placed.mismatched)[0]
        more = len(placed.mismatched) - 1
        others = f", and so {more} more" if more else ""
        parts.append(f"{name} is {list(found)} in the files and {list(wanted)} by config.json{others}")
    for names, what in (
        (placed.missing, "of the model in no file"),
        (placed.left_over, "without a place in the model"),
    ):
        if names:
            parts.append(f"{len(names)} weight{'s' if len(names) > 1 else ''} {what}, such as {min(names)}")
    if not parts:
        return
    layers = 1 + max((int(found[1]) for found in map(LAYER.search, stored) if found), default=-1)
    said = getattr(config.get_text_config(decoder=True), "num_hidden_layers", layers)
    if layers and layers != said:
        parts.insert(0, f"the files hold {layers} layers and config.json says {said}")
    raise ValueError(
        f"{where}: its weights are not those that config.json describes: {'; '.join(parts)}; allowed: config.json and "
        "weights of the same model, as save_pretrained writes them"
    )


def _place(model: PreTrainedModel, stored: Mapping[str, tuple[int, ...]], where: str) -> Placed:
    """As from_pretrained does it, with renamings and conversions between forms of a model, but for the numbers."""
    logging.disable_progress_bar()
    weights = {name: torch.empty(shape, device="meta") for name, shape in stored.items()}
    loading = LoadStateDictConfig(
        ignore_mismatched_sizes=True,
        device_map={"": torch.device("meta")},
        dtype=torch.float32,
        weight_mapping=get_model_conversion_mapping(model, None, None),  # type: ignore[arg-type]  # as from_pretrained
    )
    info, _ = PreTrainedModel._load_pretrained_model(model, weights, None, loading)
    model.mark_tied_weights_as_initialized(info)
    model.tie_weights(missing_keys=info.missing_keys, recompute_mapping=False)
    model._adjust_missing_and_unexpected_keys(info)
    if info.conversion_errors:
        name, reason = min(info.conversion_errors.items())
        raise ValueError(
            f"{where}: its weights cannot be brought into the model's form, such as {name}: {one_line(reason)}"
        )
    return placed_of(info.to_dict())


def placed_of(loading_info: Mapping[str, Any]) -> Placed:
    """From what `from_pretrained(output_loading_info=True)` tells."""
    return Placed(
        missing=frozenset(loading_info["missing_keys"]),
        left_over=frozenset(loading_info["unexpected_keys"]),
        mismatched=frozenset(
            (name, tuple(found), tuple(wanted)) for name, found, wanted in loading_info["mismatched_keys"]
        ),
    )


def _pickled_shapes(folder: Path, where: str) -> dict[str, tuple[int, ...]]:
    """Of files without a header: unpickled, for tensors alone, without their numbers."""
    shapes: dict[str, tuple[int, ...]] = {}
    for file in weight_files(folder, where):
        try:
            state = torch.load(file, map_location="meta", weights_only=True)
            shapes |= {str(name): tuple(tensor.shape) for name, tensor in state.items()}
        except Exception as error:  # pickle, zip and torch raise their own
            raise ValueError(f"{where}: {file.name} cannot be read: {one_line(error)}") from error
    return shapes
