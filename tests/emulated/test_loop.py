"""The loop around a node in real time: batches that overtake each other, what is told at once, what waits."""

from __future__ import annotations

import threading
import time

import pytest

from engine.emulated.loop import COALESCE_S, NodeLoop
from engine.worker import messages as msg
from tests.emulated.builders import generate, load, make_job, make_specs

PATIENCE_S = 20.0
"""Longest wait for anything; reached only when a test fails."""


def make_loop(*, time_scale: float = 0.001) -> NodeLoop:
    job = make_job(devices={"time_scale": time_scale})
    return NodeLoop(make_specs(job, clock_offset_s=time.time() - time.monotonic()))


class Listener:
    """Polls until it has heard what a test waits for."""

    def __init__(self, loop: NodeLoop) -> None:
        self.loop = loop
        self.events: list[tuple[int, msg.Event]] = []
        self.polls = 0

    def until(self, kind: type, count: int = 1) -> list[tuple[int, msg.Event]]:
        deadline = time.monotonic() + PATIENCE_S
        while True:
            found = [(device, event) for device, event in self.events if isinstance(event, kind)]
            if len(found) >= count:
                return found
            assert time.monotonic() < deadline, f"waited for {count} {kind.__name__}, heard {self.events}"
            self.polls += 1
            for device, delivery in self.loop.poll(0.2):
                self.events += [(device, event) for event in delivery.events]


def test_a_node_lives_in_real_time() -> None:
    loop = make_loop()
    listener = Listener(loop)
    listener.until(msg.Ready, 8)
    loop.submit(0, [(0, load(0)), (0, generate(0, 1))])
    scored = listener.until(msg.GroupScored, 2)
    assert {device for device, _ in scored} == {0}
    assert all(abs(event.group.finished_at - time.time()) < PATIENCE_S for _, event in scored)  # type: ignore[union-attr]
    loop.submit(1, [(device, msg.Shutdown()) for device in range(8)])
    assert len(listener.until(msg.Closed, 8)) == 8


def test_a_batch_that_overtook_another_waits_for_it() -> None:
    loop = make_loop()
    listener = Listener(loop)
    loop.submit(1, [(0, generate(0))])  # without weights this would be a fault
    loop.submit(0, [(0, load(0))])
    listener.until(msg.GroupScored)
    assert not [event for _, event in listener.events if isinstance(event, msg.Failed)]


def test_a_poll_without_news_comes_back_after_its_timeout_and_everybody_speaks_once_a_second() -> None:
    loop = make_loop()
    Listener(loop).until(msg.Ready, 8)
    began = time.monotonic()
    assert loop.poll(0.05) == []
    assert 0.04 < time.monotonic() - began < PATIENCE_S
    said: list[tuple[int, msg.Delivery]] = []
    while not said:
        said = loop.poll(0.1)
        assert time.monotonic() - began < PATIENCE_S
    assert [device for device, _ in said] == list(range(7, -1, -1))


def test_a_command_ends_the_wait_of_a_poll_at_once() -> None:
    loop = make_loop(time_scale=1.0)
    Listener(loop).until(msg.Ready, 8)
    loop.poll(1.5)  # the second's report is out of the way
    heard: list[tuple[int, msg.Delivery]] = []
    polled = threading.Thread(target=lambda: heard.extend(loop.poll(PATIENCE_S)), daemon=True)
    polled.start()
    loop.submit(0, [(2, load(0))])
    polled.join(PATIENCE_S)
    events = [event for device, delivery in heard if device == 2 for event in delivery.events]
    assert [type(event) for event in events] == [msg.WeightsLoaded]


class SteppedClock:
    """Monotonic seconds that a test sets."""

    now = 1000.0

    def __call__(self) -> float:
        return self.now


def test_finished_groups_wait_a_moment_for_others(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = SteppedClock()
    loop = NodeLoop(make_specs(make_job(), clock_offset_s=0.0), monotonic=clock)
    waits: list[float] = []

    def wait(seconds: float) -> None:
        waits.append(seconds)
        clock.now += seconds

    monkeypatch.setattr(loop._changed, "wait", wait)
    loop.poll(0.5)
    while not any(isinstance(event, msg.Ready) for _, said in loop.poll(0.5) for event in said.events):
        pass
    loop.submit(0, [(0, load(0)), (0, generate(0, 3))])
    loop.poll(0.5)
    events: list[msg.Event] = []
    while not events:
        waits.clear()
        events = [event for _, delivery in loop.poll(5.0) for event in delivery.events]
    (scored,) = events
    assert isinstance(scored, msg.GroupScored)
    assert clock.now - scored.group.finished_at == pytest.approx(COALESCE_S, abs=1e-6)
