"""What a live run's policy knows, from measured costs and from the lengths of the groups that finished last.

The same figures as `planner.simulator.estimates` gives of a profile, in a few milliseconds: batches are drawn from real
groups instead of a distribution, and the physics is applied to all of them at once. Deterministic: the draws are common
random numbers, so two calls differ by what was measured and not by luck.
"""

from __future__ import annotations

import heapq
import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from planner.fitting import Sample, fit
from planner.policy.state import Estimates
from planner.profile import Models, Profile, RolloutSpeed, TrainSpeed
from planner.profile_models import (
    FEWEST_GROUPS,
    FULL_BATCHES,
    FULL_CHUNKS,
    MOST_GROUPS,
    REPEATS,
    SEED,
    replica_counts,
)

MOST_RESPONSES = 4096
"""Responses drawn for a batch over all its repeats: with more, the few loads that overfill a replica take longer than
the milliseconds that a step may spend on this."""

ROUNDS_PLAYED, SKIPPED_ROUNDS, LEAST_PLAYED = 8, 2, 64
"""Of groups that fill a replica, and groups at least, that are played for the rate at full load: some milliseconds."""

TRAIN_REPEATS = 2
"""Batches of each size for the trainer's model: its times scatter by the tokens of whole groups, a third as much."""

Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class FullLoad:
    """One rollout replica that never lacks groups."""

    group_s: float
    """Seconds per group."""
    latency_s: float
    """Mean seconds from a group's start to its end."""


def full_load(speed: RolloutSpeed, work_G_R: Array, *, refill_s: float) -> FullLoad:
    """Play groups of this work, in tokens, on one replica: a group starts when all of its responses find a free slot,
    and `refill_s` after they do. Slots that are no multiple of the group, and few of them, are so never all in use."""
    size = work_G_R.shape[1]
    slots = max(speed.slots, size)
    filling = slots // size
    played = max(LEAST_PLAYED, ROUNDS_PLAYED * filling)
    groups = [work_G_R[place % len(work_G_R)].tolist() for place in range(played)]
    ends: list[tuple[float, int]] = []
    left, began = [size] * played, [0.0] * played
    now = progress = ready_at = latency = 0.0
    following = 0
    while following < played:
        room = slots - len(ends) >= size
        if room and now >= ready_at:
            began[following] = now
            for tokens in groups[following]:
                heapq.heappush(ends, (progress + tokens, following))
            following += 1
            continue
        pace = (len(ends) + speed.half_batch) / speed.tokens_per_s
        end_at = now + (ends[0][0] - progress) * pace if ends else math.inf
        if room and ready_at < end_at:
            progress += (ready_at - now) / pace if ends else 0.0
            now = ready_at
            continue
        now, progress = end_at, ends[0][0]
        while ends and ends[0][0] <= progress:
            _, group = heapq.heappop(ends)
            left[group] -= 1
            latency += now - began[group] if left[group] == 0 else 0.0
        if slots - len(ends) >= size and not room:
            ready_at = now + refill_s
    # the first rounds all began at once, which they never do again
    first = SKIPPED_ROUNDS * filling
    return FullLoad(group_s=(began[-1] - began[first]) / (played - 1 - first), latency_s=latency / left.count(0))


