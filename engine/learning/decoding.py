"""Continuous batching: one token at a time for rows that join and leave between two tokens.

Knows tokens and rows only; what a row belongs to, which token it gets and when it ends is its owner's business. Works
with any causal language model of transformers through its public forward and cache interface.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from transformers import DynamicCache, PreTrainedModel

from engine.learning.kv_window import KVWindow, check_supported, states
from engine.learning.sequences import Tokens

PREFILL_TOKENS = 4096
"""Prompt tokens of one prefill forward, padding included: enough to fill the matrix products, small enough to hold."""


class DecodingBatch:
    """Rows 0 to `rows` - 1 hold sequences; the owner keeps its own list of what they are, in the same order."""

    def __init__(self, model: PreTrainedModel, max_rows: int) -> None:
        self._model = model
        self._device = model.device
        self._window = KVWindow(check_supported(model.config), max_rows, device=self._device)
        self._joining: list[tuple[Tokens, int]] = []
        self._next: Tensor = torch.zeros(0, dtype=torch.long)

    def join(self, tokens: Tokens, copies: int) -> None:
        """At the next forward, append `copies` rows that hold these tokens; they are computed once."""
        self._joining.append((tokens, copies))

    @torch.inference_mode()
    def forward(self) -> Tensor:
        """Logits of each row's next token, float32 [rows, vocabulary] on the CPU; who joined is last, in that order.

        Every row that was there before must have been fed since the last forward.
        """
        parts = []
        if self._window.rows:
            assert len(self._next) == self._window.rows, f"fed {len(self._next)} of {self._window.rows} rows"
            parts.append(self._decode())
        joining, self._joining = self._joining, []
        for copies, group in groupby(joining, key=lambda entry: entry[1]):
            for batch in _batches([tokens for tokens, _ in group]):
                parts.append(self._prefill(batch, copies))
        return (torch.cat(parts) if len(parts) > 1 else parts[0]).cpu()

    @torch.inference_mode()
    def feed(self, tokens_R: Tensor) -> None:
        """Give every row its next token, int64 [rows]."""
        self._next = tokens_R

    @torch.inference_mode()
    def drop(self, gone: npt.NDArray[np.bool_]) -> npt.NDArray[np.int64]:
        """Let rows go, bool [rows]; returns int64 [rows left]: which old row each row now holds.

        The places of the gone are filled from the end, so few rows move.
        """
        kept = np.arange(len(gone))
        left = len(gone) - int(gone.sum())
        targets = np.flatnonzero(gone[:left])
        sources = left + np.flatnonzero(~gone[left:])
        kept[targets] = sources
        self._window.move(torch.from_numpy(sources), torch.from_numpy(targets), left)
        kept = kept[:left]
        self._next = self._next[torch.from_numpy(kept)]
        return kept

    def _decode(self) -> Tensor:
        window = self._window
        window.make_room()
        output = self._model(
            input_ids=self._next[:, None].to(self._device),
            attention_mask=window.mask(),
            position_ids=window.lengths[:, None],
            past_key_values=window,
            use_cache=True,
        )
        window.advance()
        return output.logits[:, -1].float()

    def _prefill(self, sequences: Sequence[Tokens], copies: int) -> Tensor:
        ids, lengths = (tensor.to(self._device) for tensor in pad_left(sequences))
        columns = torch.arange(ids.shape[1], device=self._device)
        offset = (ids.shape[1] - lengths)[:, None]
        cache = DynamicCache()
        output = self._model(
            input_ids=ids,
            attention_mask=columns >= offset,
            position_ids=(columns - offset).clamp(min=0),
            past_key_values=cache,
            use_cache=True,
            logits_to_keep=1,
        )
        self._window.append(states(cache), lengths, copies)
        return output.logits[:, -1].float().repeat_interleave(copies, dim=0)


def pad_left(sequences: Sequence[Tokens]) -> tuple[Tensor, Tensor]:
    """Token ids int64 [rows, longest] with zeros on the left, and lengths int64 [rows]."""
    lengths = [len(sequence) for sequence in sequences]
    ids = np.zeros((len(sequences), max(lengths)), dtype=np.int64)
    for row, sequence in enumerate(sequences):
        ids[row, ids.shape[1] - len(sequence) :] = sequence
    return torch.from_numpy(ids), torch.tensor(lengths)


def _batches(sequences: Sequence[Tokens]) -> list[Sequence[Tokens]]:
    """Consecutive sequences, cut so that a padded batch holds at most PREFILL_TOKENS (or one sequence)."""
    batches: list[list[Tokens]] = []
    longest = 0
    for sequence in sequences:
        longest = max(longest, len(sequence))
        if not batches or longest * (len(batches[-1]) + 1) > PREFILL_TOKENS:
            batches.append([])
            longest = len(sequence)
        batches[-1].append(sequence)
    return list(batches)
