"""A run measures itself: made-up physics is found again, and nothing is told before it was measured."""

from __future__ import annotations

import math
import time
from dataclasses import asdict, replace
from typing import Any

import pytest

from planner.fitting import Errors
from planner.measuring import Profiler
from planner.profile import Models, Profile, RolloutSpeed
from planner.simulator.estimates import estimates_of
from planner.stage_model import StageModel
from tests.planner.profiles import make_profile
from tests.planner.runs import GROUP_SIZE, PER_STEP, costs, decode, finish, make_profiler, measured, train

PROFILE = make_profile(
    rollout=RolloutSpeed(slots=64, tokens_per_s=1250, half_batch=24, resume_tokens=25, start_tokens=40)
)


def speed_of(profiler: Profiler) -> RolloutSpeed:
    """The measured rollout speed; what else a profile needs is filled in."""
    train(profiler, PROFILE, 4)
    finish(profiler, PROFILE, 8)
    costs(profiler, PROFILE)
    profile = profiler.profile()
    assert profile is not None
    return profile.rollout


# -- the physics is found ---------------------------------------------------------------------------------------------


def test_the_profile_of_a_noisy_run_is_that_of_its_physics_within_a_few_percent() -> None:
    profile = measured(PROFILE).profile()
    assert profile is not None
    assert asdict(profile.rollout) == pytest.approx(asdict(PROFILE.rollout), rel=0.06)
    assert profile.rollout.tokens_per_s == pytest.approx(1250, rel=0.02)
    assert profile.rollout.half_batch == pytest.approx(24, rel=0.02)
    # a chunk's fixed part is a tenth of a mean chunk, so its noise is ten times that of the whole
    assert profile.train.tokens_per_s == pytest.approx(2800, rel=0.03)
    assert profile.train.chunk_s == pytest.approx(0.6, rel=0.15)
    assert profile.train.max_chunk_groups == 8
    assert (profile.optimizer_s, profile.weight_sync_s, profile.prompt_tokens) == (2.0, 3.0, 400)
    assert (profile.rollout_on_train, profile.train_on_rollout) == (PROFILE.rollout_on_train, PROFILE.train_on_rollout)
    lengths = profile.response_tokens
    assert (lengths.median, lengths.sigma_group, lengths.sigma_response) == (
        pytest.approx(700, rel=0.06),
        pytest.approx(0.45, abs=0.03),
        pytest.approx(0.45, abs=0.03),
    )
    assert (lengths.max, profile.noise) == (2048, pytest.approx(0.05, abs=0.015))


def test_units_are_predicted_to_within_their_noise_before_they_are_entered() -> None:
    errors = measured(PROFILE).errors()
    # |N(0, 5%)| has a median of 3.4% and a 90th percentile of 8.2%
    assert errors["rollout"] == Errors(
        median=pytest.approx(0.034, abs=0.01), p90=pytest.approx(0.082, abs=0.02), count=200
    )
    assert errors["train"] == Errors(
        median=pytest.approx(0.034, abs=0.01), p90=pytest.approx(0.082, abs=0.02), count=96
    )


def test_nothing_is_predicted_before_there_was_a_fit() -> None:
    profiler = make_profiler(PROFILE)
    decode(profiler, PROFILE, 8)
    assert profiler.errors() == {"rollout": None, "train": None}


@pytest.mark.parametrize("at", [2, 300])
def test_one_unit_that_takes_ten_times_as_long_hardly_moves_the_fit(at: int) -> None:
    profiler = make_profiler(PROFILE)
    decode(profiler, PROFILE, at)
    profiler.decoded(steps=20, sequences=20 * 32, starts=0, resumes=0, seconds=10 * 20 * 56 / 1250)
    decode(profiler, PROFILE, 320 - at, seed=1)
    speed = speed_of(profiler)
    assert (speed.tokens_per_s, speed.half_batch) == (pytest.approx(1250, rel=0.03), pytest.approx(24, rel=0.03))


def test_a_machine_that_becomes_half_as_fast_is_followed() -> None:
    profiler = make_profiler(PROFILE)
    decode(profiler, PROFILE, 100)
    slow = replace(PROFILE, rollout=replace(PROFILE.rollout, tokens_per_s=625))
    decode(profiler, slow, 600, seed=1)
    assert speed_of(profiler).tokens_per_s == pytest.approx(625, rel=0.05)


def test_prompts_that_cost_nothing_and_prefixes_that_were_never_continued_cost_nothing() -> None:
    free = replace(PROFILE, rollout=RolloutSpeed(slots=64, tokens_per_s=1250, half_batch=24, resume_tokens=0))
    profiler = make_profiler(free)
    decode(profiler, free, 400)
    speed = speed_of(profiler)
    assert 0 <= speed.start_tokens < 2
    assert 0 <= speed.resume_tokens < 4


