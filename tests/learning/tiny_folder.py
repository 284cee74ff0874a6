"""Folders of tiny models whose heads vLLM computes, with a byte-level tokenizer: written in milliseconds."""

from __future__ import annotations

from pathlib import Path

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import (
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedModel,
    PreTrainedTokenizerFast,
    Qwen3Config,
    Qwen3ForCausalLM,
)

SPECIALS = ("<pad>", "<bos>", "<eos>")


def byte_tokenizer() -> PreTrainedTokenizerFast:
    """One token a byte: it reads any prompt."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {text: index for index, text in enumerate((*SPECIALS, *alphabet))}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token="<pad>", bos_token="<bos>", eos_token="<eos>", model_max_length=512
    )


def tiny_model(kind: str, *, tied: bool, seed: int = 0) -> PreTrainedModel:
    """`qwen3` or `llama`; heads of 32 dimensions, weights large enough that distributions are far from uniform."""
    common = {
        "vocab_size": 264,
        "hidden_size": 64,
        "intermediate_size": 96,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "head_dim": 32,
        "max_position_embeddings": 512,
        "initializer_range": 0.1,
        "tie_word_embeddings": tied,
        "bos_token_id": 1,
        "eos_token_id": 2,
        "pad_token_id": 0,
    }
    torch.manual_seed(seed)
    if kind == "qwen3":
        return Qwen3ForCausalLM(Qwen3Config(**common)).eval()
    return LlamaForCausalLM(LlamaConfig(**common)).eval()


def write_folder(folder: Path, kind: str = "qwen3", *, tied: bool = True, seed: int = 0) -> Path:
    """As save_pretrained writes it."""
    tiny_model(kind, tied=tied, seed=seed).save_pretrained(folder)
    byte_tokenizer().save_pretrained(folder)
    return folder
