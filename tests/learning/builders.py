"""Models of a few thousand parameters, a tokenizer of 16 entries, and groups: built in milliseconds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from tokenizers import Tokenizer, decoders, models
from tokenizers.processors import TemplateProcessing
from transformers import (
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    MistralConfig,
    MistralForCausalLM,
    PreTrainedModel,
    PreTrainedTokenizerFast,
)

from engine.config import AlgorithmConfig, SamplingConfig
from engine.learning.sequences import FinishedGroup, GroupRequest, Response
from engine.learning.slot_rollouter import RolloutSettings
from engine.learning.torch_trainer import TorchTrainer
from engine.learning.transformers_rollouter import TransformersRollouter

VOCABULARY = 16
EOS = 2


def make_tokenizer() -> PreTrainedTokenizerFast:
    entries = ["<pad>", "<bos>", "<eos>", *"0123456789+ ="]
    tokenizer = Tokenizer(models.BPE(vocab={text: index for index, text in enumerate(entries)}, merges=[]))
    tokenizer.decoder = decoders.Fuse()
    tokenizer.add_special_tokens(entries[:3])
    tokenizer.post_processor = TemplateProcessing(single="<bos> $A", special_tokens=[("<bos>", 1)])
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token="<bos>", eos_token="<eos>", pad_token="<pad>")


def make_model(kind: str = "tied", *, seed: int = 0, positions: int = 256) -> PreTrainedModel:
    """Weights are larger than a fresh model's, so that its distributions are far from uniform."""
    common = {
        "vocab_size": VOCABULARY,
        "hidden_size": 16,
        "intermediate_size": 24,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "max_position_embeddings": positions,
        "initializer_range": 0.3,
        "bos_token_id": 1,
        "eos_token_id": EOS,
        "pad_token_id": 0,
    }
    torch.manual_seed(seed)
    match kind:
        case "tied":
            model = LlamaForCausalLM(LlamaConfig(**common, tie_word_embeddings=True))
        case "untied, shared keys":
            model = LlamaForCausalLM(LlamaConfig(**common, num_key_value_heads=2, tie_word_embeddings=False))
        case "sliding window":
            model = MistralForCausalLM(MistralConfig(**common, num_key_value_heads=2, sliding_window=6))
        case "learned positions":
            gpt2 = {"vocab_size": VOCABULARY, "n_embd": 16, "n_layer": 2, "n_head": 4, "n_positions": positions}
            model = GPT2LMHeadModel(GPT2Config(**gpt2, initializer_range=0.3, bos_token_id=1, eos_token_id=EOS))
        case _:
            raise AssertionError(kind)
    return model.eval()


MODEL_KINDS = ("tied", "untied, shared keys", "sliding window", "learned positions")


def prompt_of(item: int) -> str:
    """Of 1 to 8 digits."""
    return str(7919**2 * (item + 1))[: 1 + item * 5 % 8]


def make_rollouter(
    model: PreTrainedModel | None = None, *, kind: type[TransformersRollouter] = TransformersRollouter, **overrides: Any
) -> TransformersRollouter:
    sampling = {"max_response_tokens": 20, "temperature": 1.0, "top_p": 1.0}
    sampling |= {key: overrides.pop(key) for key in list(overrides) if key in sampling}
    settings = {"prompt_of": prompt_of, "seed": 11, "group_size": 4, "slots": 32, "clock": lambda: 100.0} | overrides
    rollouts = RolloutSettings(sampling=SamplingConfig(**sampling), **settings)
    return kind(model or make_model(), make_tokenizer(), rollouts)


def make_request(group_id: int, **overrides: Any) -> GroupRequest:
    fields = {"group_id": group_id, "epoch": 0, "position": group_id, "item": group_id, "bound": 1.0}
    return GroupRequest(**(fields | overrides))


def finish(rollouter: TransformersRollouter) -> dict[int, FinishedGroup]:
    """Step until nothing is held."""
    groups = {}
    while rollouter.active_groups:
        groups |= {group.group_id: group for group in rollouter.step()}
    return groups


def make_trainer(model: PreTrainedModel | None = None, **overrides: Any) -> TorchTrainer:
    settings = {"temperature": 1.0, "max_response_tokens": 16}
    names = ("temperature", "max_response_tokens", "version", "optimizer", "deterministic", "compute", "recompute")
    settings |= {name: overrides.pop(name) for name in names if name in overrides}
    return TorchTrainer(model or make_model(), make_tokenizer(), make_algorithm(**overrides), **settings)


def make_algorithm(**overrides: Any) -> AlgorithmConfig:
    return AlgorithmConfig(**({"group_size": 4, "steps": 10, "learning_rate": 1e-2} | overrides))


def make_groups(
    count: int, *, seed: int = 0, version: int = 0, rewards: Sequence[float] | None = None, responses: int = 4
) -> list[FinishedGroup]:
    """Random tokens with made-up log-probabilities; random rewards of 0 and 1 unless given."""
    rng = np.random.default_rng(seed)
    groups = []
    for index in range(count):
        prompt = rng.integers(3, VOCABULARY, size=rng.integers(1, 9)).astype(np.int32)
        answers = []
        for _ in range(responses):
            tokens = rng.integers(3, VOCABULARY, size=rng.integers(1, 15)).astype(np.int32)
            answers.append(
                Response(
                    tokens=tokens,
                    logprobs=rng.uniform(-4, -1, size=len(tokens)).astype(np.float32),
                    versions=((version, len(tokens)),),
                    text="",
                    finished_by="eos",
                )
            )
        group = FinishedGroup(
            group_id=index,
            epoch=0,
            position=index,
            item=index,
            bound=1.0,
            version=version,
            prompt="",
            prompt_tokens=prompt,
            responses=tuple(answers),
            started_at=0.0,
            finished_at=1.0,
        )
        scores = rng.integers(0, 2, size=responses).tolist() if rewards is None else list(rewards)
        groups.append(group.with_rewards(scores))
    return groups


def relative_l2(actual: np.ndarray, expected: np.ndarray) -> float:
    difference = np.linalg.norm(actual.astype(np.float64) - expected.astype(np.float64))
    return float(difference / np.linalg.norm(expected.astype(np.float64)))
