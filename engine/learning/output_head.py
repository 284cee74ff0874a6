"""The last step of a model, from what its layers make of a token to logits, taken apart from the layers.

Logits are the largest thing in a pass: a vocabulary of 49,152 makes 200 kB of each token. Taken apart they are computed
for response tokens alone, and for a part of them at a time. A model whose logits are more than one linear layer of what
its layers make (scaled, capped) is found out by trying, and gives whole logits.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor
from transformers import PreTrainedModel

from engine.learning.micro_batches import MicroBatch

PROBE = 4
"""Tokens on which both ways are compared."""

LOGITS_AT_ONCE = 2**24
"""Of one part: 67 MB in float32, of which the loss and its gradient hold a few copies."""


class OutputHead:
    """Of any model of the architecture that it was made with."""

    def __init__(self, model: PreTrainedModel) -> None:
        self.apart = _same_apart(model)
        """Logits are computed part by part."""
        self.vocabulary = rows_of(model.get_output_embeddings())
        """Logits of a token."""

    def outputs(self, model: PreTrainedModel, batch: MicroBatch) -> Tensor:
        """[N, width of the layers] of the response tokens, or [N, vocabulary] where logits are whole."""
        if self.apart:
            output = model.base_model(input_ids=batch.ids, use_cache=False)
            return output.last_hidden_state[batch.rows_N, batch.places_N + batch.first]
        keep = batch.ids.shape[1] - batch.first
        logits = model(input_ids=batch.ids, use_cache=False, logits_to_keep=keep).logits
        return logits[batch.rows_N, batch.places_N]

    def logits(self, model: PreTrainedModel, outputs_n_D: Tensor) -> Tensor:
        """float32 [n, vocabulary] of some of them."""
        return (model.get_output_embeddings()(outputs_n_D) if self.apart else outputs_n_D).float()

    def parts(self, tokens: int) -> Iterator[slice]:
        """So many tokens, cut."""
        size = max(1, LOGITS_AT_ONCE // self.vocabulary)
        for begin in range(0, tokens, size):
            yield slice(begin, min(tokens, begin + size))


def rows_of(embedding: torch.nn.Module) -> int:
    """Entries of the vocabulary that an embedding, of inputs or outputs, has a row for."""
    weight = embedding.weight
    assert isinstance(weight, Tensor), f"{type(embedding).__name__} has no matrix of its own"
    return int(weight.shape[0])


@torch.no_grad()
def _same_apart(model: PreTrainedModel) -> bool:
    if model.base_model is model:
        return False
    ids = torch.arange(1, 1 + PROBE, device=model.device)[None] % rows_of(model.get_output_embeddings())
    whole = model(input_ids=ids, use_cache=False).logits
    hidden = getattr(model.base_model(input_ids=ids, use_cache=False), "last_hidden_state", None)
    if hidden is None:
        return False
    apart = model.get_output_embeddings()(hidden)
    return apart.shape == whole.shape and torch.allclose(apart, whole, rtol=1e-4, atol=1e-5)
