"""What a rollouter is asked for and what it hands back: groups, responses and their prefixes.

Frozen, picklable, numpy only: no torch tensor and no text object of a tokenizer crosses a worker's boundary. A
response carries what training needs (tokens, log-probabilities, versions); its reward is added by whoever scores it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import numpy.typing as npt

Tokens = npt.NDArray[np.int32]
Logprobs = npt.NDArray[np.float32]
VersionRanges = tuple[tuple[int, int], ...]
"""Runs of equal versions along a response, as (version, number of tokens), in token order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Partial:
    """One response so far; `finished_by` is None while it may still grow."""

    tokens: Tokens
    """[t] token ids after the prompt, the end token included."""
    logprobs: Logprobs
    """[t] natural log-probabilities under the distribution each token was drawn from."""
    versions: VersionRanges
    """Sums to t."""
    finished_by: Literal["eos", "length"] | None = None
    """`eos`: the model ended it; `length`: it reached the longest allowed response."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupRequest:
    """One prompt to be answered `group_size` times, from the start or from prefixes."""

    group_id: int
    """Number of the group in its run, unique."""
    epoch: int
    """Pass over the training items, from 0; a key of the random stream."""
    position: int
    """Place in that epoch's order, from 0; a key of the random stream."""
    item: int
    """Index of the training item."""
    bound: float
    """Staleness under which the group was started, in versions."""
    partial: tuple[Partial, ...] = ()
    """Empty, or one prefix per response, in response order."""
    started_at: float | None = None
    """Unix seconds of the first token; None for a new group."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Response:
    """A finished answer."""

    tokens: Tokens
    """[T] token ids, the end token included."""
    logprobs: Logprobs
    """[T] natural log-probabilities under the distribution each token was drawn from."""
    versions: VersionRanges
    """Sums to T."""
    text: str
    """The tokens as text, without the end token."""
    finished_by: Literal["eos", "length"]
    """`eos`: the model ended it; `length`: it reached the longest allowed response."""
    reward: float | None = None
    """Score of the answer; None until it was scored."""
    parts: Mapping[str, float] | None = None
    """Reward -> what the answer earned by it, before weights, where the job has several."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FinishedGroup:
    """A prompt with all its answers; the unit that a step consumes."""

    group_id: int
    """Number of the group in its run, unique."""
    epoch: int
    """Pass over the training items, from 0."""
    position: int
    """Place in that epoch's order, from 0."""
    item: int
    """Index of the training item."""
    bound: float
    """Staleness under which the group was started, in versions."""
    version: int
    """Oldest version among all tokens: that of the first one."""
    prompt: str
    """The question as the task words it."""
    prompt_tokens: Tokens
    """[P] token ids the model was given."""
    responses: tuple[Response, ...]
    """`group_size` of them, in response order."""
    started_at: float
    """Unix seconds of the first token."""
    finished_at: float
    """Unix seconds of the last token."""

    @property
    def response_tokens(self) -> int:
        """Tokens of all responses."""
        return sum(len(response.tokens) for response in self.responses)

    def with_rewards(
        self, rewards: Sequence[float], parts: Sequence[Mapping[str, float]] | None = None
    ) -> FinishedGroup:
        """The same group, scored; one reward per response, in response order, and what it is made of."""
        made_of: Sequence[Mapping[str, float] | None] = parts or [None] * len(self.responses)
        scored = tuple(
            replace(response, reward=float(reward), parts=part)
            for response, reward, part in zip(self.responses, rewards, made_of, strict=True)
        )
        return replace(self, responses=scored)

    def unscored(self) -> PartialGroup:
        """What another rollouter needs to score it: the group with all of its tokens."""
        return PartialGroup(
            group_id=self.group_id,
            epoch=self.epoch,
            position=self.position,
            item=self.item,
            bound=self.bound,
            version=self.version,
            partial=tuple(
                Partial(tokens=r.tokens, logprobs=r.logprobs, versions=r.versions, finished_by=r.finished_by)
                for r in self.responses
            ),
            started_at=self.started_at,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class PartialGroup:
    """A group taken back from a rollouter before it was finished; nothing generated so far is lost."""

    group_id: int
    """Number of the group in its run, unique."""
    epoch: int
    """Pass over the training items, from 0."""
    position: int
    """Place in that epoch's order, from 0."""
    item: int
    """Index of the training item."""
    bound: float
    """Staleness under which the group was started, in versions."""
    version: int | None
    """Oldest version among the tokens so far; None when no token was sampled yet."""
    partial: tuple[Partial, ...]
    """One prefix per response, in response order; empty when no token was sampled yet."""
    started_at: float | None
    """Unix seconds of the first token; None when no token was sampled yet."""

    @property
    def tokens(self) -> int:
        """Response tokens so far."""
        return sum(len(partial.tokens) for partial in self.partial)

    def request(self) -> GroupRequest:
        """What another rollouter needs to continue this group."""
        return GroupRequest(
            group_id=self.group_id,
            epoch=self.epoch,
            position=self.position,
            item=self.item,
            bound=self.bound,
            partial=self.partial,
            started_at=self.started_at,
        )


def oldest_version(ranges: Sequence[VersionRanges]) -> int | None:
    """Smallest version among the ranges of some responses; None when none holds a token."""
    return min((version for response in ranges for version, _ in response), default=None)
