"""A model folder tried out in a process of its own: `python -m engine.learning.trial QUESTION`, a JSON document.

Asks of a folder all that a worker will ask before it reads a weight, by the same code, and prints `{"told": sentence}`
as its last line; the sentence is empty where nothing is wrong. `engine.models.trials` starts it and keeps what it told.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from engine.config import LoraConfig
from engine.learning.lora import add_adapter
from engine.learning.model_folder import try_folder
from engine.learning.prompts import encode_prompt, set_template
from engine.learning.trained_pass import check_checkpointing
from engine.learning.transformers_rollouter import longest_prompt
from engine.models.trials import DEADLINE_S, Question

NICENESS = 10
"""Runs that go on need the cores more than a launch does."""

EXAMPLE = "What is 417 plus 5?"
"""A question for templates; a job's own are tried by the workers."""

SHORTEST = "1"
"""No question has fewer tokens."""


def told(question: Question) -> str:
    """One sentence that begins with its place, or '' where nothing is wrong."""
    try:
        _try(question)
    except ValueError as error:
        sentence = " ".join(str(error).split())
        placed = sentence.startswith(("model.", "sampling."))
        return sentence if placed else f"model.source {question.folder}: {sentence}"
    return ""


def _try(question: Question) -> None:
    model, tokenizer, _ = try_folder(Path(question.folder))
    longest = longest_prompt(model, question.response_tokens)
    if question.recompute:
        check_checkpointing(model)
    set_template(tokenizer, question.template, EXAMPLE)
    shortest = len(encode_prompt(tokenizer, SHORTEST))
    if shortest > longest:
        raise ValueError(
            f"sampling.max_response_tokens {question.response_tokens} leaves {longest} tokens for a prompt, and the "
            f"shortest has {shortest} with what the model's tokenizer puts around it; allowed: up to "
            f"{longest + question.response_tokens - shortest}"
        )
    if question.lora is not None:
        add_adapter(model, LoraConfig.model_validate(question.lora), seed=0)


def main(document: Mapping[str, Any]) -> None:
    signal.alarm(int(DEADLINE_S))  # whoever asked may be gone: never stay for longer than an answer is waited for
    os.nice(NICENESS)
    print(json.dumps({"told": told(Question(**document))}))


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
