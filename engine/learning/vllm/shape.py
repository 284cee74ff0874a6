"""What vLLM asks of a model's shape, told before it is started."""

from __future__ import annotations

import torch
from transformers import PretrainedConfig

from engine.config.rollouter import head_size_problem


def head_size(config: PretrainedConfig) -> int:
    """Dimensions of an attention head."""
    text = config.get_text_config(decoder=True)
    return int(getattr(text, "head_dim", None) or text.hidden_size // text.num_attention_heads)


def check_shape(config: PretrainedConfig) -> None:
    """Raises ValueError for heads that vLLM's attention does not compute."""
    if sentence := head_size_problem(head_size(config)):
        raise ValueError(f"devices.rollouter: {sentence}")


def token_bytes(config: PretrainedConfig, dtype: str) -> int:
    """Keys and values of one token, all layers."""
    text = config.get_text_config(decoder=True)
    heads = getattr(text, "num_key_value_heads", None) or text.num_attention_heads
    return int(2 * text.num_hidden_layers * heads * head_size(config) * getattr(torch, dtype).itemsize)
