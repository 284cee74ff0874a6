"""Who draws the tokens: we do, in vLLM's place, so that a token's random number is the one our design names.

vLLM's own random numbers belong to a request: a response that is continued elsewhere would start its stream again, and
where a group is generated would change what it says. So every request is greedy for vLLM, and this logits processor
leaves it one token to choose: the one drawn from our stream, whose log-probability was taken at the same place.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from vllm.v1.sample.logits_processor import BatchUpdate, LogitsProcessor, MoveDirectionality

from engine.learning.vllm.step_engine import Pick

if TYPE_CHECKING:
    from vllm import SamplingParams
    from vllm.config import VllmConfig

KEY = "bidirl_key"
"""Where a request's key stands among the extra arguments of its sampling parameters."""


def drawing_by(pick: Pick) -> type[LogitsProcessor]:
    """A logits processor for one engine: vLLM makes the object itself, from a class."""
    return type("Drawing", (_Drawing,), {"pick": staticmethod(pick)})


class _Drawing(LogitsProcessor):
    pick: Pick

    def __init__(self, vllm_config: VllmConfig, device: torch.device, is_pin_memory: bool) -> None:
        self._keys: dict[int, str] = {}
        """Row of the batch -> key of its request."""

    @classmethod
    def validate_params(cls, params: SamplingParams) -> None:
        if not (params.extra_args or {}).get(KEY):
            raise ValueError(f"a request without {KEY} cannot be drawn for")

    def is_argmax_invariant(self) -> bool:
        return False

    def update_state(self, batch_update: BatchUpdate | None) -> None:
        if batch_update is None:
            return
        for row in batch_update.removed:
            self._keys.pop(row, None)
        for row, params, _, _ in batch_update.added:
            extra: dict[str, Any] = params.extra_args or {}
            self._keys[row] = extra[KEY]
        for here, there, how in batch_update.moved:
            a, b = self._keys.pop(here, None), self._keys.pop(there, None)
            if a is not None:
                self._keys[there] = a
            if b is not None and how == MoveDirectionality.SWAP:
                self._keys[here] = b

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        tokens = self.pick([self._keys[row] for row in range(len(logits))], logits)
        return logits.fill_(-torch.inf).scatter_(1, tokens[:, None], 0.0)
