"""A vLLM rollouter for a job's model: the folder that vLLM reads its shape from, and room for keys and values."""

from __future__ import annotations

import copy
import hashlib
import time
from collections.abc import Callable
from pathlib import Path

from transformers import PreTrainedModel, PreTrainedTokenizerBase

from engine.config import SamplingConfig
from engine.learning.lora import has_adapter
from engine.learning.prompts import end_tokens
from engine.learning.transformers_rollouter import longest_prompt
from engine.learning.vllm.in_process import BLOCK_TOKENS, InProcessEngine
from engine.learning.vllm.layout import AdaptedModel, Layout
from engine.learning.vllm.rollouter import VllmRollouter
from engine.learning.vllm.shape import check_shape, token_bytes
from engine.learning.whole_folder import whole_folder

PROMPT_TOKENS = 256
"""Room for a prompt of each sequence, as the memory check at launch counts it; where longer ones leave too little vLLM
puts sequences off, and one that it had begun is computed again."""

KV_BYTES = 2 * 1024**3
"""Most for keys and values, unless one sequence of the longest length needs more: the trainer shares the memory."""


def make_vllm_rollouter(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    *,
    cache_dir: Path,
    prompt_of: Callable[[int], str],
    seed: int,
    group_size: int,
    sampling_config: SamplingConfig,
    slots: int,
    dtype: str = "float32",
    clock: Callable[[], float] = time.time,
) -> VllmRollouter:
    """The model gives its shape and is kept only where it has adapters; weights are arbitrary until the first `load`.

    Raises ValueError when vLLM is missing or does not take the model.
    """
    check_shape(model.config)
    response = sampling_config.max_response_tokens
    prompt = longest_prompt(model, response)
    each = token_bytes(model.config, dtype)
    prompt = min(prompt, max(PROMPT_TOKENS, KV_BYTES // each - response))
    longest = prompt + response
    one = _whole_blocks(longest) + BLOCK_TOKENS  # vLLM keeps a block for itself
    kv_tokens = max(one, min(slots * _whole_blocks(min(prompt, PROMPT_TOKENS) + response), KV_BYTES // each))
    ends = end_tokens(model, tokenizer)
    folder = shape_folder(model, cache_dir)
    return VllmRollouter(
        lambda pick: InProcessEngine(
            folder, pick, end_tokens=ends, slots=slots, longest=longest, kv_bytes=kv_tokens * each, dtype=dtype
        ),
        AdaptedModel(model) if has_adapter(model) else Layout.of(model),
        tokenizer,
        end_tokens=ends,
        longest_prompt=prompt,
        prompt_of=prompt_of,
        seed=seed,
        group_size=group_size,
        sampling_config=sampling_config,
        slots=slots,
        clock=clock,
    )


def _whole_blocks(tokens: int) -> int:
    """Tokens of the blocks that hold so many."""
    return -(-tokens // BLOCK_TOKENS) * BLOCK_TOKENS


def shape_folder(model: PreTrainedModel, cache_dir: Path) -> Path:
    """A folder with the model's config.json, made once for each shape."""
    config = copy.deepcopy(model.config)
    config.architectures = [type(model).__name__]
    text = config.to_json_string(use_diff=False)
    folder = cache_dir / "vllm" / hashlib.sha256(text.encode()).hexdigest()[:16]
    if not (folder / "config.json").is_file():
        with whole_folder(folder) as fresh:
            config.save_pretrained(fresh)
    return folder
