"""Synthetic groups: how long each response is follows from the data order, its tokens are only counted.

All unfinished responses of a group have equally many tokens, since they began together and run at one speed. That holds
across replicas too, so that one number and one list of versions tell how far a group is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import floor
from typing import Any, cast

from engine.learning.sequences import GroupRequest, Partial, PartialGroup, VersionRanges
from engine.worker.messages import SealedGroup
from planner.policy.bound import Bound
from planner.simulator.replicas import Group

ROUNDING = 1e-3
"""Tokens: a sum of many small steps is a little less than the whole token that it means."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EmulatedPartial(Partial):
    """A response so far: its tokens are a range, and what is left of it is kept to the fraction."""

    left: float
    """Tokens until its end, what is missing of a resumption included; 0 when it has ended."""


class GrowingGroup(Group):
    """A group that an emulated rollouter holds."""

    __slots__ = ("_cuts", "_sorted", "base", "counted", "each", "request", "started_at")

    def __init__(self, request: GroupRequest, lengths: Sequence[int], *, prompts_per_step: int, now: float) -> None:
        """`now`: unix seconds. Raises AssertionError for prefixes that are not of this group."""
        bound = Bound(staleness=request.bound, prompts_per_step=prompts_per_step)
        super().__init__(request.group_id, request.position, list(lengths), bound)
        self.request = request
        self.started_at = now if request.started_at is None else request.started_at
        self.base = 0.0
        """Progress of its rollouter at which its first token was due, had it always been there."""
        self.each = 0
        """Tokens of each unfinished response."""
        self.counted = 0
        """Tokens that are in some report."""
        self._sorted = sorted(lengths)
        self._cuts: list[tuple[int, int]] = []
        """(version, tokens of each response with it and those before it)."""
        if request.partial:
            self._continue([cast(EmulatedPartial, partial) for partial in request.partial])

    def _continue(self, partials: list[EmulatedPartial]) -> None:
        longest = max(partials, key=lambda partial: len(partial.tokens))
        self.each = len(longest.tokens)
        before = 0
        for version, tokens in longest.versions:
            before += tokens
            self._cuts.append((version, before))
        self.version = self._cuts[0][0]
        for partial, length in zip(partials, self.responses, strict=True):
            ended = partial.finished_by is not None
            assert len(partial.tokens) == length if ended else len(partial.tokens) < length, (
                f"group {self.group_id} came with {len(partial.tokens)} of {length} tokens"
            )
        self.left = [(partial.left, float(self.each)) for partial in partials if partial.finished_by is None]
        assert self.left, f"group {self.group_id} came with nothing left to generate"
        self.counted = self.tokens_at

    @property
    def exact(self) -> float:
        """Tokens of each unfinished response, to the fraction; below what it has while a resumption is under way."""
        return self._sorted[-1] - max(left for left, _ in self.left)

    @property
    def tokens_at(self) -> int:
        """Tokens of all responses so far."""
        return sum(min(length, self.each) for length in self._sorted)

    @property
    def versions(self) -> set[int]:
        """Of its tokens."""
        return {version for version, _ in self._cuts}

    def grow(self, progress: float, version: int, unfinished: int) -> int:
        """Its rollouter, whose weights have this version, is so far; the tokens that came since the last call."""
        lengths, ended = self._sorted, len(self._sorted) - unfinished
        each = floor(progress - self.base + ROUNDING)
        if unfinished:
            each = min(each, lengths[ended] - 1)  # the shortest that has not ended still lacks a token
        if ended:
            each = max(each, lengths[ended - 1])
        if each > self.each:
            if self._cuts and self._cuts[-1][0] == version:
                self._cuts.pop()
            self.each = each
            self._cuts.append((version, each))
        tokens = self.tokens_at
        new, self.counted = tokens - self.counted, tokens
        return new

    def sealed(self, now: float, prompt_tokens: int) -> SealedGroup:
        """As the engine handles it, all its responses being ended; `now` in unix seconds."""
        request = self.request
        responses: tuple[dict[str, Any], ...] = tuple(
            {
                "text": "",
                "reward": None,
                "tokens": length,
                "versions": [list(item) for item in self._ranges(length)],
            }
            for length in self.responses
        )
        return SealedGroup(
            group_id=request.group_id,
            epoch=request.epoch,
            item=request.item,
            version=self._cuts[0][0],
            prompt="",
            prompt_tokens=prompt_tokens,
            responses=responses,
            reward_mean=None,
            started_at=self.started_at,
            finished_at=now,
            data=b"",
        )

    def returned(self) -> PartialGroup:
        """As the engine keeps it until another rollouter takes it; `left` says what is left of each response.

        Without a whole token it goes back as if it had never begun.
        """
        request, begun = self.request, self.each > 0
        return PartialGroup(
            group_id=request.group_id,
            epoch=request.epoch,
            position=request.position,
            item=request.item,
            bound=request.bound,
            version=self._cuts[0][0] if begun else None,
            partial=self._partials() if begun else (),
            started_at=self.started_at if begun else None,
        )

    def _partials(self) -> tuple[EmulatedPartial, ...]:
        exact, partials = self.exact, []
        for length in self.responses:
            tokens: Any = range(min(length, self.each))
            ended = length <= self.each
            partials.append(
                EmulatedPartial(
                    tokens=tokens,
                    logprobs=tokens,
                    versions=self._ranges(len(tokens)),
                    finished_by="eos" if ended else None,
                    left=0.0 if ended else length - exact,
                )
            )
        return tuple(partials)

    def _ranges(self, tokens: int) -> VersionRanges:
        ranges, before = [], 0
        for version, until in self._cuts:
            if before >= tokens:
                break
            ranges.append((version, min(until, tokens) - before))
            before = until
        return tuple(ranges)
