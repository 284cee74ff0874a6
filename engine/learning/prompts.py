"""From a question's words to what the model is given, and from its tokens back to words."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from engine.learning.sequences import Tokens


def encode_prompt(tokenizer: PreTrainedTokenizerBase, question: str) -> Tokens:
    """int32 [P]. A tokenizer with a chat template gets the question as one user message, any other as plain text.

    Raises ValueError when nothing is left of the question.
    """
    if tokenizer.chat_template:
        message = [{"role": "user", "content": question}]
        ids = tokenizer.apply_chat_template(message, add_generation_prompt=True, return_dict=False)
    else:
        ids = tokenizer.encode(question)
    if not len(ids):
        raise ValueError(f"the tokenizer makes no token of the prompt {question!r}")
    return np.asarray(ids, dtype=np.int32)


def encode_continuation(tokenizer: PreTrainedTokenizerBase, text: str) -> Tokens:
    """int32 [T]: text in the middle of a sequence, so without the tokens that open or close one."""
    return np.asarray(tokenizer.encode(text, add_special_tokens=False), dtype=np.int32)


def decode_response(tokenizer: PreTrainedTokenizerBase, tokens: Tokens, end_tokens: Iterable[int]) -> str:
    """The response as text: without the token that ended it, with every other special token it holds."""
    ids = tokens.tolist()
    if ids and ids[-1] in set(end_tokens):
        ids = ids[:-1]
    return str(tokenizer.decode(ids, skip_special_tokens=False))


def end_tokens(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> frozenset[int]:
    """Ids that end a response: the tokenizer's, and those the model's generation config adds (chat models)."""
    configured = model.generation_config.eos_token_id if model.generation_config else None
    extra = [configured] if isinstance(configured, int) else list(configured or ())
    return frozenset(int(token) for token in (tokenizer.eos_token_id, *extra))
