"""Real time for a node: it goes on whenever somebody asks it or tells it something, and never waits without a deadline.

    engine --submit--> [ Node, caught up with the clock ] --poll--> deliveries

No thread of its own: one long `poll` is open nearly always, and waits for what is due next; what happens meanwhile has
its exact modelled time, so that being late with it distorts nothing but when the engine hears of it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence

from engine.emulated.node import Node
from engine.worker.messages import Command, Delivery, WorkerSpec

COALESCE_S = 0.01
"""Finished groups and free slots are reported this long after the first one, so that the engine is not asked for each
of them; it is the length of a decision tick of a large run."""

ALL_EVERY_S = 1.0
"""Every device speaks this often, whether it has something to say or not: its open span for the page."""

Batch = Sequence[tuple[int, Command]]
"""(device, command), in the order in which they were sent."""


class NodeLoop:
    """Feed with `submit`, read with `poll`, from any threads."""

    def __init__(self, specs: Sequence[WorkerSpec], *, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._offset_s = specs[0].clock_offset_s
        self._changed = threading.Condition()
        self._next_batch = 0
        self._early: dict[int, Batch] = {}
        self._node = Node(specs, self.now())
        self._all_due = self.now()

    def now(self) -> float:
        """Unix seconds on the time line that all workers and the engine of a machine share."""
        return self._monotonic() + self._offset_s

    def submit(self, number: int, commands: Batch) -> None:
        """Commands arrive; returns at once. Their batches are numbered from 0, and one that overtook another on its way
        waits for it."""
        with self._changed:
            self._early[number] = commands
            while self._next_batch in self._early:
                now = self.now()
                for device, command in self._early.pop(self._next_batch):
                    self._node.submit(device, [command], now)
                self._next_batch += 1
            self._changed.notify_all()

    def poll(self, timeout_s: float) -> list[tuple[int, Delivery]]:
        """What devices had to say since the last poll; waits for a first one at most `timeout_s` seconds."""
        with self._changed:
            deadline, report_at = self.now() + timeout_s, None
            while True:
                now, node = self.now(), self._node
                node.advance(now)
                if node.news and report_at is None:
                    report_at = now + COALESCE_S
                due = [at for at in (deadline, self._all_due, report_at) if at is not None]
                if node.urgent or now >= min(due):
                    break
                next_event = node.next_event()
                until = min(due) if next_event is None else min(*due, next_event)
                self._changed.wait(max(0.0, until - now))
            everything = now >= self._all_due
            if everything:
                self._all_due = now + ALL_EVERY_S
            return node.take(now, everything=everything)
