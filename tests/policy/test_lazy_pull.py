"""How two sides share a queue: the tail's sizes by hand and by search, and plans that hold every unit once."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.policy.lazy_pull import Chunk, Pulls, joint_tail_split, lazy_pull
from planner.stage_model import StageModel

UNIT = StageModel(a=0, b=1)


def split(
    units: list[float],
    now: float = 0,
    other_ready: float = 0,
    replicas: int = 1,
    other_replicas: int = 1,
    model: StageModel = UNIT,
    primary: bool = True,
) -> int:
    return joint_tail_split(
        units=units,
        now=now,
        other_ready=other_ready,
        replicas=replicas,
        other_replicas=other_replicas,
        model=model,
        primary=primary,
    )


def rows(pulls: Pulls) -> list[tuple[str, int, int, float, float]]:
    return [(chunk.side, chunk.first, chunk.n, chunk.start, chunk.end) for chunk in pulls.chunks]


@pytest.mark.parametrize(
    ("got", "units"),
    [
        pytest.param(split([1.0] * 6), 3, id="even"),
        pytest.param(split([1.0] * 3), 2, id="1 and 2 both end at 2: the primary takes more"),
        pytest.param(split([1.0] * 3, primary=False), 1, id="1 and 2 both end at 2: the auxiliary takes less"),
        pytest.param(split([1.0, 1.0], other_ready=5), 2, id="the other is late: all"),
        pytest.param(split([1.0], other_replicas=4), 0, id="1 s here or 0.25 s there: nothing"),
        pytest.param(split([1.0, 1.0], other_ready=math.inf), 2, id="the other never comes"),
        pytest.param(split([1.0, 1.0], other_ready=math.inf, primary=False), 2, id="the primary never comes"),
        pytest.param(split([1.0, 1.0], other_replicas=0, primary=False), 2, id="the other has no replica"),
        pytest.param(split([1.0] * 8, now=10, other_ready=14, replicas=2, model=StageModel(a=1, b=2)), 7, id="18 s"),
        pytest.param(split([5.0, 1.0, 1.0, 1.0]), 1, id="uneven units: 5 against 3"),
        pytest.param(split([]), 0, id="nothing is left"),
    ],
)
def test_the_tail_is_split_so_that_both_sides_end_together(got: int, units: int) -> None:
    assert got == units


def test_chunks_are_full_until_the_tail_and_both_sides_end_together() -> None:
    """20 units, M_p = 1 + n, M_a = 1 + 2 n. Full chunks while more than 8 remain; at 10 s the primary's share of 8 is
    7, cut to 4; at 14 s the auxiliary's 1 and 2 both end at 19 s, so the primary gets more."""
    pulls = lazy_pull(
        units=[1.0] * 20,
        ready_primary=0,
        ready_auxiliary=5,
        primaries=2,
        auxiliaries=1,
        model=StageModel(a=1, b=2),
        max_chunk=4,
    )
    assert rows(pulls) == [
        ("primary", 0, 4, 0, 5),
        ("primary", 4, 4, 5, 10),
        ("auxiliary", 8, 4, 5, 14),
        ("primary", 12, 4, 10, 15),
        ("auxiliary", 16, 1, 14, 17),
        ("primary", 17, 3, 15, 19),
    ]
    assert (pulls.finish_primary, pulls.finish_auxiliary, pulls.finish) == (19, 17, 19)


@pytest.mark.parametrize(("primaries", "auxiliaries", "side"), [(1, 0, "primary"), (0, 1, "auxiliary")])
def test_a_side_without_replicas_pulls_nothing_and_has_no_end(primaries: int, auxiliaries: int, side: str) -> None:
    pulls = lazy_pull(
        units=[1.0] * 5,
        ready_primary=0,
        ready_auxiliary=0,
        primaries=primaries,
        auxiliaries=auxiliaries,
        model=UNIT,
        max_chunk=2,
    )
    assert rows(pulls) == [(side, 0, 2, 0, 2), (side, 2, 2, 2, 4), (side, 4, 1, 4, 5)]
    ends = {"primary": pulls.finish_primary, "auxiliary": pulls.finish_auxiliary}
    assert ends.pop(side) == 5
    assert list(ends.values()) == [None]