def test_a_prefix_that_was_never_continued_is_taken_to_cost_what_a_prompt_does() -> None:
    profiler = make_profiler(PROFILE)
    for unit in range(40):
        batch, begun = 8 + unit % 50, 8 * (unit % 3 == 0)
        seconds = 20 * (batch + 24) / 1250 + begun * 0.05
        profiler.decoded(steps=20, sequences=20 * batch, starts=begun, resumes=0, seconds=seconds)
    speed = speed_of(profiler)
    assert speed.start_tokens > 0
    assert speed.resume_tokens == speed.start_tokens


# -- what the units do not tell ---------------------------------------------------------------------------------------


def test_batches_that_are_all_equally_full_keep_the_shape_that_was_known_and_give_the_total() -> None:
    known, slow = PROFILE, replace(PROFILE, rollout=replace(PROFILE.rollout, tokens_per_s=625))
    profiler = make_profiler(PROFILE, given=known)
    decode(profiler, slow, 300, batches=(40, 40), starts=False)
    speed = speed_of(profiler)
    assert speed.half_batch == pytest.approx(24, rel=0.1)
    assert (40 + speed.half_batch) / speed.tokens_per_s == pytest.approx(64 / 625, rel=0.02)


def test_the_shape_that_varied_batches_told_survives_a_long_time_of_equal_ones() -> None:
    profiler = make_profiler(PROFILE)
    decode(profiler, PROFILE, 200, starts=False)
    decode(profiler, PROFILE, 1200, batches=(60, 60), starts=False, seed=1)
    speed = speed_of(profiler)
    assert speed.half_batch == pytest.approx(24, rel=0.1)
    assert (60 + speed.half_batch) / speed.tokens_per_s == pytest.approx(84 / 1250, rel=0.02)


def test_with_nothing_known_of_the_shape_the_step_and_its_sequences_share_the_time() -> None:
    profiler = make_profiler(PROFILE)
    decode(profiler, PROFILE, 200, batches=(40, 40), starts=False)
    speed = speed_of(profiler)
    assert speed.half_batch == pytest.approx(40, rel=0.2)
    assert (40 + speed.half_batch) / speed.tokens_per_s == pytest.approx(64 / 1250, rel=0.02)


@pytest.mark.parametrize(
    ("steps_s", "tokens_s"), [(0.02, 0.0), (0.0, 0.002)], ids=["the batch is free", "no fixed part"]
)
def test_costs_are_never_negative_and_a_replica_is_never_infinitely_fast(steps_s: float, tokens_s: float) -> None:
    profiler = make_profiler(PROFILE)
    for unit in range(200):
        batch = 1 + unit % 64
        seconds = (10 * steps_s + 10 * batch * tokens_s) * (1 + 0.05 * math.sin(unit))
        profiler.decoded(steps=10, sequences=10 * batch, starts=0, resumes=0, seconds=seconds)
    speed = speed_of(profiler)
    assert 0 < speed.tokens_per_s < 1e9
    assert 0 <= speed.half_batch < 1e4
    assert (32 + speed.half_batch) / speed.tokens_per_s == pytest.approx(steps_s + 32 * tokens_s, rel=0.05)


# -- what is told when ------------------------------------------------------------------------------------------------


def test_there_is_no_profile_until_every_part_was_measured_and_what_is_missing_is_said() -> None:
    profiler = make_profiler(PROFILE)
    assert profiler.missing[:3] == ("8 more rollout units", "4 more chunks", "8 more finished groups")
    decode(profiler, PROFILE, 7)
    train(profiler, PROFILE, 4)
    finish(profiler, PROFILE, 8)
    assert profiler.missing[0] == "1 more rollout units"
    decode(profiler, PROFILE, 1)
    profiler.optimized(1.0)
    profiler.synced(1.0)
    profiler.switched("rollout_on_train", in_s=1.0, out_s=1.0)
    profiler.switched("train_on_rollout", in_s=1.0)
    assert (profiler.profile(), profiler.estimates()) == (None, None)
    assert profiler.missing == ("train_on_rollout.out_s",)
    profiler.switched("train_on_rollout", out_s=1.0)
    assert profiler.missing == ()
    assert profiler.profile() is not None
    assert profiler.estimates() is not None


def test_a_given_profile_holds_for_each_part_until_that_is_measured() -> None:
    given = make_profile()
    profiler = make_profiler(PROFILE, given=given)
    assert profiler.profile() == given
    known, expected = profiler.estimates(), estimates_of(given, prompts_per_step=PER_STEP, group_size=GROUP_SIZE)
    assert known is not None
    assert known.full_load_group_s == pytest.approx(expected.full_load_group_s, rel=0.1)
    profiler.switched("rollout_on_train", in_s=1.0)
    profiler.optimized(0.5)
    found = profiler.profile()
    assert found is not None
    assert (found.rollout_on_train.in_s, found.rollout_on_train.out_s, found.optimizer_s) == (1.0, 5.59, 0.5)
    assert found.response_tokens == given.response_tokens


