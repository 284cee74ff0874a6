"""Answers to a list of questions outside of any group, for evaluation: same batching, nothing recorded but the text."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from engine.learning.decoding import DecodingBatch
from engine.learning.prompts import decode_response, end_tokens
from engine.learning.sequences import Tokens

Pick = Callable[[torch.Tensor, np.ndarray, np.ndarray], torch.Tensor]
"""(logits [rows, vocabulary], prompt index of each row, place of the token in its answer) -> tokens int64 [rows]."""


def answer(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    prompts: Sequence[Tokens],
    *,
    opening: Tokens,
    longest: int,
    rows: int,
    pick: Pick,
) -> list[str]:
    """Texts in the order of the prompts, each starting with `opening` and at most `longest` tokens after it.

    At most `rows` are in the batch at once; the next question joins as soon as an answer ends.
    """
    endings = end_tokens(model, tokenizer)
    end_ids = np.array(sorted(endings))
    tokens = np.zeros((len(prompts), longest), dtype=np.int32)
    counts = np.zeros(len(prompts), dtype=np.int64)
    batch = DecodingBatch(model, rows)
    held = np.zeros(0, dtype=np.int64)  # row of the batch -> prompt
    joined = 0
    while joined < len(prompts) or len(held):
        new = range(joined, min(len(prompts), joined + rows - len(held)))
        for index in new:
            batch.join(np.concatenate([prompts[index], opening]), copies=1)
        held, joined = np.concatenate([held, np.array(new, dtype=np.int64)]), joined + len(new)
        chosen = pick(batch.forward(), held, counts[held])
        batch.feed(chosen)
        tokens[held, counts[held]] = chosen.numpy()
        counts[held] += 1
        gone = np.isin(chosen.numpy(), end_ids) | (counts[held] == longest)
        if gone.any():
            held = held[batch.drop(gone)]
    return [
        decode_response(tokenizer, np.concatenate([opening, tokens[index, : counts[index]]]), endings)
        for index in range(len(prompts))
    ]