def test_a_side_that_the_tail_gives_nothing_leaves_the_rest_to_the_other() -> None:
    """One slow primary is ready first, eight auxiliaries half a second later: 4 units take them 0.5 s."""
    pulls = lazy_pull(
        units=[1.0] * 4,
        ready_primary=0,
        ready_auxiliary=0.5 - 1e-6,
        primaries=1,
        auxiliaries=8,
        model=UNIT,
        max_chunk=2,
    )
    assert [row[:3] for row in rows(pulls)] == [("auxiliary", 0, 2), ("auxiliary", 2, 2)]
    assert pulls.finish_primary is None


def test_an_auxiliary_that_comes_too_late_gets_nothing() -> None:
    pulls = lazy_pull(
        units=[1.0] * 3, ready_primary=0, ready_auxiliary=9, primaries=1, auxiliaries=1, model=UNIT, max_chunk=4
    )
    assert rows(pulls) == [("primary", 0, 3, 0, 3)]


def test_an_empty_queue_has_no_chunks_and_no_end() -> None:
    pulls = lazy_pull(units=[], ready_primary=0, ready_auxiliary=0, primaries=1, auxiliaries=1, model=UNIT, max_chunk=1)
    assert (pulls.chunks, pulls.finish_primary, pulls.finish_auxiliary, pulls.finish) == ((), None, None, None)


@pytest.mark.parametrize(
    ("primaries", "auxiliaries", "max_chunk", "message"),
    [(0, 0, 1, "one side must have a replica, got 0 and 0"), (1, 1, 0, "max_chunk must be at least 1 unit, got 0")],
)
def test_a_queue_that_nobody_can_pull_from_is_refused(
    primaries: int, auxiliaries: int, max_chunk: int, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        lazy_pull(
            units=[1.0],
            ready_primary=0,
            ready_auxiliary=0,
            primaries=primaries,
            auxiliaries=auxiliaries,
            model=UNIT,
            max_chunk=max_chunk,
        )


whole = st.integers(0, 12).map(float)  # whole seconds, so that sums and ends are exact
models = st.builds(StageModel, a=st.integers(0, 3).map(float), b=st.integers(1, 4).map(float))
queues = st.lists(st.integers(1, 5).map(float), max_size=24)


@settings(max_examples=150)
@given(units=queues, ready_p=whole, ready_a=whole, d_p=st.integers(0, 4), d_a=st.integers(1, 4), model=models)
@pytest.mark.parametrize("max_chunk", [1, 3, 30])
def test_every_unit_is_pulled_once_and_each_side_works_without_a_gap(
    max_chunk: int, units: list[float], ready_p: float, ready_a: float, d_p: int, d_a: int, model: StageModel
) -> None:
    pulls = lazy_pull(
        units=units,
        ready_primary=ready_p,
        ready_auxiliary=ready_a,
        primaries=d_p,
        auxiliaries=d_a,
        model=model,
        max_chunk=max_chunk,
    )
    pulled = [place for chunk in pulls.chunks for place in range(chunk.first, chunk.first + chunk.n)]
    assert pulled == list(range(len(units)))
    assert all(1 <= chunk.n <= max_chunk for chunk in pulls.chunks)
    for side, ready, replicas in (("primary", ready_p, d_p), ("auxiliary", ready_a, d_a)):
        for chunk in (chunk for chunk in pulls.chunks if chunk.side == side):
            work = math.fsum(units[chunk.first : chunk.first + chunk.n])
            assert chunk == Chunk(
                side=chunk.side, first=chunk.first, n=chunk.n, start=ready, end=ready + model.seconds(work, replicas)
            )
            ready = chunk.end


@settings(max_examples=150)
@given(units=queues, ready_p=whole, late=whole, d_p=st.integers(1, 4), d_a=st.integers(1, 4), model=models)
def test_a_queue_that_is_all_tail_ends_no_later_than_any_split_of_it(
    units: list[float], ready_p: float, late: float, d_p: int, d_a: int, model: StageModel
) -> None:
    pulls = lazy_pull(
        units=units,
        ready_primary=ready_p,
        ready_auxiliary=ready_p + late,
        primaries=d_p,
        auxiliaries=d_a,
        model=model,
        max_chunk=max(1, len(units)),
    )

    def end(n: int) -> float:
        primary = ready_p + model.seconds(sum(units[:n]), d_p) if n else 0
        auxiliary = ready_p + late + model.seconds(sum(units[n:]), d_a) if n < len(units) else 0
        return max(primary, auxiliary)

    if units:
        assert pulls.finish is not None
        assert pulls.finish <= min(map(end, range(len(units) + 1))) + 1e-9
