"""The thread behind one device.

    engine --commands--> inbox --> [ work thread: one command, or one token, at a time ] --> outbox --events--> engine

The inbox is filled and the outbox emptied by other threads (`submit`, `poll`), so the engine never waits behind a token
loop. The work thread waits only for its inbox, and only when it holds no group; every wait of `poll` has a deadline.
Healthy end: `Shutdown`, ledger closed, `Closed`. An exception: ledger closed, `Failed`, then `Closed`; never silence.
"""

from __future__ import annotations

import os
import queue
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Protocol

import numpy as np
import numpy.typing as npt

from engine.worker import messages as msg
from engine.worker.ledger import Ledger

IDLE_WAIT_S = 0.5
"""Longest wait for a command before the thread looks around again; it bounds nothing but the reaction to a stop."""

COALESCE_S = 0.025
"""While the worker goes on generating, finished groups are reported this long after the first one, so that the engine
is not asked for each of them; anything else, and the last group of a worker, is reported at once."""


class Roles(Protocol):
    """What the device can do: built inside the work thread, since that is where models live."""

    def prepare(self) -> None:
        """Load everything; long parts report progress."""

    def handle(self, command: msg.Command) -> None:
        """Do one command to its end."""

    @property
    def generating(self) -> bool:
        """There is a next token to generate."""

    def generate_step(self) -> None:
        """One token for every sequence; finished groups are scored and reported."""


class StopPreparing(Exception):
    """Raised inside a long preparation when the worker was told to shut down."""


RolesFactory = Callable[["DeviceWorker"], Roles]

Array = npt.NDArray[np.float32]


