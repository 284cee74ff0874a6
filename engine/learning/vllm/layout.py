"""From the vector in which weights travel to the weights of a whole model, by name: what vLLM is given.

Where every weight travels, the model that they are of need not be in memory. Where adapters do, it is kept: vLLM gets
its weights with the adapters added in, so that it computes as fast as without any.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from transformers import PreTrainedModel

from engine.learning.lora import merged_weights
from engine.learning.weights import Vector, load_flat


class NamedWeights(Protocol):
    def named(self, vector: Vector) -> list[tuple[str, torch.Tensor]]:
        """Every weight of the model, as transformers names it. Raises ValueError on a vector of wrong size or type."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """In the order of `weights.flatten`."""

    shapes: tuple[tuple[str, tuple[int, ...]], ...]
    """Name of each weight, as transformers has it, and its shape; tied ones once."""

    @classmethod
    def of(cls, model: torch.nn.Module) -> Layout:
        return cls(shapes=tuple((name, tuple(weight.shape)) for name, weight in model.named_parameters()))

    @property
    def parameters(self) -> int:
        """Length of the vector."""
        return sum(math.prod(shape) for _, shape in self.shapes)

    def named(self, vector: Vector) -> list[tuple[str, torch.Tensor]]:
        """The vector's pieces, not copied. Raises ValueError on a wrong size or type."""
        if vector.shape != (self.parameters,):
            raise ValueError(
                f"weights of shape {vector.shape} do not fit a model of {self.parameters} parameters: "
                f"({self.parameters},) would"
            )
        if vector.dtype != np.float32:
            raise ValueError(f"weights are {vector.dtype}, only float32 is taken")
        pieces, offset = [], 0
        for name, shape in self.shapes:
            end = offset + math.prod(shape)
            pieces.append((name, torch.from_numpy(vector[offset:end].reshape(shape))))
            offset = end
        return pieces


class AdaptedModel:
    """A model whose adapters alone travel; it becomes ours."""

    def __init__(self, model: PreTrainedModel) -> None:
        self._model = model

    def named(self, vector: Vector) -> list[tuple[str, torch.Tensor]]:
        load_flat(self._model, vector)
        with torch.no_grad():
            return list(merged_weights(self._model).items())
