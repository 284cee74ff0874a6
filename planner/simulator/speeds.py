"""How fast simulated and emulated replicas are: the profile's speeds, each with its noise (design section 9).

The same work takes the same time in every arm, whoever asks and in whatever order: noise is looked up, not drawn anew.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from planner.profile import Profile

NOISES = 4093
"""Noise factors that are drawn once and looked up; a prime, so that no stride repeats early."""

ROLLOUT_NOISE, TRAIN_NOISE = 0, 1


class Speeds:
    """Of one run."""

    def __init__(self, profile: Profile, *, seed: int, group_size: int) -> None:
        drawn = np.random.default_rng([seed, 3]).normal(0.0, profile.noise, NOISES)
        self._noises: list[float] = np.exp(drawn).tolist()
        self._profile = profile
        self._prompt = profile.prompt_tokens * group_size

    def noise(self, kind: int, key: int) -> float:
        """A factor on a duration: the same for the same work in every arm, so that arms differ by what they do."""
        return self._noises[(kind * 7919 + key * 104_729) % NOISES]

    def rate(self, device: int, version: int) -> float:
        """Tokens per second of a rollouter with this version, in the limit of a large batch."""
        return self._profile.rollout.tokens_per_s / self.noise(ROLLOUT_NOISE, device * 1009 + version)

    def boundaries(self, now: float, key: int, tokens: Iterable[int]) -> list[float]:
        """When each group of a chunk that begins now is done, from the response tokens of each.

        `key`: that of the chunk's noise, which follows from its first group.
        """
        speed, noise = self._profile.train, self.noise(TRAIN_NOISE, key)
        end = now + speed.chunk_s * noise
        ends = []
        for count in tokens:
            end += (count + self._prompt) / speed.tokens_per_s * noise
            ends.append(end)
        return ends
