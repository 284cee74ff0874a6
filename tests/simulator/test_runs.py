"""What holds for every simulated run, arm by arm: `invariants.problems` finds nothing; and one run against another."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest

from planner.policy import actions as act
from planner.simulator.bounds import fluid_throughput
from planner.simulator.setup import Failure, Setup
from planner.simulator.simulator import Simulator
from planner.simulator.trace import Trace
from tests.simulator.builders import ARMS, OURS, STALENESSES, make_profile, make_setup, play, with_costs
from tests.simulator.invariants import Watched, problems

GATED = (*OURS, "bidirectional_paper")
"""Arms that lend only when it is predicted to pay."""

PARTITIONS: tuple[dict[str, Any], ...] = (
    {"rollout_devices": 8, "train_devices": 4},
    {"rollout_devices": 2, "train_devices": 8},
    {"rollout_devices": 12, "train_devices": 4, "rollout_replica_size": 2, "train_replica_size": 4},
)
"""Balanced, short of rollouters, short of trainers."""

STEP_S = 20.0
"""About the seconds of a step."""


def watched(setup: Setup) -> Trace:
    return Watched(setup, keep_actions=True).run()


def steps_of(trace: Trace) -> list[tuple[float, float, dict[int, int], tuple[int, ...]]]:
    return [(step.began_at, step.ended_at, step.lags, step.places) for step in trace.steps]


def lent(trace: Trace, direction: str) -> int:
    return sum(lease.direction == direction for lease in trace.leases)


# -- against other runs -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("staleness", STALENESSES)
@pytest.mark.parametrize("arm", GATED)
def test_a_gated_arm_is_no_borrow_when_a_switch_costs_more_than_the_run(arm: str, staleness: float) -> None:
    for partition in PARTITIONS:
        setup = with_costs(make_setup(arm=arm, staleness=staleness, **partition), 1e9)
        trace, alone = watched(setup), play(replace(setup, arm="no_borrow"))
        assert trace.leases == []
        assert steps_of(trace) == steps_of(alone)


@pytest.mark.parametrize("arm", ARMS)
def test_no_arm_is_faster_than_devices_that_are_always_busy_and_switch_for_nothing(arm: str) -> None:
    profile = make_profile(noise=0.0)  # noise makes devices faster than nominal as often as slower
    for partition in PARTITIONS:
        for seed in range(3):
            for staleness in (0, 0.5, 2):
                setup = make_setup(profile, arm=arm, seed=seed, staleness=staleness, **partition)
                for run in (setup, setup.with_free_switches(), replace(setup, streaming=not setup.streaming)):
                    trace = play(run)
                    tokens = sum(step.tokens for step in trace.steps)
                    assert tokens / trace.wall_s <= fluid_throughput(run) * (1 + 1e-9)


@pytest.mark.parametrize("arm", ARMS)
def test_two_runs_of_one_seed_are_equal_and_another_seed_makes_another_run(arm: str) -> None:
    setup = make_setup(arm=arm, exclusion_rate=0.1, failures=(Failure(at=STEP_S, block=1, back_after_s=5.0),))
    first, second, other = play(setup), play(setup), play(replace(setup, seed=1))
    assert first.actions
    assert first.account.busy == second.account.busy
    assert first.account.idle == second.account.idle
    for name in ("steps", "leases", "excluded", "decisions", "events", "wall_s", "throughput", "lags"):
        assert getattr(first, name) == getattr(second, name)
    # gains that no model predicts are nan, which is not equal to itself: their text is
    assert list(map(repr, first.actions)) == list(map(repr, second.actions))
    assert steps_of(first) != steps_of(other)


def test_keeping_the_actions_changes_nothing_but_that() -> None:
    setup = make_setup()
    kept, bare = play(setup), Simulator(setup).run()
    assert bare.actions == []
    assert steps_of(kept) == steps_of(bare)


@pytest.mark.parametrize("arm", [arm for arm in ARMS if arm not in ("no_borrow", *OURS[1:])])
def test_these_setups_make_the_arm_lend_in_both_directions(arm: str) -> None:
    traces = [
        play(make_setup(arm=arm, staleness=staleness, **partition).with_free_switches())
        for partition in PARTITIONS
        for staleness in (0, 1)
    ]
    assert all(any(lent(trace, direction) for trace in traces) for direction in OURS[1:])


# -- every run --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("staleness", STALENESSES)
@pytest.mark.parametrize("arm", ARMS)
def test_steps_are_whole_and_fresh_enough_and_every_place_is_used_once(arm: str, staleness: float) -> None:
    for partition in PARTITIONS:
        for exclusion_rate in (0.0, 0.2):
            setup = make_setup(arm=arm, staleness=staleness, exclusion_rate=exclusion_rate, **partition)
            trace = watched(setup)
            assert problems(setup, trace) == []
            assert bool(trace.excluded) == (exclusion_rate > 0)
            assert max(trace.lags) <= -(-staleness // 1)


@pytest.mark.parametrize("staleness", [0.25, 1, 2])
@pytest.mark.parametrize("arm", ARMS)
def test_the_lag_that_is_allowed_is_used(arm: str, staleness: float) -> None:
    setup = make_setup(arm=arm, staleness=staleness, rollout_devices=16)
    assert max(play(setup).lags) == -(-staleness // 1)


@pytest.mark.parametrize("direction", OURS[1:])
@pytest.mark.parametrize("arm", ["opportunistic", "bidirectional_paper", "bidirectional"])
def test_a_direction_that_is_switched_off_is_never_lent(arm: str, direction: str) -> None:
    for partition in PARTITIONS:
        off: dict[str, Any] = {direction: False}
        setup = make_setup(arm=arm, **partition, **off).with_free_switches()
        trace = watched(setup)
        assert lent(trace, direction) == 0
        assert problems(setup, trace) == []


@pytest.mark.parametrize("arm", ARMS)
def test_pools_that_cannot_host_the_other_role_lend_nothing(arm: str) -> None:
    setup = make_setup(arm=arm, rollout_devices=7, train_devices=4, train_replica_size=2)
    trace = watched(setup)
    assert trace.leases == []
    assert problems(setup, trace) == []


@pytest.mark.parametrize("arm", ARMS)
def test_a_decision_that_comes_late_delays_and_breaks_nothing(arm: str) -> None:
    for every in (0.1, 3.0):
        setup = make_setup(arm=arm, decide_every_s=every, staleness=0.5)
        trace = watched(setup)
        assert problems(setup, trace) == []
        times = sorted({at for at, _ in trace.actions})
        assert all(later - earlier >= every * (1 - 1e-9) for earlier, later in pairwise(times))


# -- what goes wrong --------------------------------------------------------------------------------------------------

BLOCKS = {"rollout": 1, "train": 5}
"""A rollout block and a train block of 8 + 4 devices in blocks of 2."""


@pytest.mark.parametrize("pool", BLOCKS)
@pytest.mark.parametrize("arm", ARMS)
def test_a_block_that_dies_costs_time_and_nothing_else(arm: str, pool: str) -> None:
    for staleness in (0, 1, 1.5):
        whole = play(make_setup(arm=arm, staleness=staleness))
        for share in (0.05, 0.3, 0.55, 0.8):
            failure = Failure(at=share * whole.wall_s, block=BLOCKS[pool], back_after_s=STEP_S)
            setup = make_setup(arm=arm, staleness=staleness, failures=(failure,), exclusion_rate=0.05)
            trace = watched(setup)
            assert problems(setup, trace) == []
            assert trace.account.busy["failure", False] > 0


@pytest.mark.parametrize(("partition", "direction"), [(PARTITIONS[1], OURS[1]), (PARTITIONS[2], OURS[2])])
@pytest.mark.parametrize("arm", ["opportunistic", "bidirectional"])
def test_an_auxiliary_may_die_at_any_time_of_its_lease(arm: str, partition: dict[str, Any], direction: str) -> None:
    setup = make_setup(arm=arm, staleness=0, **partition)
    leases = [lease for lease in play(setup).leases if lease.direction == direction and lease.released_at is not None]
    assert leases
    died = 0
    for lease in leases[:3]:
        assert lease.released_at is not None
        for share in (0.02, 0.4, 0.7, 0.98):
            at = lease.granted_at + share * (lease.released_at - lease.granted_at)
            failing = replace(setup, failures=(Failure(at=at, block=lease.block, back_after_s=STEP_S),))
            trace = watched(failing)
            assert problems(failing, trace) == []
            died += any(lease.end_reason == "its devices died" for lease in trace.leases)
    assert died > 3


@pytest.mark.parametrize("arm", ARMS)
def test_a_whole_pool_may_die_and_come_back(arm: str) -> None:
    for blocks in ((0, 1, 2, 3), (4, 5)):
        failures = tuple(Failure(at=1.3 * STEP_S, block=block, back_after_s=STEP_S) for block in blocks)
        setup = make_setup(arm=arm, failures=failures)
        assert problems(setup, watched(setup)) == []


@pytest.mark.parametrize("partition", PARTITIONS)
@pytest.mark.parametrize("arm", ["opportunistic", "bidirectional_paper", "bidirectional"])
def test_an_operator_may_take_the_leases_back_at_any_time(arm: str, partition: dict[str, Any]) -> None:
    taken_back = 0
    for staleness in (0, 1):
        setup = make_setup(arm=arm, staleness=staleness, revoke_at=tuple(range(3, 150, 7)), **partition)
        trace = watched(setup)
        assert problems(setup, trace) == []
        taken_back += sum(lease.end_reason == "an operator did" for lease in trace.leases)
    assert taken_back > 0


def test_a_chunk_that_is_taken_back_is_trained_to_a_group_boundary_and_the_rest_by_others() -> None:
    setup = make_setup(arm="opportunistic", staleness=0, prompts_per_step=24, **PARTITIONS[2])
    lease = next(lease for lease in play(setup).leases if lease.direction == "train_on_rollout")
    assert lease.working_at is not None
    chunk_s = 0.5 + 2 * 4 * 250 / 700.0  # seconds of a chunk of two groups of four mean responses, prompts included
    revoked = replace(setup, revoke_at=(lease.working_at + 0.2 * chunk_s,))
    trace = watched(revoked)
    assert problems(revoked, trace) == []
    handed = [
        group
        for at, action in trace.actions
        if isinstance(action, act.TrainChunk) and at <= trace.steps[0].ended_at
        for group in action.group_ids
    ]
    assert len(handed) > len(set(handed))  # handed out again: its finished groups were kept, the others went back
