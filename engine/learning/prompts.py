"""From a question's words to what the model is given, and from its tokens back to words."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import numpy as np
from jinja2 import TemplateError
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from engine.config.errors import one_line
from engine.config.task import SLOT
from engine.learning.sequences import Tokens

SHOWN = 300
"""Characters of a prompt that the log shows."""

ALLOWED = "allowed: model.prompt_template plain, or text with {prompt}"


PROBE = "question417"
"""A question that no template has reason to strip, cut or escape anything of."""

TOO_LONG, NOT_ENCODED = "prompt_too_long", "prompt_not_encoded"
"""Why a question cannot be asked; the word that is counted and shown."""


class PromptRefused(ValueError):
    """A question that this model cannot be asked. Survives pickling."""

    def __init__(self, reason: str, detail: str) -> None:
        """`reason` is one of the words above."""
        self.reason = reason
        self.detail = detail
        super().__init__(reason, detail)

    def __str__(self) -> str:
        return self.detail


def encode_prompt(tokenizer: PreTrainedTokenizerBase, question: str) -> Tokens:
    """int32 [P]. A tokenizer with a chat template gets the question as one user message, any other as plain text.

    Raises PromptRefused when nothing is left of the question, or the chat template fails.
    """
    ids = _chat(tokenizer, question) if tokenizer.chat_template else tokenizer.encode(question)
    if not len(ids):
        raise PromptRefused(NOT_ENCODED, f"the tokenizer makes no token of the prompt {question[:SHOWN]!r}")
    return np.asarray(ids, dtype=np.int32)


def check_length(tokens: int, *, longest: int, response: int, opening: int = 0) -> None:
    """Raises PromptRefused for a prompt of more tokens than leave room for a response, and for an opening where every
    answer is made to start with one.

    `longest`: prompt tokens that leave room for the response alone; `response`: the most tokens of one.
    """
    if tokens + opening > longest:
        start = f" after a start of {opening}" if opening else ""
        raise PromptRefused(
            TOO_LONG,
            f"the prompt has {tokens:,} tokens; with responses of up to {response:,}{start} the model holds prompts of "
            f"up to {longest - opening:,}",
        )


def _chat(tokenizer: PreTrainedTokenizerBase, question: str) -> list[int]:
    return list(_templated(tokenizer, question, tokenize=True))


def _templated(tokenizer: PreTrainedTokenizerBase, question: str, *, tokenize: bool) -> Any:
    """What the chat template makes of the question: token ids, or else text."""
    message = [{"role": "user", "content": question}]
    try:
        return tokenizer.apply_chat_template(message, add_generation_prompt=True, tokenize=tokenize, return_dict=False)
    except (TemplateError, TypeError, ValueError, LookupError, AttributeError) as error:
        reason = one_line(error)
        raise PromptRefused(
            NOT_ENCODED, f"model.source: its chat template cannot be used ({reason}); {ALLOWED}"
        ) from error


def set_template(tokenizer: PreTrainedTokenizerBase, template: str | None, example: str) -> str:
    """Give questions the form that the job's `model.prompt_template` says; returns a sentence that shows it.

    A text becomes the tokenizer's chat template, so that the folder of a checkpoint asks its model as it was trained.
    Raises ValueError where there is no chat template to use, it fails on the example, or it leaves the question out.
    """
    if template == "plain":
        tokenizer.chat_template = None
    elif template == "chat" and not tokenizer.chat_template:
        raise ValueError(f"model.prompt_template chat: the model's tokenizer has no chat template; {ALLOWED}")
    elif template not in (None, "chat"):
        before, after = template.split(SLOT)
        opening = str(tokenizer.decode(tokenizer.encode("")))  # what the tokenizer puts before any text
        if not before.startswith(opening):
            before = opening + before
        tokenizer.chat_template = f"{_literal(before)}{{{{ messages[0]['content'] }}}}{_literal(after)}"
    if tokenizer.chat_template:
        _check_asks(tokenizer)
    shown = tokenizer.decode(encode_prompt(tokenizer, example).tolist())[:SHOWN]
    form = "with a chat template" if tokenizer.chat_template else "in plain text"
    return f"the model is asked {form}, such as {shown!r}"


def _check_asks(tokenizer: PreTrainedTokenizerBase) -> None:
    """Raise ValueError for a chat template that leaves the question out: every group would train on the same text."""
    text = str(_templated(tokenizer, PROBE, tokenize=False))
    if PROBE not in text.casefold():
        raise ValueError(
            f"model.source: its chat template leaves the question out: of {PROBE!r} it makes {text[:SHOWN]!r}; "
            f"{ALLOWED}"
        )


def _literal(text: str) -> str:
    """The text as an expression of the template language, whatever is in it."""
    return f"{{{{ {json.dumps(text, ensure_ascii=False)} }}}}" if text else ""


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
