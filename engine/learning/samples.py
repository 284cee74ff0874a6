"""From a scored group to what is trained on and what is counted of it.

Refuses groups that lack a finite reward or that are newer than the weights they would train.
"""

from __future__ import annotations

import numpy as np

from engine.learning.grpo.advantages import has_signal
from engine.learning.losses import Loss
from engine.learning.micro_batches import Sample
from engine.learning.sequences import FinishedGroup
from engine.learning.stats import ChunkStats, LagStats


def samples_of(group: FinishedGroup, *, version: int, loss: Loss, without_signal: bool) -> list[Sample]:
    """Responses that go through the loss of a trainer at `version`; all of a group or none.

    A group whose rewards are all equal gives none, unless `without_signal` asks for it (the KL term pulls on it too).
    Raises ValueError for a group that cannot be trained on.
    """
    rewards_G, lag = _shaped(group, loss), version - group.version
    if lag < 0:
        raise ValueError(f"group {group.group_id} has version {group.version}, the trainer only {version}")
    if not has_signal(rewards_G) and not without_signal:
        return []
    return [
        Sample(
            prompt=group.prompt_tokens,
            response=response.tokens,
            behaviour=response.logprobs,
            advantage=float(advantage),
            lag=lag,
        )
        for response, advantage in zip(group.responses, loss.advantages(rewards_G), strict=True)
    ]


def count(group: FinishedGroup, *, version: int, loss: Loss) -> ChunkStats:
    """The sums that do not need a forward pass; rewards are counted as they were given, before any shaping."""
    rewards_G = _rewards(group)
    return ChunkStats(
        groups=1,
        responses=len(rewards_G),
        no_signal=int(not has_signal(_shaped(group, loss))),
        prompt_tokens=len(group.prompt_tokens) * len(rewards_G),
        response_tokens=group.response_tokens,
        reward_sum=float(rewards_G.sum()),
        reward_square_sum=float((rewards_G**2).sum()),
        by_lag={version - group.version: LagStats(groups=1)},
    )


def _shaped(group: FinishedGroup, loss: Loss) -> np.ndarray:
    return loss.shaped(_rewards(group), np.array([len(response.tokens) for response in group.responses]))


def _rewards(group: FinishedGroup) -> np.ndarray:
    rewards = [response.reward for response in group.responses]
    if any(reward is None or not np.isfinite(reward) for reward in rewards):
        raise ValueError(f"group {group.group_id} has rewards {rewards}; every response needs a finite one")
    return np.array(rewards, dtype=np.float64)
