"""The partition and staleness frontier by hand, and that it orders what it must."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.frontier import Frontier, Point, frontier, pareto
from planner.partitions import plan
from planner.stage_model import StageModel

ROLLOUT = StageModel(a=0, b=4)
TRAIN = StageModel(a=0, b=4)


def make_frontier(**overrides: Any) -> Frontier:
    rollout, train = overrides.get("rollout", ROLLOUT), overrides.get("train", TRAIN)
    planned = plan(devices=16, layouts=[(1, 4)], prompts_per_step=64, workload=64.0, rollout=rollout, train=train)
    given_: dict[str, Any] = {
        "partitions": planned.candidates,
        "staleness": (0.0, 0.5, 1.0, 2.0),
        "prompts_per_step": 64,
        "workload": 64.0,
        "rollout": rollout,
        "train": train,
        "max_chunk_groups": 8,
    }
    return frontier(**given_ | overrides)


def at(found: Frontier, rollout_devices: int, staleness: float) -> Point:
    return next(each for each in found.points if (each.rollout_devices, each.staleness) == (rollout_devices, staleness))


def test_step_time_by_hand() -> None:
    # 4:12: rollout 64 s, train 256/3 = 85.33 s; a chunk of 8 groups: 8 s and 10.67 s; optimizer 2, sync 3
    found = make_frontier(optimizer_s=2.0, weight_sync_s=3.0)
    on_policy = max(64 + 32 / 3, 8 + 256 / 3) + 5
    overlapped = max(64 + 3, 256 / 3 + 5)
    assert at(found, 4, 0.0).step_s == pytest.approx(on_policy)
    assert at(found, 4, 1.0).step_s == pytest.approx(overlapped)
    assert at(found, 4, 2.0).step_s == pytest.approx(overlapped)
    assert at(found, 4, 0.5).step_s == pytest.approx((on_policy + overlapped) / 2)


def test_a_trainer_that_takes_a_whole_batch_waits_for_all_of_it_on_policy() -> None:
    found = make_frontier(streaming=False)
    assert at(found, 4, 0.0).step_s == pytest.approx(64 + 256 / 3)
    assert at(found, 4, 1.0).step_s == pytest.approx(256 / 3)


def test_idle_time_by_hand() -> None:
    # overlapped, 4:12: only the 4 rollout devices wait, a quarter of the time
    assert at(make_frontier(), 4, 1.0).idle_fraction == pytest.approx(1 / 16)


def test_lag_reaches_the_limit_where_the_trainer_is_the_slower_one_and_one_batch_where_it_waits() -> None:
    found = make_frontier()
    assert [at(found, 4, s).mean_lag for s in (0.0, 0.5, 1.0, 2.0)] == [0, 0.5, 1, 2]
    waiting = make_frontier(train=StageModel(a=0, b=0.1))
    assert [at(waiting, 4, s).mean_lag for s in (0.0, 0.5, 1.0, 2.0)] == [0, 0.5, 1, 1]


def test_a_staleness_that_allows_no_group_counts_as_none() -> None:
    found = make_frontier(staleness=(0.0, 0.01))
    assert at(found, 4, 0.01).step_s == at(found, 4, 0.0).step_s
    assert at(found, 4, 0.01).mean_lag == 0


def test_infeasible_partitions_have_no_points() -> None:
    found = make_frontier()
    assert {(each.rollout_devices, each.train_devices) for each in found.points} == {(4, 12), (8, 8), (12, 4)}
    assert len(found.points) == 3 * 4


def test_the_pareto_set_is_by_hand() -> None:
    # the mean times see no gain beyond 1, so 2 buys nothing; 4:12 is the fastest at each staleness
    assert [(each.rollout_devices, each.staleness) for each in make_frontier().pareto] == [(4, 0.0), (4, 0.5), (4, 1.0)]


points = st.builds(
    Point,
    rollout_devices=st.integers(1, 9),
    train_devices=st.just(1),
    rollout_replica_size=st.just(1),
    train_replica_size=st.just(1),
    staleness=st.sampled_from([0.0, 0.5, 1.0, 2.0]),
    step_s=st.just(1.0),
    rate=st.integers(1, 9).map(float),
    idle_fraction=st.just(0.0),
    mean_lag=st.just(0.0),
)


@given(st.lists(points, min_size=1, max_size=20))
def test_nothing_beats_a_pareto_point_and_every_other_point_is_beaten(given_: list[Point]) -> None:
    kept = pareto(given_)
    assert all(one.staleness < other.staleness and one.rate < other.rate for one, other in pairwise(kept))
    for point in given_:
        assert any(each.staleness <= point.staleness and each.rate >= point.rate for each in kept)


@given(
    a_r=st.floats(0, 50), b_r=st.floats(0.1, 10), a_t=st.floats(0, 50), b_t=st.floats(0.1, 10), streaming=st.booleans()
)
def test_more_staleness_never_makes_a_step_longer_and_idle_is_a_share(
    a_r: float, b_r: float, a_t: float, b_t: float, streaming: bool
) -> None:
    found = make_frontier(
        rollout=StageModel(a=a_r, b=b_r), train=StageModel(a=a_t, b=b_t), streaming=streaming, optimizer_s=2.0
    )
    for one, other in pairwise(found.points):
        if one.rollout_devices == other.rollout_devices:
            assert other.step_s <= one.step_s * (1 + 1e-9)
    assert all(0 <= each.idle_fraction <= 1 for each in found.points)


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ({"staleness": ()}, "a frontier needs at least 1 staleness, got none"),
        ({"staleness": (-1.0,)}, "staleness must be a number >= 0, got -1.0"),
        ({"optimizer_s": -1.0}, "optimizer_s must be a number of seconds >= 0, got -1.0"),
        ({"weight_sync_s": float("nan")}, "weight_sync_s must be a number of seconds >= 0, got nan"),
    ],
)
def test_bad_input_is_refused_with_its_value(overrides: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make_frontier(**overrides)
