"""Emulated rollouters: the simulator's times to the token, prefixes that travel, versions of each token."""

from __future__ import annotations

import pickle
from dataclasses import replace
from typing import Any

import pytest

from engine.worker import messages as msg
from planner.policy.bound import Bound
from planner.simulator.replicas import Group, Rollouter
from tests.emulated.builders import DrivenNode, generate, load, make_job

BOUND = Bound(staleness=1, prompts_per_step=4)


def lengths_of(driven: DrivenNode, group_id: int) -> list[int]:
    return driven.physics.lengths(0, group_id)


def simulated_ends(
    driven: DrivenNode, *group_ids: int, resume: dict[int, list[tuple[float, float]]]
) -> dict[int, float]:
    """Group -> when the simulator's rollouter, which began at 0, has finished it."""
    speed = driven.physics.profile.rollout
    replica = Rollouter(
        device=0,
        devices=1,
        block=0,
        lease=None,
        version=0,
        rate=speed.tokens_per_s,
        half=speed.half_batch,
        resume_tokens=speed.resume_tokens,
        start_tokens=speed.start_tokens,
        slots=speed.slots,
        group_size=2,
        in_flight_updates=True,
        residual=(1.0,),
        residual_step=0.0,
        now=0.0,
    )
    for group_id in group_ids:
        group = Group(group_id, group_id, lengths_of(driven, group_id), BOUND)
        group.left = resume.get(group_id, [])
        replica.begin(group)
    ends = {}
    while replica.active:
        now = replica.next_end()
        replica.advance(now)
        ends |= {group.group_id: now for group in replica.ended()}
    return ends


@pytest.mark.parametrize("start_tokens", [0.0, 25.0])
def test_groups_have_the_simulators_lengths_and_end_at_its_times(start_tokens: float) -> None:
    profile: dict[str, Any] = make_job().profile.model_dump(mode="json")  # type: ignore[union-attr]
    profile["rollout"]["start_tokens"] = start_tokens
    driven = DrivenNode(make_job(profile=profile))
    driven.send(0.0, (0, load(0)), (0, generate(0, 1, 2)))
    driven.until(100.0)
    scored = {event.group.group_id: event.group for event in driven.of(0, msg.GroupScored)}
    ends = simulated_ends(driven, 0, 1, 2, resume={})
    assert {n: driven.model(group.finished_at) for n, group in scored.items()} == pytest.approx(ends, abs=1e-5)
    for group_id, group in scored.items():
        assert [response["tokens"] for response in group.responses] == lengths_of(driven, group_id)
        assert [response["versions"] for response in group.responses] == [
            [[0, length]] for length in lengths_of(driven, group_id)
        ]
        assert (group.version, group.reward_mean, group.data, group.prompt_tokens) == (0, None, b"", 10)


def test_a_replica_of_several_devices_shows_one_life_on_all_of_them() -> None:
    driven = DrivenNode(make_job(devices={"partition": "8:4", "rollout_replica_size": 4}))
    driven.send(1.0, (4, load(0)), (4, generate(0)))
    driven.until(100.0)
    end = simulated_ends(driven, 0, resume={})[0]
    life = [("idle", 0.0, 1.0), ("rollout", 1.0, round(1.0 + end, 4))]
    assert [driven.kinds(device) for device in (4, 5, 6, 7)] == [life] * 4
    assert [len(driven.of(device, msg.GroupScored)) for device in range(8)] == [0, 0, 0, 0, 1, 0, 0, 0]
    (span,) = (span for span in driven.spans[5] if span.kind == "rollout")
    assert (span.role, span.version, span.cpu_s) == ("primary", 0, 0.0)


def test_a_prefix_is_carried_and_nothing_is_generated_twice_or_lost() -> None:
    driven = DrivenNode()
    driven.send(0.0, (0, load(0)), (1, load(0)), (0, generate(0, 1)))
    driven.send(0.5, (0, msg.AbortGroups()))
    (aborted,) = driven.of(0, msg.GroupsAborted)
    # four sequences at 100 / (4 + 2) tokens/s: 8.33 tokens of each
    assert [[len(partial.tokens) for partial in group.partial] for group in aborted.groups] == [[8, 8], [8, 8]]
    assert [group.version for group in aborted.groups] == [0, 0]
    back = pickle.loads(pickle.dumps(aborted.groups))
    assert back == aborted.groups
    driven.send(2.0, (1, msg.Generate(requests=tuple(group.request() for group in back))))
    driven.until(100.0)
    exact = 50 / 6
    left = {n: [(length - exact, exact) for length in lengths_of(driven, n)] for n in (0, 1)}
    ends = simulated_ends(driven, 0, 1, resume=left)
    scored = {event.group.group_id: event.group for event in driven.of(1, msg.GroupScored)}
    assert {n: driven.model(group.finished_at) - 2.0 for n, group in scored.items()} == pytest.approx(ends, abs=1e-5)
    units = [unit for device in (0, 1) for unit in driven.units[device]]
    wanted = sum(sum(lengths_of(driven, n)) for n in (0, 1))
    assert sum(unit.sequences for unit in units) == wanted
    assert (sum(unit.starts for unit in units), sum(unit.resumes for unit in units)) == (4, 4)
    assert [driven.model(group.started_at) for group in scored.values()] == pytest.approx([0.0, 0.0], abs=1e-5)


