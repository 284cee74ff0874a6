"""Simulated runs without pools: every device its share, its switches, its idle time; by hand and against the rules."""

from __future__ import annotations

from typing import Any

import pytest

from planner.policy import actions as act
from planner.profile import Lengths, RolloutSpeed, SwitchCosts, TrainSpeed
from planner.simulator.bounds import fluid_throughput
from planner.simulator.colocated import ColocatedSimulator, simulator_of
from planner.simulator.setup import Failure, Setup
from planner.simulator.trace import Trace
from tests.simulator.builders import make_profile, make_setup
from tests.simulator.invariants import Watched, problems


class WatchedColocated(ColocatedSimulator, Watched):
    """Looks into its books after every decision."""


def setup_of(**overrides: Any) -> Setup:
    fields: dict[str, Any] = {"arm": "colocated", "staleness": 0, "rollout_devices": 12, "train_devices": 0}
    return make_setup(**(fields | overrides))


def played(**overrides: Any) -> tuple[Setup, Trace]:
    setup = setup_of(**overrides)
    return setup, WatchedColocated(setup, keep_actions=True).run()


def test_one_device_by_hand() -> None:
    profile = make_profile(
        rollout=RolloutSpeed(slots=4, tokens_per_s=100.0, half_batch=4.0, resume_tokens=0.0),
        train=TrainSpeed(tokens_per_s=100.0, chunk_s=1.0, max_chunk_groups=2),
        optimizer_s=3.0,
        weight_sync_s=50.0,
        rollout_on_train=SwitchCosts(in_s=7.0, out_s=90.0),
        train_on_rollout=SwitchCosts(in_s=5.0, out_s=90.0, grad_s=90.0),
        response_tokens=Lengths(median=50, max=50, sigma_group=0, sigma_response=0, drift=0),
        prompt_tokens=0.0,
        noise=0.0,
    )
    setup, trace = played(
        profile=profile,
        rollout_devices=1,
        train_replica_size=1,
        prompts_per_step=2,
        group_size=2,
        steps=2,
    )
    # four sequences of 50 tokens at 100 / (4 + 4): 4 s; switch 5 s; one chunk of two groups: 1 + 200 / 100 = 3 s;
    # optimizer 3 s, nothing to merge and no weight sync; then a switch of 7 s before the same again
    first = 4.0 + 5.0 + 3.0 + 3.0
    assert [step.ended_at for step in trace.steps] == pytest.approx([first, first + 7.0 + first])
    assert trace.switch_s == [5.0, 7.0, 5.0]
    assert trace.account.idle_s == 0
    assert problems(setup, trace) == []


@pytest.mark.parametrize(
    "overrides",
    [
        {},
        {"exclusion_rate": 0.2},
        {"prompts_per_step": 3},
        {"prompts_per_step": 64, "steps": 2},
        {"rollout_replica_size": 2},
        {"train_replica_size": 4},
        {"decide_every_s": 0.5},
    ],
    ids=["base", "exclusions", "fewer groups than devices", "overfull", "equal sizes", "four in one", "late decisions"],
)
def test_every_run_keeps_the_rules_and_uses_every_place_once(overrides: dict[str, Any]) -> None:
    for seed in range(3):
        setup, trace = played(seed=seed, **overrides)
        assert problems(setup, trace) == []
        assert set(trace.lags) == {0}
        assert trace.leases == []
        assert sum(step.tokens for step in trace.steps) / trace.wall_s < fluid_throughput(setup) * 1.05


def test_the_devices_meet_at_the_merge_and_each_switches_twice_a_step() -> None:
    setup, trace = played()
    # six devices of two: to the trainer's role and back, but for the end
    assert len(trace.switch_s) == 6 * (2 * setup.steps - 1)
    busy = trace.account.busy
    assert busy["grad_merge", False] == pytest.approx(setup.steps * 12 * 0.2)
    assert busy["switch_in", False] == pytest.approx(sum(trace.switch_s) * 2)
    finishes = [action for _, action in trace.actions if isinstance(action, act.FinishStep)]
    assert [len(action.devices) for action in finishes] == [6] * setup.steps


def test_devices_beyond_the_groups_of_a_step_stay_trainers() -> None:
    _, trace = played(prompts_per_step=4)
    assert {action.device for _, action in trace.actions if isinstance(action, act.SwitchRole)} == {2, 4, 8, 10}


def test_two_runs_of_one_seed_are_equal() -> None:
    first, second = played()[1], played()[1]
    assert first.actions == second.actions
    assert first.steps == second.steps


@pytest.mark.parametrize(
    ("overrides", "told"),
    [
        ({"train_devices": 4}, "train_devices must be 0, got 4"),
        ({"staleness": 1}, "on-policy"),
        ({"streaming": True}, "whole batches"),
        ({"failures": (Failure(at=1.0, block=0, back_after_s=1.0),)}, "no blocks"),
        ({"rollout_replica_size": 4}, "multiple of the rollout replica size 4, got 2"),
        ({"rollout_devices": 13}, "13 devices are no multiple of the train replica size 2"),
        ({"group_size": 64}, "must hold a group of 64 responses, got 8"),
    ],
)
def test_what_cannot_run_without_pools_is_refused(overrides: dict[str, Any], told: str) -> None:
    with pytest.raises(ValueError, match=told):
        setup_of(**overrides)


def test_an_arm_with_pools_is_played_by_the_simulator_of_pools() -> None:
    assert not isinstance(simulator_of(make_setup()), ColocatedSimulator)
    assert isinstance(simulator_of(setup_of()), ColocatedSimulator)
