"""A rollouter over any causal language model of transformers, on whatever device and in whatever type it was given.

A step is one token for every active sequence. Groups join the running batch whole, so that all first tokens of a group
carry one version; a finished response leaves the batch at once and frees its slot. Weights may change between two
tokens: what was computed under the old ones stays in the cache, and every token remembers its version.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from engine.learning import sampling
from engine.learning.answering import Pick, answer
from engine.learning.decoding import DecodingBatch
from engine.learning.held_group import HeldGroup
from engine.learning.prompts import encode_continuation, end_tokens
from engine.learning.slot_rollouter import RolloutSettings, SlotRollouter
from engine.learning.slots import Indices
from engine.learning.weights import Vector, load_flat, nbytes_of


class TransformersRollouter(SlotRollouter):
    """See `engine.learning.rollouter.Rollouter` for the methods."""

    def __init__(
        self,
        model: PreTrainedModel,
        tokenizer: PreTrainedTokenizerBase,
        settings: RolloutSettings,
    ) -> None:
        """The model becomes ours."""
        super().__init__(
            tokenizer,
            settings,
            end_tokens=end_tokens(model, tokenizer),
            longest_prompt=longest_prompt(model, settings.sampling.max_response_tokens),
        )
        self._model = model.eval()
        self._set_up()

    @property
    def nbytes(self) -> int:
        """Bytes of the weights. Keys and values of the running sequences come on top: they grow with use."""
        return nbytes_of(self._model)

    def load(self, vector: Vector, version: int) -> None:
        load_flat(self._model, vector)
        self._version = version

    def greedy(self, prompts: Sequence[str], prefix: str = "") -> list[str]:
        return self._answer(prompts, prefix, lambda logits, indices, place: sampling.greedy(logits))

    def sampled(self, prompts: Sequence[str], prefix: str = "", first: int = 0) -> list[str]:
        stream = self._evaluation_streams(len(prompts), first)
        return self._answer(
            prompts, prefix, lambda logits, indices, place: self._draw(logits, stream[indices, place])[0]
        )

    def _answer(self, prompts: Sequence[str], prefix: str, pick: Pick) -> list[str]:
        opening = encode_continuation(self._tokenizer, prefix)
        return answer(
            self._model,
            self._tokenizer,
            [self._encoded(prompt, opening=len(opening)) for prompt in prompts],
            opening=opening,
            longest=self._table.longest,
            rows=self._table.slots,
            pick=pick,
        )

    def _set_up(self) -> None:
        """What decodes: one batch for all groups. Whoever decodes otherwise replaces this and the next three."""
        self._batch = DecodingBatch(self._model, self._table.slots)
        self._rows = np.zeros(0, dtype=np.int64)
        """Row of the batch -> slot."""

    def _join(self, group: HeldGroup) -> None:
        """Hand the responses to the batch; a new group's prompt is computed once for all of them."""
        if group.request.partial:
            for slot in group.slots.values():
                prefix = self._table.read(slot, None)
                self._batch.join(np.concatenate([group.prompt_tokens, prefix.tokens]), copies=1)
        else:
            self._batch.join(group.prompt_tokens, copies=self._group_size)
        self._rows = np.concatenate([self._rows, np.array(list(group.slots.values()), dtype=np.int64)])

    def _advance(self) -> None:
        """One token for every response that grows; those that end leave."""
        if not len(self._rows):
            return
        logits = self._batch.forward()
        drawn, gone = self._extend(self._rows, logits)
        self._batch.feed(drawn)
        if gone.any():
            self._rows = self._rows[self._batch.drop(gone)]

    def _leave(self, group_ids: set[int]) -> None:
        """Take the groups' rows out of the batch; their slots stay theirs."""
        gone = np.array([self._table.owner(slot)[0] in group_ids for slot in self._rows.tolist()], dtype=np.bool_)
        if gone.any():
            self._rows = self._rows[self._batch.drop(gone)]

    def _extend(self, slots: Indices, logits: torch.Tensor) -> tuple[torch.Tensor, npt.NDArray[np.bool_]]:
        """Draw and record one token for each slot, int64 [rows]; bool [rows]: which ended and lost their slot."""
        drawn, logprobs = self._draw(logits, self._table.next_uniforms(slots))
        return drawn, self._record(slots, drawn.numpy(), logprobs.numpy())


def longest_prompt(model: PreTrainedModel, response_tokens: int) -> int:
    """Prompt tokens that leave room for a response of this many. Raises ValueError when that is none."""
    positions = getattr(model.config.get_text_config(decoder=True), "max_position_embeddings", None)
    if positions is None:
        return 2**31
    if response_tokens >= positions:
        raise ValueError(
            f"sampling.max_response_tokens {response_tokens} leaves no room for a prompt in a model of {positions} "
            f"positions; allowed: up to {positions - 1}"
        )
    return int(positions) - response_tokens