def test_given_stage_models_are_what_the_policy_knows() -> None:
    models = Models(rollout=StageModel(a=1, b=2), train=StageModel(a=3, b=4))
    known = measured(PROFILE, given=make_profile(models=models)).estimates()
    assert known is not None
    assert (known.rollout, known.train) == (models.rollout, models.train)


def test_switch_costs_are_medians_of_the_last_ones() -> None:
    profiler = measured(PROFILE)
    for seconds in (1.0, 2.0, 90.0):
        for _ in range(8):
            profiler.switched("rollout_on_train", in_s=seconds)
    found = profiler.profile()
    assert found is not None
    # the last sixteen: eight of 2 s and eight of 90 s
    assert found.rollout_on_train.in_s == 46.0


@pytest.mark.parametrize(
    ("call", "told"),
    [
        (lambda p: p.decoded(steps=0, sequences=0, starts=0, resumes=0, seconds=1.0), "one above 0"),
        (lambda p: p.decoded(steps=1, sequences=1, starts=0, resumes=0, seconds=0.0), "above 0, got 0.0"),
        (lambda p: p.trained(groups=9, tokens=1, seconds=1.0), "1 to 8 groups, got 9"),
        (lambda p: p.finished([1, 2], 3), "a group has 8 lengths"),
        (lambda p: p.switched("sideways", in_s=1.0), "one of rollout_on_train, train_on_rollout, got 'sideways'"),
        (lambda p: p.optimized(float("nan")), "optimizer_s must be a number of seconds >= 0, got nan"),
    ],
)
def test_what_is_no_measurement_is_refused(call: Any, told: str) -> None:
    with pytest.raises(ValueError, match=told):
        call(make_profiler(PROFILE))


# -- what the policy knows --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("slots", [16, 64, 512], ids=["overfull replicas", "full ones", "half-empty ones"])
def test_the_policy_knows_what_it_would_of_the_same_physics_within_a_tenth(slots: int) -> None:
    profile = replace(PROFILE, rollout=replace(PROFILE.rollout, slots=slots, start_tokens=0.0))
    known = measured(profile).estimates()
    assert known is not None
    expected = estimates_of(profile, prompts_per_step=PER_STEP, group_size=GROUP_SIZE)
    for name in ("half_groups", "optimizer_s", "sync_s"):
        assert getattr(known, name) == pytest.approx(getattr(expected, name), rel=0.1), name
    # it knows that a group waits until all of its responses find a slot, which the other takes to be in use always
    assert 1.0 <= known.full_load_group_s / expected.full_load_group_s < 1.4
    assert 0.6 < known.group_latency_s / expected.group_latency_s < 1.1
    for name in ("slot_groups", "rollout_on_train", "train_on_rollout"):
        assert getattr(known, name) == getattr(expected, name), name
    assert known.rollout.seconds(0, 1) == 0
    for replicas in (4, 16):
        for stage in ("rollout", "train"):
            found, wanted = getattr(known, stage), getattr(expected, stage)
            assert found.seconds(PER_STEP, replicas) == pytest.approx(wanted.seconds(PER_STEP, replicas), rel=0.1)


def test_the_same_measurements_give_the_same_estimates_every_time_and_how_long_that_takes() -> None:
    profiler = measured(PROFILE)
    first = profiler.estimates()
    began = time.process_time()
    for _ in range(10):
        assert profiler.estimates() == first
    print(f"estimates(): {(time.process_time() - began) * 100:.2f} ms of CPU")


def test_a_profile_as_measured_is_one_that_a_simulator_obeys() -> None:
    profile = measured(PROFILE).profile()
    assert isinstance(profile, Profile)
    assert estimates_of(profile, prompts_per_step=PER_STEP, group_size=GROUP_SIZE).full_load_group_s == pytest.approx(
        estimates_of(PROFILE, prompts_per_step=PER_STEP, group_size=GROUP_SIZE).full_load_group_s, rel=0.06
    )


def test_hiccups_that_are_all_on_one_side_are_part_of_the_mean_time() -> None:
    profiler = make_profiler(PROFILE)
    spent = 0.0
    for unit in range(400):
        batch = 8 + unit % 50
        # every fifth unit takes half as long again
        seconds = 20 * (batch + 24) / 1250 * (1.5 if unit % 5 == 0 else 1.0) * (1 + 0.1 * math.sin(unit))
        spent += seconds
        profiler.decoded(steps=20, sequences=20 * batch, starts=0, resumes=0, seconds=seconds)
    speed = speed_of(profiler)
    told = sum(20 * (8 + unit % 50 + speed.half_batch) / speed.tokens_per_s for unit in range(400))
    assert told == pytest.approx(spent, rel=0.04)
