"""The newest published weights and how long their publish took.

publish time = copying them to where rollouters fetch them + the slowest rollouter's fetch and load. What a rollouter
waits for the end of its token, and the way of the messages, is in the latency, not in the publish time.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from engine.worker.messages import Weights


@dataclass(slots=True)
class Publication:
    """One version of the weights on its way to the rollouters."""

    version: int
    handle: Any
    published_at: float
    """Unix seconds at which copying began."""
    publish_s: float
    waiting: set[int] = field(default_factory=set)
    """Devices that were told to load it and have not reported."""
    load_s: list[float] = field(default_factory=list)
    settled: bool = False
    """It was measured; who loads it later does so for reasons of its own."""
    loaded_at: float | None = None
    """Unix seconds at which the last device so far had it."""

    @property
    def weights(self) -> Weights:
        """As a command carries them."""
        return Weights(version=self.version, handle=self.handle)

    def told(self, device: int) -> None:
        self.waiting.add(device)

    def loaded(self, device: int, seconds: float, at: float) -> None:
        self.waiting.discard(device)
        self.load_s.append(seconds)
        self.loaded_at = max(at, self.loaded_at or at)

    def metrics(self) -> dict[str, float]:
        """Seconds, once at least one rollouter loaded it: `publish_s` of work, `publish_latency_s` from end to end."""
        if not self.load_s or self.loaded_at is None:
            return {}
        return {
            "publish_s": self.publish_s + max(self.load_s),
            "publish_latency_s": self.loaded_at - self.published_at,
        }
