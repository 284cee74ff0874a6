"""A model's trainable weights as one float32 vector, the form in which they travel between workers.

The order is that of `named_parameters`, which lists tied weights once; buffers are not weights and stay where they
are. Refuses models in any other type than float32: a silent cast would break the equality of log-probabilities.
"""

from __future__ import annotations

import hashlib

import numpy as np
import numpy.typing as npt
import torch

Vector = npt.NDArray[np.float32]


def parameter_count(model: torch.nn.Module) -> int:
    """Length of the vector."""
    return sum(parameter.numel() for parameter in model.parameters())


def nbytes_of(model: torch.nn.Module) -> int:
    """Bytes of the parameters, tied ones once, and of the buffers."""
    return sum(tensor.nbytes for tensor in (*model.parameters(), *model.buffers()))


def flatten(model: torch.nn.Module) -> Vector:
    """A copy of the weights, float32 [parameters]."""
    vector = np.empty(parameter_count(model), dtype=np.float32)
    offset = 0
    for name, parameter in model.named_parameters():
        _require_float32(name, parameter)
        vector[offset : offset + parameter.numel()] = parameter.detach().numpy().reshape(-1)
        offset += parameter.numel()
    return vector


def flatten_gradients(model: torch.nn.Module) -> Vector:
    """A copy of the gradients, float32 [parameters]; zeros where there is none."""
    vector = np.zeros(parameter_count(model), dtype=np.float32)
    offset = 0
    for parameter in model.parameters():
        if parameter.grad is not None:
            vector[offset : offset + parameter.numel()] = parameter.grad.numpy().reshape(-1)
        offset += parameter.numel()
    return vector


def load_flat(model: torch.nn.Module, vector: Vector) -> None:
    """Copy the vector into the model's own tensors. It may be read-only. Raises ValueError on a wrong size or type."""
    for parameter, piece in _pieces(model, vector):
        np.copyto(parameter.detach().numpy(), piece)


def load_flat_gradients(model: torch.nn.Module, vector: Vector) -> None:
    """Copy the vector into the parameters' gradients. Raises ValueError on a wrong size or type."""
    for parameter, piece in _pieces(model, vector):
        if parameter.grad is None:
            parameter.grad = torch.empty_like(parameter)
        np.copyto(parameter.grad.numpy(), piece)


def sha256(vector: Vector) -> str:
    """Hex digest of the vector's bytes: equal if and only if the weights are bitwise equal."""
    return hashlib.sha256(np.ascontiguousarray(vector).data).hexdigest()


def check_fits(model: torch.nn.Module, vector: Vector) -> None:
    """Raises ValueError when the vector's size or type is not that of the model's weights."""
    count = parameter_count(model)
    if vector.shape != (count,):
        raise ValueError(f"weights of shape {vector.shape} do not fit a model of {count} parameters: ({count},) would")
    if vector.dtype != np.float32:
        raise ValueError(f"weights are {vector.dtype}, only float32 is taken")


def _pieces(model: torch.nn.Module, vector: Vector) -> list[tuple[torch.nn.Parameter, Vector]]:
    check_fits(model, vector)
    pieces = []
    offset = 0
    for name, parameter in model.named_parameters():
        _require_float32(name, parameter)
        end = offset + parameter.numel()
        pieces.append((parameter, vector[offset:end].reshape(tuple(parameter.shape))))
        offset = end
    return pieces


def _require_float32(name: str, parameter: torch.nn.Parameter) -> None:
    if parameter.dtype != torch.float32 or parameter.device.type != "cpu":
        raise ValueError(f"{name} is {parameter.dtype} on {parameter.device}; only float32 on the cpu is taken")