def test_a_prefix_that_is_taken_back_before_it_was_resumed_keeps_its_tokens() -> None:
    driven = DrivenNode()
    driven.send(0.0, (0, load(0)), (1, load(0)), (0, generate(3)))
    driven.send(1.0, (0, msg.AbortGroups()))
    (first,) = driven.of(0, msg.GroupsAborted)[0].groups
    driven.send(2.0, (1, msg.Generate(requests=(first.request(),))))
    driven.send(2.1, (1, msg.AbortGroups()))  # 2.5 of the 10 tokens' worth of resuming are done
    (second,) = driven.of(1, msg.GroupsAborted)[0].groups
    assert second.tokens == first.tokens == 50  # two at 100 / 4 tokens/s
    more = [b.left - a.left for a, b in zip(first.partial, second.partial, strict=True)]
    assert more == pytest.approx([7.5, 7.5])
    assert sum(unit.sequences for unit in driven.units[0]) == 50


def test_a_group_without_a_token_goes_back_as_if_it_had_never_begun() -> None:
    driven = DrivenNode()
    driven.send(0.0, (0, load(0)), (0, generate(0)))
    driven.send(0.01, (0, msg.AbortGroups()))
    (group,) = driven.of(0, msg.GroupsAborted)[0].groups
    assert (group.partial, group.version, group.started_at) == ((), None, None)


def test_an_ended_response_stays_ended_in_a_prefix() -> None:
    driven = DrivenNode()
    short, long = sorted(lengths_of(driven, 0))
    assert short < long - 2
    driven.send(0.0, (0, load(0)), (0, generate(0)))
    driven.send(short / 25 + 0.03, (0, msg.AbortGroups()))  # the other one goes on at 100 / 3 tokens/s
    (group,) = driven.of(0, msg.GroupsAborted)[0].groups
    ended, growing = sorted(group.partial, key=lambda partial: len(partial.tokens))
    assert (len(ended.tokens), ended.finished_by, ended.left) == (short, "eos", 0.0)
    assert (len(growing.tokens), growing.finished_by) == (short + 1, None)
    driven.send(30.0, (0, msg.Generate(requests=(group.request(),))))
    driven.until(100.0)
    (scored,) = driven.of(0, msg.GroupScored)
    assert sorted(response["tokens"] for response in scored.group.responses) == [short, long]
    # what is left and resuming, at 100 / 3 tokens/s
    assert driven.model(scored.group.finished_at) - 30.0 == pytest.approx((long - short - 1 + 10) * 0.03, abs=1e-5)


def test_tokens_after_an_update_in_flight_are_of_the_new_version_and_the_group_keeps_its_oldest() -> None:
    driven = DrivenNode()
    driven.send(0.0, (0, load(0)), (0, generate(3)))
    driven.send(1.0, (0, load(1)))  # after 25 tokens of each
    driven.send(1.0 + 1e-3, (0, msg.AbortGroups()))
    (group,) = driven.of(0, msg.GroupsAborted)[0].groups
    assert [partial.versions for partial in group.partial] == [((0, 25),), ((0, 25),)]
    driven.send(2.0, (0, msg.Generate(requests=(group.request(),))))
    driven.until(100.0)
    (scored,) = driven.of(0, msg.GroupScored)
    assert scored.group.version == 0
    ranges = [[[0, 25], [1, length - 25]] for length in lengths_of(driven, 3)]
    assert [response["versions"] for response in scored.group.responses] == ranges
    assert [event.version for event in driven.of(0, msg.WeightsLoaded)] == [0, 1]


def test_a_strictly_on_policy_group_never_gets_other_weights() -> None:
    driven = DrivenNode()
    driven.send(0.0, (0, load(0)), (0, generate(3, bound=0.0)))
    driven.send(1.0, (0, load(1)))
    (failed,) = driven.of(0, msg.Failed)
    assert "of bound 0 got new weights in flight" in failed.error


def test_a_rollouter_says_how_full_it_is() -> None:
    driven = DrivenNode()
    driven.send(0.0, (0, load(0)), (0, generate(0, 1)))
    assert driven.loads[0] == msg.RolloutLoad(added=2, active=4)
    driven.until(100.0)
    assert driven.loads[0] == msg.RolloutLoad(added=2, active=0)


def test_reported_stretches_are_those_of_the_physics() -> None:
    """seconds = (steps * h + tokens + resumes * resume_tokens) / R, which is what the engine fits."""
    driven = DrivenNode()
    driven.send(0.0, (0, load(0)), (1, load(0)), (0, generate(0, 1, 2)))
    driven.send(1.5, (0, msg.AbortGroups()))
    groups = driven.of(0, msg.GroupsAborted)[0].groups
    driven.send(2.0, (1, msg.Generate(requests=tuple(group.request() for group in groups))))
    driven.until(100.0)
    for unit in (driven.units[0][0], replace(driven.units[1][0], seconds=sum(u.seconds for u in driven.units[1]))):
        units = driven.units[0] if unit is driven.units[0][0] else driven.units[1]
        steps, tokens = sum(u.steps for u in units), sum(u.sequences for u in units)
        resumes = sum(u.resumes for u in units)
        seconds = sum(u.seconds for u in units) / driven.scale
        assert seconds == pytest.approx((steps * 2.0 + tokens + resumes * 10.0) / 100.0, abs=0.06)
