"""What a vector of weights holds, by name, once the model whose weights they are is no longer in memory."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch

from engine.learning.weights import Vector


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
