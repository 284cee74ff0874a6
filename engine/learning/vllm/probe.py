"""Whether vLLM computes the model that it should: what transformers says when it starts, what it said before it slept.

Both faults are silent elsewhere: of some layers vLLM keeps packed copies, which new weights that are copied in place
spoil, and upstream reports of gibberish after a wake are many.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from transformers import PreTrainedTokenizerBase

from engine.learning.prompts import encode_prompt

TOLERANCE = 0.5
"""Largest difference of a log-probability. The same kernels over the same weights mostly agree to the last bit; where
they do not, logits in bfloat16 are 0.125 apart between 16 and 32. A weight that was lost moves some by whole units."""


ALIKE = {"float32": 1e-2, "bfloat16": 0.5}
"""Type that vLLM computes in -> largest mean difference of a log-probability from transformers'. SmolLM2-135M on a CPU:
8e-6 and 0.084. On GPUs, where we measured nothing, kernels may multiply in fewer bits."""


def probe_tokens(tokenizer: PreTrainedTokenizerBase, prompt_of: Callable[[int], str], longest: int) -> list[int]:
    """The first question, or as much of its end as `longest` tokens hold."""
    return list(encode_prompt(tokenizer, prompt_of(0))[-longest:].tolist())


def check_alike(wanted: torch.Tensor, heard: torch.Tensor, dtype: str) -> None:
    """Both float32 [vocabulary], log-probabilities after one prompt. Raises ValueError where they are two models'."""
    mean = float((heard - wanted).abs().mean())
    if not mean <= ALIKE[dtype]:
        raise ValueError(
            "devices.rollouter: vllm computes another model than transformers from the same weights: after a question "
            f"log-probabilities differ by {mean:.3g} on average, allowed in {dtype}: {ALIKE[dtype]:g}; use transformers"
        )


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
