"""From a folder to a model that can generate and be trained, or one sentence about why not.

Downloads nothing, and runs no code that comes with a folder.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedModel, PreTrainedTokenizerBase
from transformers.utils import logging

from engine.learning.kv_window import check_supported
from engine.learning.output_head import rows_of
from engine.models.files import read, vocabulary_mismatch


def load_folder(folder: Path, *, dtype: torch.dtype) -> tuple[PreTrainedModel, PreTrainedTokenizerBase, list[str]]:
    """The model in that type on the CPU, its tokenizer, and what the log should say. Raises ValueError."""
    where = f"model.source {folder}"
    read(folder)
    logging.disable_progress_bar()  # a worker's log is no terminal
    try:
        loaded: Any = AutoModelForCausalLM.from_pretrained(
            folder, dtype=dtype, local_files_only=True, output_loading_info=True
        )
        model: PreTrainedModel = loaded[0]
        missing = sorted(loaded[1]["missing_keys"])
        tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
    except (OSError, ValueError, KeyError, TypeError, RuntimeError, ImportError, SafetensorError) as error:
        raise ValueError(f"{where} does not load: {' '.join(str(error).split())[:500]}") from error
    if missing:
        raise ValueError(f"{where} lacks {len(missing)} weights, among them {missing[0]}; they would be random")
    check_supported(model.config)
    notes = [f"{where}: {sum(p.numel() for p in model.parameters()):,} parameters", *fit(model, tokenizer, where)]
    return model.eval(), tokenizer, notes


def fit(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, where: str) -> list[str]:
    """See that the tokenizer is the model's, and fill in what can be; returns what was. Raises ValueError."""
    if tokenizer.eos_token_id is None:
        raise ValueError(f"{where}: its tokenizer has no end token (eos_token), so no answer could ever end")
    rows = rows_of(model.get_input_embeddings())
    largest = max(tokenizer.get_vocab().values())
    if largest >= rows:
        raise ValueError(vocabulary_mismatch(where, largest, rows))
    if tokenizer.pad_token_id is None:
        tokenizer.pad_token = tokenizer.eos_token
        return [f"{where}: its tokenizer has no padding token, the end token stands in"]
    return []
