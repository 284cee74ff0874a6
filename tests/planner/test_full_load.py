"""The rate of a rollout replica that never lacks groups, against the simulator's own."""

from __future__ import annotations

import math

import numpy as np
import pytest

from planner.policy.bound import Bound
from planner.profile import RolloutSpeed
from planner.recorded_models import full_load
from planner.simulator.replicas import Group, Rollouter

SIZE = 8
BOUND = Bound(staleness=1.0, prompts_per_step=64)
LENGTHS = np.clip(np.random.default_rng(3).lognormal(3.0, 0.8, (64, SIZE)).round(), 1, 400)


def speed(slots: int) -> RolloutSpeed:
    return RolloutSpeed(slots=slots, tokens_per_s=1000.0, half_batch=6.0, resume_tokens=0.0)


def played(slots: int, groups: int) -> float:
    """Seconds per group of the simulator's replica, handed a group whenever it has room."""
    replica = Rollouter(
        device=0,
        devices=1,
        block=0,
        lease=None,
        version=0,
        rate=1000.0,
        half=6.0,
        resume_tokens=0.0,
        start_tokens=0.0,
        slots=slots,
        group_size=SIZE,
        in_flight_updates=True,
        residual=(1.0,),
        residual_step=1.0,
        now=0.0,
    )
    now, starts = 0.0, []
    while len(starts) < groups:
        while replica.room > 0 and len(starts) < groups:
            place = len(starts)
            starts.append(now)
            replica.begin(Group(place, place, LENGTHS[place % len(LENGTHS)].astype(int).tolist(), BOUND))
        now = replica.next_end()
        replica.advance(now)
        replica.ended()
    skipped = groups // 4
    return (starts[-1] - starts[skipped]) / (groups - 1 - skipped)


@pytest.mark.parametrize("slots", [8, 12, 16, 20, 64])
def test_it_is_the_rate_at_which_the_simulated_replica_takes_groups(slots: int) -> None:
    assert full_load(speed(slots), LENGTHS, refill_s=0.0).group_s == pytest.approx(played(slots, 256), rel=0.05)


def test_one_group_at_a_time_takes_as_long_as_its_longest_response_and_the_refill() -> None:
    lengths = np.array([[10.0, 20.0]])
    found = full_load(
        RolloutSpeed(slots=2, tokens_per_s=10.0, half_batch=1.0, resume_tokens=0.0), lengths, refill_s=0.5
    )
    # two sequences: 10 rounds of 3/10 s; then one: 10 rounds of 2/10 s
    assert found.latency_s == pytest.approx(3.0 + 2.0)
    assert found.group_s == pytest.approx(5.0 + 0.5)


def test_slots_that_are_no_multiple_of_the_group_are_not_all_in_use() -> None:
    each = {slots: full_load(speed(slots), LENGTHS, refill_s=0.0).group_s for slots in (16, 20, 24)}
    always_full = {slots: float(LENGTHS.sum(axis=1).mean()) * (slots + 6) / 1000 / slots for slots in each}
    assert each[16] > each[20] > each[24]
    assert all(each[slots] > always_full[slots] for slots in each)


def test_a_longer_refill_never_makes_it_faster() -> None:
    rates = [full_load(speed(16), LENGTHS, refill_s=refill_s).group_s for refill_s in (0.0, 0.05, 0.2, 1.0)]
    assert rates == sorted(rates)
    assert math.isfinite(rates[-1])


def test_a_replica_without_a_batch_of_half_speed_is_played_too() -> None:
    lengths = np.array([[10.0, 20.0]])
    quick = RolloutSpeed(slots=2, tokens_per_s=10.0, half_batch=0.0, resume_tokens=0.0)
    assert full_load(quick, lengths, refill_s=0.5).group_s == pytest.approx(2.0 + 1.0 + 0.5)
