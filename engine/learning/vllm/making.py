"""A vLLM rollouter for a job's model: the folder that vLLM reads its shape from, and room for keys and values."""

from __future__ import annotations

import copy
import hashlib
from pathlib import Path

import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from engine.learning.lora import has_adapter, merged_weights
from engine.learning.prompts import end_tokens
from engine.learning.slot_rollouter import RolloutSettings
from engine.learning.transformers_rollouter import longest_prompt
from engine.learning.vllm.in_process import BLOCK_TOKENS, InProcessEngine
from engine.learning.vllm.layout import AdaptedModel, Layout, NamedWeights
from engine.learning.vllm.probe import check_alike, probe_tokens
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
    settings: RolloutSettings,
    *,
    cache_dir: Path,
    dtype: str = "float32",
) -> VllmRollouter:
    """The model gives its shape, is compared with vLLM's, and is kept only where it has adapters: else what it holds of
    a GPU is given back before vLLM takes its own. Weights are the model's until the first `load`.

    Raises ValueError when vLLM is missing, does not take the model or computes it otherwise.
    """
    check_shape(model.config)
    response, slots = settings.sampling.max_response_tokens, settings.slots
    prompt = longest_prompt(model, response)
    each = token_bytes(model.config, dtype)
    prompt = min(prompt, max(PROMPT_TOKENS, KV_BYTES // each - response))
    longest = prompt + response
    one = _whole_blocks(longest) + BLOCK_TOKENS  # vLLM keeps a block for itself
    kv_tokens = max(one, min(slots * _whole_blocks(min(prompt, PROMPT_TOKENS) + response), KV_BYTES // each))
    ends = end_tokens(model, tokenizer)
    folder = shape_folder(model, cache_dir)
    adapted = has_adapter(model)
    layout: NamedWeights = AdaptedModel(model) if adapted else Layout.of(model)
    wanted = heard_of(model, probe_tokens(tokenizer, settings.prompt_of, prompt))
    with torch.no_grad():
        named = merged_weights(model).items() if adapted else model.named_parameters()
        weights = [(name, weight.detach().cpu()) for name, weight in named]
    if not adapted and model.device.type != "cpu":
        give_back(model)
    rollouter = VllmRollouter(
        lambda pick: InProcessEngine(
            folder, pick, end_tokens=ends, slots=slots, longest=longest, kv_bytes=kv_tokens * each, dtype=dtype
        ),
        layout,
        tokenizer,
        settings,
        end_tokens=ends,
        longest_prompt=prompt,
    )
    check_alike(wanted, rollouter.hear(weights), dtype)
    return rollouter


@torch.inference_mode()
def heard_of(model: PreTrainedModel, tokens: list[int]) -> torch.Tensor:
    """float32 [vocabulary], on the CPU: log-probabilities after these tokens."""
    logits = model(input_ids=torch.tensor([tokens], device=model.device)).logits[0, -1]
    return logits.float().log_softmax(-1).cpu()


def give_back(model: torch.nn.Module) -> None:
    """Its weights' memory, to the device: nothing of the model but shapes is left, whoever still holds it."""
    model.to(torch.device("meta"))
    if torch.accelerator.is_available():  # vLLM's own pools take nothing from what torch keeps for its next tensors
        torch.accelerator.empty_cache()


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
