"""The ledger of one device: gapless by construction, whatever is entered and however the clocks tick."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.worker.ledger import Ledger
from storage.words import SPAN_KINDS


@dataclass
class Clocks:
    """Three clocks that move only when told."""

    now: float = 100.0
    thread: float = 3.0
    process: float = 7.0

    def tick(self, seconds: float, *, busy: float = 0.0, others: float = 0.0) -> None:
        """Let time pass, of which the work thread computed `busy` and other threads `others` seconds."""
        self.now += seconds
        self.thread += busy
        self.process += busy + others


def make_ledger(clocks: Clocks) -> Ledger:
    ledger = Ledger(clock=lambda: clocks.now, thread_cpu=lambda: clocks.thread, process_cpu=lambda: clocks.process)
    ledger.begin()
    return ledger


def test_a_life_begins_with_startup_and_each_span_ends_where_the_next_begins() -> None:
    clocks = Clocks()
    ledger = make_ledger(clocks)
    clocks.tick(2.0, busy=1.5)
    ledger.enter("rollout", role="primary", version=3)
    clocks.tick(1.0, busy=1.0)
    ledger.enter("train", role="primary", version=3, step=4, ref="chunk 0")
    assert ledger.open == ("train", "primary", 3, 4, 103.0)
    clocks.tick(0.5, busy=0.25)
    assert ledger.close() == 103.5
    assert ledger.take() == [
        (100.0, 102.0, "startup", None, None, None, 1.5, None),
        (102.0, 103.0, "rollout", "primary", 3, None, 1.0, None),
        (103.0, 103.5, "train", "primary", 3, 4, 0.25, "chunk 0"),
    ]
    assert ledger.take() == []


@pytest.mark.parametrize(
    ("again", "spans"),
    [
        pytest.param({}, 1, id="the same"),
        pytest.param({"version": 1}, 2, id="another version"),
        pytest.param({"step": 1}, 2, id="another step"),
        pytest.param({"ref": "group 2"}, 2, id="another group"),
        pytest.param({"role": "auxiliary"}, 2, id="another role"),
    ],
)
def test_entering_what_the_device_already_does_is_no_new_span(again: dict[str, object], spans: int) -> None:
    clocks = Clocks()
    ledger = make_ledger(clocks)
    same: dict[str, object] = {"role": "primary", "version": 0, "step": None, "ref": "group 1"}
    ledger.enter("rollout", **same)  # type: ignore[arg-type]
    clocks.tick(1.0)
    ledger.enter("rollout", **same | again)  # type: ignore[arg-type]
    clocks.tick(1.0)
    ledger.close()
    assert len([span for span in ledger.take() if span.kind == "rollout"]) == spans


def test_work_in_other_threads_is_told_apart() -> None:
    clocks = Clocks()
    clocks.tick(50.0, busy=9.0, others=9.0)  # before the life began
    ledger = make_ledger(clocks)
    clocks.tick(2.0, busy=1.5, others=0.25)
    ledger.enter("idle")
    clocks.tick(1.0, others=0.5)
    ledger.close()
    assert [span.cpu_s for span in ledger.take()] == [1.5, 0.0]
    assert ledger.other_cpu_s == 0.75


TICKS = st.tuples(
    st.sampled_from(SPAN_KINDS), st.sampled_from([0.0, 0.0, 1e-7, 0.001, 0.5, 70.0]), st.floats(0, 1), st.booleans()
)


@given(st.lists(TICKS, max_size=40))
def test_the_spans_cover_the_life_without_gap_or_overlap_and_hold_all_its_cpu_seconds(
    ticks: list[tuple[str, float, float, bool]],
) -> None:
    clocks = Clocks(now=1_700_000_000.0)
    ledger = make_ledger(clocks)
    spans = []
    for kind, seconds, busy, look in ticks:
        clocks.tick(seconds, busy=busy * seconds)
        ledger.enter(kind)
        if look:
            spans += ledger.take()
            assert ledger.open.since == (spans[-1].t1 if spans else ledger.started_at)
    ended = ledger.close()
    spans += ledger.take()
    edges = [ledger.started_at, *(span.t1 for span in spans)]
    assert [span.t0 for span in spans] == edges[:-1]
    assert edges[-1] == ended == clocks.now
    assert all(span.t1 > span.t0 for span in spans)
    assert sum(span.cpu_s for span in spans) == pytest.approx(clocks.thread - 3.0, abs=1e-5)
