"""Folders of tiny random models that transformers loads: Qwen3 and Llama, tied and untied, with a tokenizer that reads
any text byte by byte and a chat template. Built in a tenth of a second."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedModel, PreTrainedTokenizerFast, Qwen3Config
from transformers import Qwen3ForCausalLM as Qwen3

SPECIALS = ["<pad>", "<bos>", "<eos>", "<|im_start|>", "<|im_end|>"]
CHAT = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
ROWS = 272
"""Of the embedding: more than the tokenizer's 261 entries, as in most models."""


def byte_tokenizer(**overrides: Any) -> PreTrainedTokenizerFast:
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {text: index for index, text in enumerate([*SPECIALS, *alphabet])}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    words = {"pad_token": "<pad>", "bos_token": "<bos>", "eos_token": "<eos>"} | overrides
    made = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, additional_special_tokens=SPECIALS[3:], model_max_length=512, **words
    )
    made.chat_template = CHAT
    return made


def tiny_model(kind: str = "qwen3", *, tied: bool = True, seed: int = 0, **overrides: Any) -> PreTrainedModel:
    """`qwen3` or `llama`; weights are larger than a fresh model's, so that its distributions are far from uniform."""
    common: dict[str, Any] = {
        "vocab_size": ROWS,
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "head_dim": 32,
        "max_position_embeddings": 512,
        "initializer_range": 0.2,
        "tie_word_embeddings": tied,
        "bos_token_id": 1,
        "eos_token_id": 2,
        "pad_token_id": 0,
    } | overrides
    torch.manual_seed(seed)
    made: PreTrainedModel = Qwen3(Qwen3Config(**common)) if kind == "qwen3" else LlamaForCausalLM(LlamaConfig(**common))
    return made.eval()


def tiny_folder(
    folder: Path, kind: str = "qwen3", *, tokenizer: PreTrainedTokenizerFast | None = None, **model: Any
) -> Path:
    tiny_model(kind, **model).save_pretrained(folder)
    (tokenizer or byte_tokenizer()).save_pretrained(folder)
    return folder
