"""Stage-time models from a profile: the physics by hand, the fit against batches that it has not seen."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from planner.fitting import errors_of
from planner.profile import Lengths, Models, RolloutSpeed, TrainSpeed
from planner.profile_models import (
    batch_s,
    full_load_group_s,
    mean_response_tokens,
    models_of,
    physics_samples,
    replica_s,
    train_step_s,
)
from planner.stage_model import StageModel
from tests.planner.profiles import make_profile

SPEED = RolloutSpeed(slots=2, tokens_per_s=100, half_batch=2, resume_tokens=0)
"""One sequence alone runs at 100/3 tokens/s, each of two at 25."""


@pytest.mark.parametrize(
    ("lengths", "seconds"),
    [
        pytest.param([100], 3.0, id="alone: 100 * 3 / 100"),
        pytest.param([100, 100], 4.0, id="two at once: 100 * 4 / 100"),
        pytest.param([100, 200], 4.0 + 3.0, id="two for 100 tokens, then one for 100"),
        # 100 tokens of both; the third starts as the first ends: 50 of both; then 150 - 50 of the third alone
        pytest.param([100, 150, 150], 4.0 + 2.0 + 3.0, id="a free slot is refilled at once"),
        pytest.param([], 0.0, id="nothing"),
    ],
)
def test_continuous_batching_by_hand(lengths: list[float], seconds: float) -> None:
    assert replica_s(SPEED, lengths) == pytest.approx(seconds)


def test_a_prompt_costs_its_tokens_of_work_before_the_response() -> None:
    prompts = replace(SPEED, start_tokens=50)
    # as if each of two responses were 150 long: 150 * 4 / 100
    assert replica_s(prompts, [100, 100]) == pytest.approx(6.0)
    base, slower = make_profile(), make_profile(rollout=replace(make_profile().rollout, start_tokens=100))
    mean = mean_response_tokens(base.response_tokens)
    assert full_load_group_s(slower, 8) == pytest.approx(full_load_group_s(base, 8) * (mean + 100) / mean)
    assert models_of(slower, 64, 8).rollout.b > models_of(base, 64, 8).rollout.b


def test_a_batch_ends_with_its_slowest_replica_and_groups_stay_whole() -> None:
    groups = [[100, 100], [100, 200], [100, 100]]
    # replica 0 has groups 0 and 2: 4 responses of 100 in pairs; replica 1 has group 1
    assert batch_s(SPEED, groups, 2) == pytest.approx(max(8.0, 7.0))
    assert batch_s(SPEED, groups, 1) == pytest.approx(replica_s(SPEED, [100, 100, 100, 200, 100, 100]))
    assert batch_s(SPEED, groups, 9) == pytest.approx(7.0), "more replicas than groups: the rest has nothing"


@pytest.mark.parametrize(
    ("replicas", "seconds"),
    [
        # chunks of 2, 2, 1 groups of 100 tokens at 100 tokens/s and 0.5 s each
        pytest.param(1, 2.5 + 2.5 + 1.5, id="one trainer"),
        # 2 and 2 of 5 groups in parallel, then the last one
        pytest.param(2, 2.5 + 1.5, id="two trainers"),
        # rest shared out evenly: 2, 1, 1, 1
        pytest.param(4, 2.5, id="four trainers"),
    ],
)
def test_a_training_step_by_hand(replicas: int, seconds: float) -> None:
    speed = TrainSpeed(tokens_per_s=100, chunk_s=0.5, max_chunk_groups=2)
    assert train_step_s(speed, [100.0] * 5, replicas) == pytest.approx(seconds)


@pytest.mark.parametrize(
    ("median", "cut", "sigma_group", "sigma_response"),
    [(700, 2048, 0.45, 0.45), (700, 700, 0.45, 0.45), (1200, 4096, 0.8, 0.1), (700, 10**9, 0.45, 0.45)],
)
def test_the_mean_length_agrees_with_quadrature(
    median: float, cut: int, sigma_group: float, sigma_response: float
) -> None:
    lengths = Lengths(median=median, max=cut, sigma_group=sigma_group, sigma_response=sigma_response)
    z = np.linspace(-12, 12, 200_001)
    density = np.exp(-(z**2) / 2) / math.sqrt(2 * math.pi)
    cut_lengths = np.minimum(median * np.exp(math.hypot(sigma_group, sigma_response) * z), cut)
    assert mean_response_tokens(lengths) == pytest.approx(
        float((density * cut_lengths).sum() * (z[1] - z[0])), rel=1e-6
    )


@pytest.mark.parametrize(("cut", "mean"), [(2048, 700.0), (500, 500.0)])
def test_lengths_without_spread_are_the_median_or_the_cut(cut: int, mean: float) -> None:
    assert mean_response_tokens(Lengths(median=700, max=cut, sigma_group=0, sigma_response=0)) == mean


def test_the_full_load_rate_is_that_of_a_long_queue() -> None:
    profile = make_profile()
    lengths = np.minimum(700 * np.exp(math.hypot(0.45, 0.45) * np.random.default_rng(0).standard_normal(40_000)), 2048)
    seconds_per_group = replica_s(profile.rollout, lengths.tolist()) / (40_000 / 8)
    assert full_load_group_s(profile, 8) == pytest.approx(seconds_per_group, rel=0.02)


def test_given_models_are_used_as_they_are() -> None:
    given = Models(rollout=StageModel(a=1, b=2), train=StageModel(a=3, b=4))
    assert models_of(make_profile(models=given), 64, 8) is given


def test_models_are_the_same_every_time_and_double_with_half_the_speed() -> None:
    base = models_of(make_profile(), 64, 8)
    models_of.cache_clear()
    assert models_of(make_profile(), 64, 8) == base
    slow_speed = RolloutSpeed(slots=64, tokens_per_s=625, half_batch=24, resume_tokens=25)
    slow = models_of(make_profile(rollout=slow_speed), 64, 8)
    assert (slow.rollout.a, slow.rollout.b) == (pytest.approx(2 * base.rollout.a), pytest.approx(2 * base.rollout.b))
    assert slow.train == base.train


def test_the_base_profile_is_predicted_within_6_percent_in_the_median_on_batches_not_seen() -> None:
    # the base form keeps a 90th percentile of 9% (rollout: half-empty replicas) and 12% (train: whole chunks)
    profile = make_profile()
    models = models_of(profile, 64, 8)
    rollout, train = physics_samples(profile, 64, 8, seed=1)
    for model, units, p90 in ((models.rollout, rollout, 0.12), (models.train, train, 0.14)):
        errors = errors_of(model, units)
        assert errors is not None
        assert errors.median < 0.06
        assert errors.p90 < p90


@pytest.mark.parametrize(("prompts_per_step", "group_size"), [(1, 1), (4, 2), (16, 8), (1000, 4)])
def test_every_size_of_job_gets_models_that_take_time(prompts_per_step: int, group_size: int) -> None:
    models = models_of(make_profile(), prompts_per_step, group_size)
    assert models.rollout.b > 0
    assert models.train.b > 0


@pytest.mark.parametrize(("prompts_per_step", "group_size"), [(0, 8), (64, 0)])
def test_a_job_without_groups_is_refused(prompts_per_step: int, group_size: int) -> None:
    with pytest.raises(ValueError, match="prompts_per_step and group_size must be at least 1, got"):
        models_of(make_profile(), prompts_per_step, group_size)