def recorded_estimates(
    profile: Profile, lengths_G_R: Array, prompts_per_step: int, *, refill_s: float = 0.0
) -> Estimates:
    """Everything a policy may know, with the profile's costs and these response lengths.

    `refill_s`: how long free slots stay free for the way of a report and its answer.
    """
    rollout, group_size = profile.rollout, lengths_G_R.shape[1]
    load = full_load(rollout, lengths_G_R + rollout.start_tokens, refill_s=refill_s)
    models = profile.models or recorded_models(profile, lengths_G_R, prompts_per_step)
    return Estimates(
        rollout=models.rollout,
        train=models.train,
        rollout_on_train=profile.rollout_on_train,
        train_on_rollout=profile.train_on_rollout,
        full_load_group_s=load.group_s,
        group_latency_s=load.latency_s,
        slot_groups=max(1, rollout.slots // group_size),
        half_groups=rollout.half_batch / group_size,
        optimizer_s=profile.optimizer_s,
        sync_s=profile.weight_sync_s,
    )


def recorded_models(profile: Profile, lengths_G_R: Array, prompts_per_step: int) -> Models:
    """Stage-time models fitted to batches of these groups: whole and half ones, on as many replicas as plans use."""
    group_size = lengths_G_R.shape[1]
    largest = min(max(prompts_per_step, FEWEST_GROUPS), MOST_GROUPS)
    repeats = max(1, min(REPEATS, MOST_RESPONSES // (largest * group_size)))
    draws = np.random.default_rng(SEED)
    rollout: list[Sample] = []
    train: list[Sample] = []
    for groups in (largest, largest // 2):
        batches = lengths_G_R[draws.integers(0, len(lengths_G_R), (repeats, groups))]
        for replicas in replica_counts(groups, FULL_BATCHES * profile.rollout.slots / group_size):
            seconds = _batches_s(profile.rollout, batches, replicas)
            rollout.append(Sample(workload=groups, replicas=replicas, seconds=seconds))
        tokens_N_G = batches[:TRAIN_REPEATS].sum(axis=2) + group_size * profile.prompt_tokens
        for replicas in replica_counts(groups, FULL_CHUNKS * profile.train.max_chunk_groups):
            seconds = _train_steps_s(profile.train, tokens_N_G, replicas)
            train.append(Sample(workload=groups, replicas=replicas, seconds=seconds))
    return Models(rollout=fit(rollout, 1.0).model, train=fit(train, 1.0).model)


def _batches_s(speed: RolloutSpeed, lengths_N_G_R: Array, replicas: int) -> float:
    """Mean seconds until the last response of a batch ends: whole groups dealt out to the replicas in turn.

    A replica takes (tokens + h * T) / R: every token costs 1 / R, and every one of the T rounds that its slots need
    costs h / R (profile_models.replica_s, summed up). T is the longest response where all find a slot at once.
    """
    work = lengths_N_G_R + speed.start_tokens
    repeats, groups, group_size = work.shape
    each = -(-groups // replicas)
    dealt = np.zeros((repeats, each * replicas, group_size))
    dealt[:, :groups] = work
    by_replica = dealt.reshape(repeats, each, replicas, group_size)
    rounds = by_replica.max(axis=(1, 3))
    if each * group_size > speed.slots:
        # groups that were added to fill the last row have no tokens and change nothing
        in_order = by_replica.transpose(0, 2, 1, 3).reshape(repeats * replicas, -1).tolist()
        rounds = np.array([_rounds(lengths, speed.slots) for lengths in in_order]).reshape(repeats, replicas)
    seconds = (by_replica.sum(axis=(1, 3)) + speed.half_batch * rounds) / speed.tokens_per_s
    return float(seconds.max(axis=1).mean())


def _rounds(lengths: list[float], slots: int) -> float:
    """Token rounds until the last response ends, a free slot being refilled at once."""
    ends = lengths[:slots]
    heapq.heapify(ends)
    replace = heapq.heapreplace
    for length in lengths[slots:]:
        replace(ends, ends[0] + length)
    return max(ends)


def _train_steps_s(speed: TrainSpeed, tokens_N_G: Array, replicas: int) -> float:
    """Mean of profile_models.train_step_s over the batches: chunks depend on their number of groups alone."""
    groups = tokens_N_G.shape[1]
    ends: list[int] = []
    while not ends or ends[-1] < groups:
        done = ends[-1] if ends else 0
        ends.append(done + min(speed.max_chunk_groups, -(-(groups - done) // replicas)))
    chunks = np.add.reduceat(tokens_N_G, [0, *ends[:-1]], axis=1) / speed.tokens_per_s + speed.chunk_s
    if len(ends) <= replicas:
        return float(chunks.max(axis=1).mean())
    return float(np.mean([_rounds(seconds, replicas) for seconds in chunks.tolist()]))
