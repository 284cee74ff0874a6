"""A group while a rollouter has it: from the request to what is handed back, finished or not."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from engine.learning.sequences import (
    FinishedGroup,
    GroupRequest,
    Partial,
    PartialGroup,
    Response,
    Tokens,
    oldest_version,
)


@dataclass(slots=True, kw_only=True)
class HeldGroup:
    """Each response is in `ended` or has a slot; the group is finished when none has one."""

    request: GroupRequest
    """What was asked for."""
    prompt: str
    """The question as the task words it."""
    prompt_tokens: Tokens
    """[P] token ids the model is given."""
    ended: list[Partial | None]
    """Response -> it, once it ended."""
    slots: dict[int, int]
    """Response -> its slot, while it grows; in response order."""
    started_at: float | None
    """Unix seconds of the first token; None before it."""
    waits: bool = True
    """Not in the batch yet: that happens at the next step."""

    def finish(self, text_of: Callable[[Tokens], str], now: float) -> FinishedGroup:
        """All responses have ended; `now` in unix seconds."""
        responses = []
        for partial in self.ended:
            assert partial is not None
            assert partial.finished_by is not None
            responses.append(
                Response(
                    tokens=partial.tokens,
                    logprobs=partial.logprobs,
                    versions=partial.versions,
                    text=text_of(partial.tokens),
                    finished_by=partial.finished_by,
                )
            )
        request, version = self.request, oldest_version([response.versions for response in responses])
        assert version is not None
        assert self.started_at is not None
        return FinishedGroup(
            group_id=request.group_id,
            epoch=request.epoch,
            position=request.position,
            item=request.item,
            bound=request.bound,
            version=version,
            prompt=self.prompt,
            prompt_tokens=self.prompt_tokens,
            responses=tuple(responses),
            started_at=self.started_at,
            finished_at=now,
        )

    def take_back(self, prefixes: Mapping[int, Partial]) -> PartialGroup:
        """With the prefixes of the responses that still grew, by response."""
        request = self.request
        partial = tuple(ended if ended is not None else prefixes[index] for index, ended in enumerate(self.ended))
        version = oldest_version([response.versions for response in partial])
        return PartialGroup(
            group_id=request.group_id,
            epoch=request.epoch,
            position=request.position,
            item=request.item,
            bound=request.bound,
            version=version,
            partial=partial if version is not None else (),
            started_at=self.started_at if version is not None else None,
        )
