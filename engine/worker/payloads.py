"""What commands and events carry between workers and the engine, who passes it on without opening it."""

from __future__ import annotations

import pickle
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from engine.learning.sequences import FinishedGroup

Handle = Any
"""Where an array lies: an object of the transport that the workers share; the engine only passes it on."""


@dataclass(frozen=True, slots=True)
class Parcel:
    """An array that travels with the delivery that tells of it; the transport turns it into a handle on the way."""

    number: int
    """Unique in its worker."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SealedGroup:
    """A finished group as the engine handles it: what it counts and stores, and the rest as bytes for the trainer.

    The engine never opens the bytes, so its cost does not grow with the tokens.
    """

    group_id: int
    epoch: int
    item: int
    version: int
    """Oldest version among the tokens."""
    prompt: str
    prompt_tokens: int
    """Length of the prompt."""
    responses: tuple[dict[str, Any], ...]
    """One a response: text, reward, tokens (count), versions as [[version, tokens], ...]; where the job has several
    rewards, parts: what it earned by each."""
    reward_mean: float | None
    """None when the reward failed."""
    started_at: float
    finished_at: float
    data: bytes
    """The pickled group; empty for an excluded one."""

    @classmethod
    def seal(cls, group: FinishedGroup, *, excluded: bool = False) -> SealedGroup:
        rewards = [response.reward for response in group.responses if response.reward is not None]
        return cls(
            group_id=group.group_id,
            epoch=group.epoch,
            item=group.item,
            version=group.version,
            prompt=group.prompt,
            prompt_tokens=len(group.prompt_tokens),
            responses=tuple(
                {
                    "text": response.text,
                    "reward": response.reward,
                    "tokens": len(response.tokens),
                    "versions": [list(item) for item in response.versions],
                    **({} if response.parts is None else {"parts": dict(response.parts)}),
                }
                for response in group.responses
            ),
            reward_mean=sum(rewards) / len(rewards) if rewards else None,
            started_at=group.started_at,
            finished_at=group.finished_at,
            data=b"" if excluded else pickle.dumps(group, protocol=pickle.HIGHEST_PROTOCOL),
        )

    @property
    def tokens(self) -> int:
        """Of all responses, each with its prompt."""
        return sum(self.prompt_tokens + int(response["tokens"]) for response in self.responses)

    def open(self) -> FinishedGroup:
        """The group itself, in a trainer's worker."""
        group: FinishedGroup = pickle.loads(self.data)
        return group


@dataclass(frozen=True, slots=True, kw_only=True)
class Weights:
    """One immutable version of the weights."""

    version: int
    handle: Handle


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotHandle:
    """What a trainer needs to become a primary of this version (design.md section 7)."""

    version: int
    weights: Handle | None
    """Parameters; None when all of it is in a folder."""
    moments: Handle | None
    """Optimizer state."""
    optimizer_steps: int
    folder: Path | None
    """Where it was written when it was too large for shared memory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShippedGradient:
    """What one replica accumulated, where the primaries can fetch it."""

    handle: Handle
    tokens: int
    """Response tokens that carried it."""
    keys: tuple[tuple[int, int], ...]
    """(epoch, position) of each row of the array in deterministic mode; empty: one summed gradient."""
