"""From a folder to a model that can generate and be trained, or one sentence about why not.

Downloads nothing, and runs no code that comes with a folder.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedModel, PreTrainedTokenizerBase
from transformers.utils import logging

from engine.config.errors import one_line
from engine.learning.kv_window import check_supported
from engine.learning.meta_model import (
    check_causal,
    check_placed,
    check_weights,
    declares_causal,
    meta_model,
    model_config,
    placed_of,
)
from engine.learning.output_head import rows_of
from engine.learning.weights import not_finite
from engine.models.files import read, vocabulary_mismatch


def load_folder(folder: Path, *, dtype: torch.dtype) -> tuple[PreTrainedModel, PreTrainedTokenizerBase, list[str]]:
    """The model in that type on the CPU, its tokenizer, and what the log should say. Raises ValueError."""
    where = f"model.source {folder}"
    empty, tokenizer, notes = try_folder(folder)
    declared = declares_causal(empty)
    try:
        loaded: Any = AutoModelForCausalLM.from_pretrained(
            folder, dtype=dtype, local_files_only=True, trust_remote_code=False, output_loading_info=True
        )
    except Exception as error:  # the library raises its own, torch's, safetensors' and the system's
        raise ValueError(f"{where} does not load: {one_line(error, 500)}") from error
    model: PreTrainedModel = loaded[0]
    check_placed(placed_of(loaded[1]), (), model.config, where)
    if found := not_finite(model.named_parameters()):
        raise ValueError(f"{where}: {found}; allowed: a model whose weights are all finite")
    if not declared:
        check_causal(model.eval(), where)
    return model.eval(), tokenizer, [f"{where}: {sum(p.numel() for p in model.parameters()):,} parameters", *notes]


def try_folder(folder: Path) -> tuple[PreTrainedModel, PreTrainedTokenizerBase, list[str]]:
    """All that can be told without reading a weight: the model on the meta device, its tokenizer, and what the log
    should say. Raises ValueError."""
    where = f"model.source {folder}"
    logging.disable_progress_bar()  # a worker's log is no terminal
    files = read(folder)
    config = model_config(folder, where)
    model = meta_model(config, where)
    try:
        check_supported(config)
    except ValueError as error:
        raise ValueError(f"{where}: {error}") from None
    check_weights(model, files, where)
    try:
        tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
    except Exception as error:  # the library raises its own, and whatever a broken file runs into
        raise ValueError(f"{where}: its tokenizer does not load: {one_line(error)}") from error
    return model, tokenizer, fit(model, tokenizer, where)


def fit(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, where: str) -> list[str]:
    """See that the tokenizer is the model's, and fill in what can be; returns what was. Raises ValueError."""
    if tokenizer.eos_token_id is None:
        raise ValueError(
            f"{where}: its tokenizer has no end token, so no answer could ever end; allowed: one whose "
            "tokenizer_config.json names the model's eos_token"
        )
    rows = rows_of(model.get_input_embeddings())
    largest = max(tokenizer.get_vocab().values())
    if largest >= rows:
        raise ValueError(vocabulary_mismatch(where, largest, rows))
    if tokenizer.pad_token_id is None:
        tokenizer.pad_token = tokenizer.eos_token
        return [f"{where}: its tokenizer has no padding token, the end token stands in"]
    return []
