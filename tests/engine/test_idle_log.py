"""Causes of idle time: an idle span is cut where the cause changed, gapless, and keeps the worker's own ends."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.run.idle_log import HANDOVER, IdleLog
from storage.words import IDLE_CAUSES

CAP, GROUPS, BARRIER = "staleness_cap", "waiting_for_groups", "step_barrier"


def make_log(*notes: tuple[float, str | None]) -> IdleLog:
    log = IdleLog()
    for at, cause in notes:
        log.note(at, cause)
    return log


@pytest.mark.parametrize(
    ("notes", "pieces"),
    [
        pytest.param([], [(10, 20, HANDOVER)], id="nothing was ever noted"),
        pytest.param([(0, None)], [(10, 20, HANDOVER)], id="the engine saw it busy"),
        pytest.param([(5, CAP)], [(10, 20, CAP)], id="one cause"),
        pytest.param([(5, CAP), (14, GROUPS)], [(10, 14, CAP), (14, 20, GROUPS)], id="the cause changes"),
        pytest.param([(12, CAP)], [(10, 20, CAP)], id="the engine notices later: its first cause holds from the start"),
        pytest.param([(5, None), (12, CAP)], [(10, 20, CAP)], id="so does the first one after work"),
        pytest.param([(5, CAP), (8, None), (12, BARRIER)], [(10, 20, BARRIER)], id="not the cause before the work"),
        pytest.param([(5, CAP), (15, None)], [(10, 20, CAP)], id="handed work that has not arrived"),
        pytest.param([(5, CAP), (15, None), (17, CAP)], [(10, 20, CAP)], id="the same cause again is one piece"),
        pytest.param([(10, CAP), (20, GROUPS)], [(10, 20, CAP)], id="changes at the very ends"),
        pytest.param([(25, CAP)], [(10, 20, HANDOVER)], id="a later cause says nothing"),
    ],
)
def test_an_idle_span_is_cut_where_its_cause_changed(
    notes: list[tuple[float, str | None]], pieces: list[tuple[float, float, str]]
) -> None:
    assert make_log(*notes).cut(10.0, 20.0) == pieces


def test_the_next_span_still_knows_the_cause_that_held_before() -> None:
    log = make_log((0, CAP), (5, GROUPS))
    assert log.cut(1, 8) == [(1, 5, CAP), (5, 8, GROUPS)]
    assert log.cut(8, 9) == [(8, 9, GROUPS)]


@pytest.mark.parametrize(
    ("notes", "now"),
    [([], HANDOVER), ([(0, CAP)], CAP), ([(0, CAP), (1, GROUPS)], GROUPS), ([(0, CAP), (1, None)], CAP)],
)
def test_the_cause_that_holds_now(notes: list[tuple[float, str | None]], now: str) -> None:
    assert make_log(*notes).now() == now


CAUSES = st.none() | st.sampled_from(IDLE_CAUSES)
TIMES = st.lists(st.integers(0, 400).map(lambda quarter: quarter / 4), max_size=12, unique=True).map(sorted)


@given(st.data())
def test_every_cut_is_gapless_covers_exactly_its_span_and_tells_each_change_apart(data: st.DataObject) -> None:
    log = IdleLog()
    notes = data.draw(TIMES)
    for at in notes:
        log.note(at, data.draw(CAUSES))
    for t0, t1 in pairwise(data.draw(TIMES)):
        pieces = log.cut(t0, t1)
        assert pieces[0][0] == t0
        assert pieces[-1][1] == t1
        assert all(before[1] == after[0] for before, after in pairwise(pieces))
        assert all(before[2] != after[2] for before, after in pairwise(pieces))
        assert all(end > start for start, end, _ in pieces)
        assert all(cause in IDLE_CAUSES for _, _, cause in pieces)
        assert {start for start, _, _ in pieces[1:]} <= set(notes)
