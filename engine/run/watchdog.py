"""No wait without a deadline: a run in which nothing happens for too long fails, and says who was waited for."""

from __future__ import annotations

from collections.abc import Sequence

from engine.run.book import Book
from engine.run.observer import Observer
from engine.run.specs import device_name
from engine.worker.messages import WorkerSpec

START_DEADLINE_S = 180.0
"""Longest wait for worker processes: Ray starts one in seconds, a loaded machine may need a minute."""

PREPARE_DEADLINE_S = 1200.0
"""Longest wait for models without any progress reported; a warm start reports every step."""

PROGRESS_DEADLINE_S = 900.0
"""Longest time without a finished group, chunk, evaluation or step while the run is not paused."""


class Watchdog:
    """Looks once a tick; sleeps while the run is paused."""

    def __init__(self, specs: Sequence[WorkerSpec], *, now: float) -> None:
        self._specs = specs
        self._seen: tuple[object, ...] = ()
        self._since = now

    def look(self, state: str, book: Book, observer: Observer, now: float) -> str | None:
        """What is wrong, in a sentence; None as long as something happens now and then."""
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
        return (
            f"Nothing happened for {limit:.0f} s while {state}; waited for {self._waited_for(state, book, observer)}."
        )

    def _waited_for(self, state: str, book: Book, observer: Observer) -> str:
        if state in ("starting", "warming_up"):
            done = observer.started if state == "starting" else observer.ready
            return ", ".join(device_name(spec) for spec in self._specs if spec.device not in done) or "weights"
        busy = [f"{self._name(d)} with {len(groups)} groups" for d, groups in book.groups.in_flight.items() if groups]
        busy += [f"{self._name(d)} on {t.busy}" for d, t in book.train.items() if t.busy]
        busy += [f"{self._name(d)} to come to version {book.step.version}" for d in book.joining]
        return ", ".join(busy) or "nobody: the policy handed nothing out"

    def _name(self, device: int) -> str:
        return device_name(self._specs[device])
