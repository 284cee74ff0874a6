"""A run made up from a profile: units that its physics would give, with noise, for whatever measures them."""

from __future__ import annotations

import numpy as np

from planner.measuring import Profiler
from planner.profile import Profile
from planner.profile_models import draw_lengths

GROUP_SIZE, PER_STEP = 8, 64


def make_profiler(profile: Profile, *, given: Profile | None = None) -> Profiler:
    return Profiler(
        group_size=GROUP_SIZE,
        slots=profile.rollout.slots,
        max_chunk_groups=profile.train.max_chunk_groups,
        prompts_per_step=PER_STEP,
        max_response_tokens=profile.response_tokens.max,
        given=given,
    )


def decode(
    profiler: Profiler,
    profile: Profile,
    units: int,
    *,
    batches: tuple[int, int] | None = None,
    noise: float = 0.05,
    starts: bool = True,
    seed: int = 0,
) -> None:
    """Rollout units at batch sizes within `batches`, by default anything up to full slots."""
    rng, speed = np.random.default_rng(seed), profile.rollout
    low, high = batches or (1, speed.slots)
    # a start's seconds, from its tokens at the mean batch size: what the profiler turns round
    mean = (low + high) / 2
    token_s = (mean + speed.half_batch) / (mean * speed.tokens_per_s)
    for _ in range(units):
        steps, batch = int(rng.integers(4, 40)), int(rng.integers(low, high + 1))
        begun = GROUP_SIZE * int(rng.integers(1, 3)) if starts and rng.random() < 0.3 else 0
        resumed = GROUP_SIZE if starts and rng.random() < 0.1 else 0
        seconds = steps * (batch + speed.half_batch) / speed.tokens_per_s
        seconds += (begun * speed.start_tokens + resumed * speed.resume_tokens) * token_s
        profiler.decoded(
            steps=steps,
            sequences=steps * batch,
            starts=begun,
            resumes=resumed,
            seconds=seconds * float(np.exp(rng.normal(0.0, noise))),
        )


def train(profiler: Profiler, profile: Profile, chunks: int, *, noise: float = 0.05, seed: int = 0) -> None:
    rng, speed = np.random.default_rng(seed), profile.train
    lengths = draw_lengths(profile.response_tokens, 512, GROUP_SIZE, seed=seed)
    for _ in range(chunks):
        groups = int(rng.integers(1, speed.max_chunk_groups + 1))
        tokens = int(lengths[rng.integers(0, 512, groups)].sum() + groups * GROUP_SIZE * profile.prompt_tokens)
        seconds = (speed.chunk_s + tokens / speed.tokens_per_s) * float(np.exp(rng.normal(0.0, noise)))
        profiler.trained(groups=groups, tokens=tokens, seconds=seconds)


def finish(profiler: Profiler, profile: Profile, groups: int, *, seed: int = 0) -> None:
    for row in draw_lengths(profile.response_tokens, groups, GROUP_SIZE, seed=seed).round().astype(int).tolist():
        profiler.finished(row, profile.prompt_tokens)


def costs(profiler: Profiler, profile: Profile, times: int = 3) -> None:
    to_rollout, to_train = profile.rollout_on_train, profile.train_on_rollout
    for _ in range(times):
        profiler.optimized(profile.optimizer_s)
        profiler.synced(profile.weight_sync_s)
        profiler.switched("rollout_on_train", in_s=to_rollout.in_s, out_s=to_rollout.out_s)
        profiler.switched("train_on_rollout", in_s=to_train.in_s)
        profiler.switched("train_on_rollout", out_s=to_train.out_s, grad_s=to_train.grad_s)


def measured(profile: Profile, *, given: Profile | None = None) -> Profiler:
    """A profiler that has seen a few steps of everything."""
    profiler = make_profiler(profile, given=given)
    decode(profiler, profile, 400)
    train(profiler, profile, 100)
    finish(profiler, profile, 512)
    costs(profiler, profile)
    return profiler
