"""From scored groups to padded token batches of similar length.

Right-padded and without an attention mask: with causal attention no real token sees the padding after it, and without a
mask the fastest attention kernel runs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from engine.learning.sequences import Tokens

MICRO_BATCH_TOKENS = 1024
"""Tokens of one forward, padding included: fills the matrix products of small models and stays in the cache."""

MICRO_BATCH_LOGITS = 2**25
"""Logits of one forward: 134 MB in float32, of which a backward pass holds a few copies."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One response with what its loss needs."""

    prompt: Tokens
    """[P]"""
    response: Tokens
    """[T]"""
    behaviour: np.ndarray
    """float32 [T], log-probabilities that the rollouter recorded."""
    advantage: float
    lag: int
    """Versions between the group's first token and the weights it trains."""

    @property
    def length(self) -> int:
        return len(self.prompt) + len(self.response)


@dataclass(frozen=True, slots=True, kw_only=True)
class Targets:
    """What the loss needs of some response tokens."""

    targets_n: Tensor
    """int64 [n], the token."""
    behaviour_n: Tensor
    """float32 [n]"""
    advantages_n: Tensor
    """float32 [n]"""
    lags_n: np.ndarray
    """int64 [n]"""


@dataclass(frozen=True, slots=True, kw_only=True)
class MicroBatch:
    """Padded samples and the N response tokens in them, sample after sample."""

    ids: Tensor
    """int64 [rows, columns]"""
    first: int
    """Column from which logits are needed."""
    rows_N: Tensor
    """int64 [N], row of each response token."""
    places_N: Tensor
    """int64 [N], its place among the kept logits: that of the token before it."""
    targets_N: Tensor
    """int64 [N], the token."""
    behaviour_N: Tensor
    """float32 [N]"""
    advantages_N: Tensor
    """float32 [N]"""
    lags_N: np.ndarray
    """int64 [N]"""

    def on(self, device: torch.device) -> MicroBatch:
        """The same there."""
        if self.ids.device == device:
            return self
        tensors = {name: getattr(self, name).to(device) for name in self.__slots__ if name not in ("first", "lags_N")}
        return replace(self, **tensors)

    def part(self, rows: slice) -> Targets:
        """Of some of the response tokens."""
        return Targets(
            targets_n=self.targets_N[rows],
            behaviour_n=self.behaviour_N[rows],
            advantages_n=self.advantages_N[rows],
            lags_n=self.lags_N[rows],
        )


def micro_batches(samples: Sequence[Sample], *, vocabulary: int) -> Iterator[MicroBatch]:
    """`vocabulary`: logits of a token that a pass holds at once.

    Longest first, so that neighbours need little padding and the largest batch comes first, if it must fail."""
    ordered = sorted(samples, key=lambda sample: -sample.length)
    tokens = _most_tokens(vocabulary)
    begin = 0
    while begin < len(ordered):
        rows = max(1, tokens // ordered[begin].length)
        yield _pad(ordered[begin : begin + rows])
        begin += rows


def bundles(samples_of_groups: Sequence[Sequence[Sample]], *, vocabulary: int) -> Iterator[range]:
    """Cut consecutive groups into ranges, each as many as fill one micro batch, at least one.

    Groups without samples cost nothing and end no bundle.
    """
    tokens = _most_tokens(vocabulary)
    begin = rows = longest = 0
    for index, samples in enumerate(samples_of_groups):
        own = max((sample.length for sample in samples), default=0)
        if rows and samples and (rows + len(samples)) * max(longest, own) > tokens:
            yield range(begin, index)
            begin, rows, longest = index, 0, 0
        rows, longest = rows + len(samples), max(longest, own)
    if begin < len(samples_of_groups):
        yield range(begin, len(samples_of_groups))


def _most_tokens(vocabulary: int) -> int:
    return min(MICRO_BATCH_TOKENS, max(1, MICRO_BATCH_LOGITS // vocabulary))


def _pad(samples: Sequence[Sample]) -> MicroBatch:
    ids = np.zeros((len(samples), samples[0].length), dtype=np.int64)
    first = min(len(sample.prompt) for sample in samples) - 1
    counts = [len(sample.response) for sample in samples]
    for row, sample in enumerate(samples):
        prompt = len(sample.prompt)
        ids[row, :prompt] = sample.prompt
        ids[row, prompt : sample.length] = sample.response
    places = [np.arange(len(s.prompt) - 1 - first, s.length - 1 - first) for s in samples]
    return MicroBatch(
        ids=torch.from_numpy(ids),
        first=first,
        rows_N=torch.from_numpy(np.repeat(np.arange(len(samples)), counts)),
        places_N=torch.from_numpy(np.concatenate(places)),
        targets_N=torch.from_numpy(np.concatenate([sample.response for sample in samples]).astype(np.int64)),
        behaviour_N=torch.from_numpy(np.concatenate([sample.behaviour for sample in samples])),
        advantages_N=torch.from_numpy(np.repeat([s.advantage for s in samples], counts).astype(np.float32)),
        lags_N=np.repeat([sample.lag for sample in samples], counts),
    )
