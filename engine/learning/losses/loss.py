"""What the trainer needs of a loss. The loss of one token is the same for all of them (`grpo/loss.py`)."""

from __future__ import annotations

from typing import Protocol

import numpy as np
import numpy.typing as npt


class Loss(Protocol):
    def shaped(self, rewards_G: npt.NDArray[np.float64], lengths_G: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
        """The rewards to learn from, float64 [G]; `lengths_G` are the responses' tokens. What is reported is not
        changed by it."""

    def advantages(self, rewards_G: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        """float64 [G] of such rewards; zeros where they are all equal."""

    def divisor(self, tokens: int) -> float:
        """What the step's summed gradient is divided by; `tokens` went through the loss, over all replicas."""
