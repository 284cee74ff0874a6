"""Computations in a process of their own: what they return, what they cost the app, and how one is given up."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from threading import Event, Thread

import pytest

from app import prediction
from app.apart import Apart, Busy, Tell, TooLong
from planner.whatif import Lately, Work, predict


@pytest.fixture
def apart() -> Iterator[Apart]:
    made = Apart()
    yield made
    made._end()


def which(tell: Tell) -> int:
    tell(0.5)
    return os.getpid()


def fail(tell: Tell, what: str) -> None:
    raise ValueError(f"{what} cannot be")


def die(tell: Tell) -> None:
    os._exit(3)


def last(tell: Tell, seconds: float) -> None:
    """Never looks up, as a large step of a simulated run."""
    tell(0.0)
    time.sleep(seconds)


def work(tell: Tell, cpu_s: float) -> float:
    began = time.process_time()
    while (spent := time.process_time() - began) < cpu_s:
        pass
    return spent


def test_the_next_one_is_computed_by_the_same_process_which_is_not_the_apps(apart: Apart) -> None:
    told: list[float] = []
    first, second = (apart.run(which, 60.0, told.append) for _ in range(2))
    assert first == second != os.getpid()
    assert told == [0.5, 0.5]


def test_the_apps_process_spends_next_to_nothing_on_it(apart: Apart) -> None:
    apart.run(which, 60.0, lambda _: None)
    before = time.process_time()
    spent = apart.run(work, 120.0, lambda _: None, cpu_s=1.0)
    assert time.process_time() - before < 0.2 * spent


def test_what_is_not_done_in_time_is_given_up_even_while_it_never_looks_up(apart: Apart) -> None:
    first = apart.run(which, 60.0, lambda _: None)
    with pytest.raises(TooLong, match=r"more than 0\.1 s"):
        apart.run(last, 0.1, lambda _: None, 600.0)
    assert apart.run(which, 60.0, lambda _: None) != first, "its process is gone with it"


def test_a_fault_is_the_readers_and_the_process_goes_on(apart: Apart) -> None:
    first = apart.run(which, 60.0, lambda _: None)
    with pytest.raises(ValueError, match="this cannot be"):
        apart.run(fail, 60.0, lambda _: None, what="this")
    assert apart.run(which, 60.0, lambda _: None) == first
    with pytest.raises(RuntimeError, match="ended before it was done"):
        apart.run(die, 60.0, lambda _: None)
    assert apart.run(which, 60.0, lambda _: None) != first


def test_a_reader_who_leaves_ends_what_was_played_for_him(apart: Apart) -> None:
    class Left(BaseException):
        """As the page's own, which is no Exception."""

    def leave(share: float) -> None:
        raise Left

    with pytest.raises(Left):
        apart.run(last, 600.0, leave, 600.0)
    assert apart.run(which, 60.0, lambda _: None) != os.getpid(), "nobody waits for ten minutes"


def test_a_review_that_takes_too_long_has_no_prediction_but_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    work = Work(profile=None, prompts_per_step=8, group_size=2, rollout_replica_size=1, train_replica_size=1)
    now = Lately(steps=9, tokens_per_s=100.0, idle={}, lag=0.0)
    settings = {"staleness": 1.0, "partition": "1:1", "arm": "no_borrow"}
    assert prediction.predict_apart(work, settings, settings, now) == predict(work, settings, settings, now)
    monkeypatch.setattr(prediction, "LONGEST_S", 0.0)
    found = prediction.predict_apart(work, settings, settings, now)
    assert found.why_not == "it takes more than 0 s to play the run with and without the change"
    assert found.now == now


def test_a_second_reader_is_told_at_once_that_it_is_busy(apart: Apart) -> None:
    began, ended = Event(), Event()

    def tell(share: float) -> None:
        began.set()
        assert ended.wait(60)

    first = Thread(target=lambda: apart.run(which, 120.0, tell))
    first.start()
    assert began.wait(60)
    with pytest.raises(Busy):
        apart.run(which, 60.0, lambda _: None)
    ended.set()
    first.join(60)
    assert apart.run(which, 60.0, lambda _: None) != os.getpid()
