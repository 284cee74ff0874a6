"""Whether a model that slept still says what it said before: upstream reports of gibberish after a wake are many."""

from __future__ import annotations

from dataclasses import dataclass

import torch

TOLERANCE = 1e-2
"""Largest difference of a log-probability: the same kernels over the same weights differ by rounding in bfloat16, a
weight that was lost by whole units."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Probe:
    """The log-probabilities of every token after a fixed prompt."""

    before: torch.Tensor
    """float32 [vocabulary], before it slept."""

    def check(self, after: torch.Tensor) -> None:
        """Raises RuntimeError where they differ, or are no numbers."""
        worst = float((after - self.before).abs().max())
        if not worst <= TOLERANCE:
            raise RuntimeError(
                "vLLM woke with other weights than it slept with: a log-probability of the probe differs by "
                f"{worst:.3g}, allowed: {TOLERANCE:g}"
            )