class DeviceWorker:
    """Start with `start`, feed with `submit`, read with `poll`, end with the Shutdown command."""

    def __init__(self, spec: msg.WorkerSpec, make_roles: RolesFactory) -> None:
        self.spec = spec
        self.ledger = Ledger(clock=self.now, thread_cpu=time.thread_time, process_cpu=time.process_time)
        self._make_roles = make_roles
        self._inbox: queue.SimpleQueue[msg.Command] = queue.SimpleQueue()
        self._next_batch = 0
        self._early: dict[int, tuple[msg.Command, ...]] = {}
        self._events: list[msg.Event] = []
        self._attached: list[tuple[int, Array]] = []
        self._parcels = 0
        self._arrays: list[tuple[int, Array]] = []
        self._decoded: list[msg.DecodeUnit] = []
        self._ending: dict[int, bool] = {}
        self.rollout_load: Callable[[], msg.RolloutLoad] | None = None
        """Set by a rollouter: how full it is."""
        self._news = False
        self._urgent = False
        self._changed = threading.Condition()
        self._closed = False
        self._stopping = False
        self._at_end: list[Callable[[], None]] = []
        self._thread = threading.Thread(target=self._run, name=f"device-{spec.device}", daemon=True)

    def now(self) -> float:
        """Unix seconds on the time line that all workers and the engine of a machine share."""
        return time.monotonic() + self.spec.clock_offset_s

    def start(self) -> None:
        self._thread.start()

    def submit(self, number: int, commands: Sequence[msg.Command]) -> None:
        """Append commands; returns at once. Their batches are numbered from 0, and one that overtook another on its
        way waits for it."""
        with self._changed:
            self._early[number] = tuple(commands)
            while self._next_batch in self._early:
                for command in self._early.pop(self._next_batch):
                    self._stopping = self._stopping or isinstance(command, msg.Shutdown)
                    if isinstance(command, msg.EndLease):
                        self._ending[command.lease] = self._ending.get(command.lease, False) or command.revoke
                    self._inbox.put(command)
                self._next_batch += 1

    def at_end(self, action: Callable[[], None]) -> None:
        """Do this when the work thread ends, however it does: what it started outside of itself must end too."""
        self._at_end.append(action)

    def report_progress(self, text: str, fraction: float) -> None:
        """Called by long preparations; raises StopPreparing when nobody waits for them any more."""
        if self._stopping:
            raise StopPreparing
        self.emit(msg.Progress(text=text, fraction=fraction))

    def lease_ends(self, lease: int) -> bool:
        """The end of this lease waits in the inbox: nothing new is begun under it."""
        return lease in self._ending

    def lease_revoked(self, lease: int) -> bool:
        """And it is not even to wait for the chunk under way."""
        return self._ending.get(lease, False)

    def attach(self, array: Array) -> msg.Parcel:
        """Send an array along with the next event; it must not change any more. Called by the work thread."""
        self._parcels += 1
        self._attached.append((self._parcels, array))
        return msg.Parcel(self._parcels)

    def timed(self, unit: msg.DecodeUnit) -> None:
        """Send a stretch of generation along with whatever is reported next."""
        with self._changed:
            self._decoded.append(unit)

    def emit(self, event: msg.Event) -> None:
        """Report an event, with what was attached for it; called by the work thread."""
        attached, self._attached = self._attached, []
        with self._changed:
            self._events.append(event)
            self._arrays += attached
            self._urgent = self._urgent or not isinstance(event, msg.GroupScored)
            self._changed.notify_all()

    def room(self, *, at_once: bool) -> None:
        """Slots for another group are free: what is reported next says so, or with `at_once` a report does now."""
        with self._changed:
            self._news = True
            self._urgent = self._urgent or at_once
            self._changed.notify_all()

    def log(self, text: str, *, level: str = "info") -> None:
        self.emit(msg.Log(level=level, text=text, at=self.now()))

    def poll(self, timeout_s: float) -> tuple[msg.Delivery, list[Array]]:
        """Everything reported since the last poll; waits for a first event at most `timeout_s` seconds.

        The arrays are those of the delivery's parcels, in their order.
        """
        with self._changed:
            self._changed.wait_for(lambda: self._events or self._news or self._closed, timeout_s)
            if (self._events or self._news) and not self._urgent:
                self._changed.wait_for(lambda: self._urgent, COALESCE_S)
            self._urgent, self._news = self._closed, False
            events, self._events = tuple(self._events), []
            arrays, self._arrays = self._arrays, []
            decoded, self._decoded = tuple(self._decoded), []
            # spans are taken last: whatever an event tells of, its span is in this delivery or still open
            delivery = msg.Delivery(
                events=events,
                spans=tuple(self.ledger.take()),
                open=self.ledger.open,
                at=self.now(),
                decoded=decoded,
                load=None if self.rollout_load is None else self.rollout_load(),
                parcels=tuple(number for number, _ in arrays),
            )
            return delivery, [array for _, array in arrays]

    def join(self, timeout_s: float) -> bool:
        """Wait for the thread's end; whether it came."""
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def _run(self) -> None:
        self.ledger.begin()
        self.emit(msg.Started(pid=os.getpid(), at=self.ledger.started_at))
        try:
            roles = self._make_roles(self)
            roles.prepare()
            while True:
                command = self._next(roles.generating)
                if isinstance(command, msg.Shutdown):
                    break
                if command is not None:
                    roles.handle(command)
                elif roles.generating:
                    roles.generate_step()
        except StopPreparing:
            pass
        except BaseException as error:
            text = f"{type(error).__name__}: {error}"
            self.emit(msg.Failed(error=text, traceback=traceback.format_exc()))
        finally:
            for action in self._at_end:
                with suppress(Exception):  # the end is to be told, whatever happens on the way
                    action()
            ended = self.ledger.close()
            with self._changed:
                closed = msg.Closed(
                    started_at=self.ledger.started_at, ended_at=ended, other_cpu_s=self.ledger.other_cpu_s
                )
                self._events.append(closed)
                self._closed = self._urgent = True
                self._changed.notify_all()

    def _next(self, generating: bool) -> msg.Command | None:
        try:
            return self._inbox.get_nowait()
        except queue.Empty:
            if generating:
                return None
        self.ledger.enter("idle")
        with self._changed:
            # nothing more will join a burst of finished groups
            self._urgent = True
            self._changed.notify_all()
        try:
            return self._inbox.get(timeout=IDLE_WAIT_S)
        except queue.Empty:
            return None
