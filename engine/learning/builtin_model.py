"""The built-in model `builtin:tiny`: a small Llama and a tokenizer that reads sums of small numbers.

It knows the words of reasoning-gym's chain_sum and nothing else; prompts of other tasks are refused. Its two ways of
answering, which the warm start shows it, are the bare result and running totals first.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import torch
from tokenizers import AddedToken, Tokenizer, decoders, models
from tokenizers.processors import TemplateProcessing
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from engine.config import SizeConfig
from engine.learning.tasks import Task

INSTRUCTION = "State the final answer to the following arithmetic problem: "
THINK, ANSWER = "<think>", "<answer>"
LARGEST = 99
"""Integers up to this size are single tokens, alone and after "="."""

VOCABULARY_MULTIPLE = 8
"""Rows of the embedding are rounded up to it, as matrix products like."""

DEMO_SIZE = SizeConfig()

PROBES = 64
"""Items whose prompts are looked at: those of one data set are alike, those of a file mostly."""

EXPRESSION = re.compile(r"\d+(?: [+-] \d+)*")


def build_tokenizer() -> PreTrainedTokenizerFast:
    """409 entries: characters, and as single tokens the words and integers of the task."""
    specials = ["<pad>", "<bos>", "<eos>"]
    vocabulary = {text: index for index, text in enumerate([*specials, *"0123456789-\n"])}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    tokenizer.decoder = decoders.Fuse()
    tokenizer.add_special_tokens(specials)
    words = [INSTRUCTION, " + ", " - ", " =", THINK, ANSWER]
    words += [f"={number}" for number in range(-LARGEST, LARGEST + 1)]
    words += [f"-{number}" for number in range(1, LARGEST + 1)]
    words += [str(number) for number in range(10, LARGEST + 1)]
    tokenizer.add_tokens([AddedToken(word, normalized=False) for word in words])
    tokenizer.post_processor = TemplateProcessing(single="<bos> $A", special_tokens=[("<bos>", vocabulary["<bos>"])])
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        bos_token="<bos>",
        eos_token="<eos>",
        pad_token="<pad>",
        clean_up_tokenization_spaces=False,
    )


def build_model(tokenizer: PreTrainedTokenizerFast, *, seed: int, size: SizeConfig = DEMO_SIZE) -> LlamaForCausalLM:
    """Parameters from the seed, 261,600 of the default size; torch's own random state is left as it was."""
    rows = -(-len(tokenizer) // VOCABULARY_MULTIPLE) * VOCABULARY_MULTIPLE
    config = LlamaConfig(
        vocab_size=rows,
        hidden_size=size.hidden,
        intermediate_size=size.feed_forward,
        num_hidden_layers=size.layers,
        num_attention_heads=size.heads,
        num_key_value_heads=size.heads,
        max_position_embeddings=512,
        tie_word_embeddings=True,
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return LlamaForCausalLM(config)


def check_task(task: Task, tokenizer: PreTrainedTokenizerFast, *, needs_worked: bool) -> None:
    """Raises ValueError when the model cannot read the prompts or, with `needs_worked`, there are no worked answers."""
    allowed = "allowed: task.source reasoning_gym:chain_sum, or model.source with the folder of another model"
    for item in range(min(task.size, PROBES)):
        prompt = task.prompt(item)
        if tokenizer.decode(tokenizer.encode(prompt, add_special_tokens=False)) != prompt:
            raise ValueError(f"model.source builtin:tiny cannot read the prompt {prompt!r}; {allowed}")
        expression = task.entry(item)["metadata"].get("expression")
        if needs_worked and not (isinstance(expression, str) and EXPRESSION.fullmatch(expression)):
            raise ValueError(f"model.source builtin:tiny has no worked answer to the prompt {prompt!r}; {allowed}")


def bare_answer(entry: Mapping[str, Any]) -> str:
    """The result alone."""
    return ANSWER + str(entry["answer"])


def worked_answer(entry: Mapping[str, Any]) -> str:
    """Running totals from the last term backwards, then the result.

    4 - 1 - 7 + 7 gives `<think> + 7=7 - 7=0 - 1=-1 + 4=3<answer>3`. The first term gets a sign too: without one its
    digit and the total before it would read, and be tokenized, as one number (`=-14=3`).
    """
    first, *rest = str(entry["metadata"]["expression"]).split(" ")
    total, lines = 0, []
    for sign, number in reversed(list(zip(rest[::2], rest[1::2], strict=True))):
        total += int(number) if sign == "+" else -int(number)
        lines.append(f" {sign} {number}={total}")
    lines.append(f" + {first}={total + int(first)}")
    return THINK + "".join(lines) + bare_answer(entry)
