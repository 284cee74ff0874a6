"""Stage-time models of a job that has only a profile: its physics is run on a few batches and fitted (section 9).

Deterministic: the response lengths of the batches are common random numbers, the same for every profile and every
number of replicas, so two profiles differ by their physics and not by their draws. It models no noise and no drift of
lengths: those belong to the simulator. `a` and `b` come from batches of all sizes, so that a half-empty replica and the
tail of its last responses are in them.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Sequence
from functools import lru_cache
from itertools import islice
from statistics import NormalDist

import numpy as np

from planner.fitting import Sample, fit
from planner.profile import Lengths, Models, Profile, RolloutSpeed, TrainSpeed

SEED = 20260709
"""Seed of the common random numbers; any fixed one would do."""

REPEATS = 6
"""Batches of different lengths for each size: their makespans scatter by 3 to 7%, the fitted mean then by 1 to 3%."""

FEWEST_GROUPS = 16
"""Groups of the larger sampled batch at least: below, there are not enough loads to tell a from b."""

MOST_GROUPS = 256
"""Groups of the larger sampled batch at most: the models depend on groups per replica, and 4,096 would take seconds."""

LOADS = (1.0, 1.5, 2.0, 3.0, 4.0, 6.0, 8.0, 12.0, 16.0, 24.0)
"""Sampled groups per replica: equal ratios, because plans range from idle replicas to overfull ones."""

FULL_BATCHES = 2.0
"""Largest sampled rollout load, in batches that fill a replica: beyond, all is proportional and a longer batch would
only outweigh the loads that plans choose between."""

FULL_CHUNKS = 4.0
"""Largest sampled trainer load, in full-size chunks per replica, for the same reason."""


@lru_cache(maxsize=64)
def models_of(profile: Profile, prompts_per_step: int, group_size: int) -> Models:
    """The profile's own models if it has some, else those fitted to its physics; workload in groups.

    Raises ValueError for sizes below 1.
    """
    if prompts_per_step < 1 or group_size < 1:
        raise ValueError(
            f"prompts_per_step and group_size must be at least 1, got {prompts_per_step!r} and {group_size!r}"
        )
    if profile.models is not None:
        return profile.models
    rollout_samples, train_samples = physics_samples(profile, prompts_per_step, group_size, seed=SEED)
    return Models(rollout=fit(rollout_samples, 1.0).model, train=fit(train_samples, 1.0).model)


def physics_samples(
    profile: Profile, prompts_per_step: int, group_size: int, *, seed: int
) -> tuple[list[Sample], list[Sample]]:
    """Rollout and train units as the physics would time them: whole and half batches, `REPEATS` of each."""
    largest = min(max(prompts_per_step, FEWEST_GROUPS), MOST_GROUPS)
    full_load = FULL_BATCHES * profile.rollout.slots / group_size
    full_chunks = FULL_CHUNKS * profile.train.max_chunk_groups
    rollout: list[Sample] = []
    train: list[Sample] = []
    for groups in (largest, largest // 2):
        for repeat in range(REPEATS):
            lengths_G_R = draw_lengths(profile.response_tokens, groups, group_size, seed=(seed, groups, repeat))
            tokens_G = (lengths_G_R.sum(axis=1) + group_size * profile.prompt_tokens).tolist()
            for replicas in replica_counts(groups, full_load):
                seconds = batch_s(profile.rollout, lengths_G_R.tolist(), replicas)
                rollout.append(Sample(workload=groups, replicas=replicas, seconds=seconds))
            for replicas in replica_counts(groups, full_chunks):
                seconds = train_step_s(profile.train, tokens_G, replicas)
                train.append(Sample(workload=groups, replicas=replicas, seconds=seconds))
    return rollout, train


def batch_s(speed: RolloutSpeed, lengths_G_R: Sequence[Sequence[float]], replicas: int) -> float:
    """Seconds until the last response of a batch of groups ends: whole groups dealt out to the replicas in turn."""
    return max(
        replica_s(speed, [length for group in lengths_G_R[first::replicas] for length in group])
        for first in range(min(replicas, len(lengths_G_R)))
    )


def replica_s(speed: RolloutSpeed, lengths: Sequence[float]) -> float:
    """Seconds of continuous batching of these responses on one replica, a free slot being refilled at once.

    All active sequences have the same speed, so they are kept by the count of tokens at which each ends.
    """
    waiting = iter([length + speed.start_tokens for length in lengths])
    active = list(islice(waiting, speed.slots))
    heapq.heapify(active)
    seconds = reached = 0.0
    while active:
        seconds += (active[0] - reached) * (len(active) + speed.half_batch) / speed.tokens_per_s
        reached = active[0]
        length = next(waiting, None)
        if length is None:
            heapq.heappop(active)
        else:
            heapq.heapreplace(active, reached + length)
    return seconds


def train_step_s(speed: TrainSpeed, tokens_G: Sequence[float], replicas: int) -> float:
    """Seconds until a step's groups are trained: chunks in order, each to the trainer that is free first.

    Chunks are full-size until the rest is shared out evenly, as the arms do at the end of a step.
    """
    free_at = [0.0] * replicas
    done = 0
    while done < len(tokens_G):
        size = min(speed.max_chunk_groups, -(-(len(tokens_G) - done) // replicas))
        chunk_s = speed.chunk_s + sum(tokens_G[done : done + size]) / speed.tokens_per_s
        heapq.heapreplace(free_at, free_at[0] + chunk_s)
        done += size
    return max(free_at)


def mean_response_tokens(lengths: Lengths) -> float:
    """E[min(X, max)] of the lognormal X with the given median and sigma^2 = sigma_group^2 + sigma_response^2, tokens.

    In closed form: median * exp(sigma^2 / 2) * Phi(z - sigma) + max * (1 - Phi(z)), z = ln(max / median) / sigma.
    """
    sigma = math.hypot(lengths.sigma_group, lengths.sigma_response)
    if sigma == 0:
        return min(lengths.median, float(lengths.max))
    z = math.log(lengths.max / lengths.median) / sigma
    phi = NormalDist().cdf
    return lengths.median * math.exp(sigma**2 / 2) * phi(z - sigma) + lengths.max * phi(-z)


def full_load_group_s(profile: Profile, group_size: int) -> float:
    """Seconds per group and replica when all slots stay full (design section 7, full-load rate)."""
    speed = profile.rollout
    tokens = group_size * (mean_response_tokens(profile.response_tokens) + speed.start_tokens)
    return tokens * (speed.slots + speed.half_batch) / (speed.tokens_per_s * speed.slots)


def replica_counts(groups: int, largest_load: float) -> list[int]:
    """Replica counts, without repeats, whose loads are about those of LOADS up to the largest."""
    counts = {max(1, round(groups / load)) for load in LOADS if load <= max(largest_load, LOADS[2])}
    return sorted(counts)


def draw_lengths(lengths: Lengths, groups: int, group_size: int, *, seed: int | Sequence[int]) -> np.ndarray:
    """Response lengths, tokens, of `groups` groups: lognormal per group and per response, cut at the maximum."""
    draws = np.random.default_rng(seed)
    group_G_1 = draws.standard_normal((groups, 1)) * lengths.sigma_group
    response_G_R = draws.standard_normal((groups, group_size)) * lengths.sigma_response
    return np.minimum(lengths.median * np.exp(group_G_1 + response_G_R), lengths.max)
