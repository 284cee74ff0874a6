"""How the engine sees devices: narrow Protocols that the Ray edge implements and tests can implement in a page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from engine.worker.messages import Command, Delivery, WorkerSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What came from one worker."""

    run_id: str
    device: int
    delivery: Delivery | None
    """None when the worker is gone."""
    lost: str | None = None
    """Why, in a sentence, when it is."""


class Workers(Protocol):
    """The workers of all runs of one engine."""

    def start(self, specs: Sequence[WorkerSpec]) -> None:
        """Start the workers of a run; returns at once, each reports `Started` when it lives."""

    def submit(self, run_id: str, device: int, command: Command) -> None:
        """Send a command with the next `flush`; commands to one worker arrive in order, to one that is gone never."""

    def flush(self) -> None:
        """Send what was submitted."""

    @property
    def cpu_s(self) -> float:
        """CPU seconds that the calling thread spent in the transport below these calls."""

    def wait(self, timeout_s: float) -> list[Report]:
        """What workers had to say, as soon as one has; empty after `timeout_s` seconds. Flushes first."""

    def end(self, run_id: str) -> None:
        """Remove what is left of a run's workers, whatever they do."""

    def shutdown(self) -> None:
        """Remove everything."""
