"""No wait without a deadline: a run in which nothing happens for too long fails, and says who was waited for."""

from __future__ import annotations

from collections.abc import Collection

from engine.config.rollouter import may_be_vllm
from engine.run.book import Book
from engine.run.homes import Homes
from engine.run.lending import Lending
from engine.run.observer import Observer
from engine.run.specs import device_name
from planner.policy.leases import LeaseState

START_DEADLINE_S = 180.0
"""Longest wait for worker processes: Ray starts one in seconds, a loaded machine may need a minute."""

VLLM_START_S = 240.0
"""More for a worker that generates with vLLM: importing and starting it takes 8 CPU-seconds on a quiet machine, and
was seen to take two minutes on one that others use."""

PREPARE_DEADLINE_S = 1200.0
"""Longest wait for models without any progress reported; a warm start reports every step."""

PROGRESS_DEADLINE_S = 900.0
"""Longest time without a finished group, chunk, evaluation or step while the run is not paused."""


SWITCH_DEADLINE_S = 300.0
"""Longest a device may take into or out of a lease: fetching the weights alone gives up after a minute."""


class Watchdog:
    """Looks once a tick; sleeps while the run is paused."""

    def __init__(self, homes: Homes, *, now: float) -> None:
        self._homes = homes
        self._seen: tuple[object, ...] = ()
        self._since = now
        self._dead_since: dict[int, float] = {}

    def look(
        self, state: str, book: Book, observer: Observer, lending: Lending, dead: Collection[int], now: float
    ) -> str | None:
        """What is wrong, in a sentence; None as long as something happens now and then. `dead`: devices whose next
        worker is being started."""
        late = self._late(lending, dead, now)
        if late is not None:
            return late
        seen = (
            state,
            len(observer.started),
            len(observer.ready),
            observer.progress,
            book.started,
            book.groups.flying,
            book.step.version,
            book.step.trained,
            book.step.evals_running,
        )
        if seen != self._seen or state == "paused":
            self._seen, self._since = seen, now
        limit = {"starting": START_DEADLINE_S, "warming_up": PREPARE_DEADLINE_S}.get(state, PROGRESS_DEADLINE_S)
        if now - self._since <= limit:
            return None
        whom = self._waited_for(state, book, observer, lending, dead)
        return f"Nothing happened for {limit:.0f} s while {state}; waited for {whom}."

    def _late(self, lending: Lending, dead: Collection[int], now: float) -> str | None:
        """A switch or a restart that takes too long, though the rest of the run may go on."""
        for device in dead:
            since = self._dead_since.setdefault(device, now)
            if now - since > (limit := START_DEADLINE_S + self._vllm_s(device)):
                return f"The new worker of {self._name(device)} is not ready after {limit:.0f} s."
        self._dead_since = {device: since for device, since in self._dead_since.items() if device in dead}
        for block, since in self._homes.under_way.items():
            if now - since > (limit := SWITCH_DEADLINE_S + self._vllm_s(block)):
                return f"{self._name(block)} has been on its way to the other pool for {limit:.0f} s."
        for entry in lending.entries.values():
            lease = entry.lease
            if lease is None or lease.life.state not in (LeaseState.PREPARING, LeaseState.RELEASING):
                continue
            since = lease.life.granted_at if lease.ended_at is None else lease.ended_at
            if now - since > SWITCH_DEADLINE_S:
                what = f"{lease.life.state} under lease {lease.life.lease_id} for {SWITCH_DEADLINE_S:.0f} s"
                return f"{self._name(entry.device)} has been {what}."
        return None

    def _waited_for(self, state: str, book: Book, observer: Observer, lending: Lending, dead: Collection[int]) -> str:
        if state in ("starting", "warming_up"):
            done = observer.started if state == "starting" else observer.ready
            return ", ".join(device_name(spec) for spec in self._homes.specs if spec.device not in done) or "weights"
        busy = [f"{self._name(d)} with {len(groups)} groups" for d, groups in book.groups.in_flight.items() if groups]
        busy += [f"{self._name(d)} on {t.busy}" for d, t in book.train.items() if t.busy]
        busy += [f"{self._name(d)} to come to version {book.step.version}" for d in book.joining]
        busy += [f"{self._name(block)} on its way to the other pool" for block in self._homes.under_way]
        busy += [f"the new worker of {self._name(device)}" for device in dead]
        busy += [
            f"{self._name(entry.device)} under lease {entry.lease.life.lease_id} ({entry.lease.life.state})"
            for entry in lending.entries.values()
            if entry.lease is not None
        ]
        busy += [f"the {name} evaluation of {self._name(device)}" for name, device in book.step.evals_waiting]
        return ", ".join(busy) or "nobody: the policy handed nothing out"

    def _vllm_s(self, device: int) -> float:
        """A device that may have to start vLLM first gets the time for it."""
        return VLLM_START_S if may_be_vllm(self._homes.specs[device].job) else 0.0

    def _name(self, device: int) -> str:
        return device_name(self._homes.specs[device])
