"""The way of new weights into vLLM's model: its weight-transfer interface, with an engine of ours behind it.

Weights come as tensors of this process, named as transformers names them; vLLM's model finds their place in its own
fused layers. On a CPU they are copied into the tensors in use; on a GPU through vLLM's layerwise reload, which also
redoes what a layer derives from its weights, and writes into the tensors that CUDA graphs read.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch
from vllm.distributed.weight_transfer.base import (
    WeightTransferEngine,
    WeightTransferInitInfo,
    WeightTransferUpdateInfo,
)
from vllm.distributed.weight_transfer.factory import WeightTransferEngineFactory

BACKEND = "bidirl"
"""What `WeightTransferConfig.backend` calls it."""


@dataclass
class InThisProcess(WeightTransferInitInfo):
    """There is nothing to connect to."""


@dataclass
class NamedTensors(WeightTransferUpdateInfo):
    tensors: Iterable[tuple[str, torch.Tensor]]
    """Every weight once, tied ones too."""


class InProcessTransfer(WeightTransferEngine[InThisProcess, NamedTensors]):
    init_info_cls = InThisProcess
    update_info_cls = NamedTensors

    _names: dict[str, set[str]]
    """Name of each weight -> all names that the model has for it: itself, and those it is tied to."""

    @property
    def layerwise(self) -> bool:
        """A layer's new weights are collected, made what its kernels take, then copied over the old ones."""
        return bool(self.device.type != "cpu")

    def init_transfer_engine(self, init_info: InThisProcess) -> None:
        return

    def start_weight_update(self) -> None:
        # noted first: the reload gives every layer a place of its own for what it will load, so that tied weights look
        # like two, of which only one comes
        self._names = _names_of(self.model)
        if self.layerwise:
            from vllm.model_executor.model_loader.reload import initialize_layerwise_reload

            initialize_layerwise_reload(self.model)

    def receive_weights(self, update_info: NamedTensors) -> None:
        """Raises RuntimeError when a weight of the model got no new value: it would go on with an old one."""
        wanted = {name: self._names.get(name, {name}) for name, _ in self.model.named_parameters()}
        model: Any = self.model
        loaded = model.load_weights(iter(update_info.tensors))
        if loaded is not None and (missed := sorted(name for name, names in wanted.items() if not names & loaded)):
            raise RuntimeError(f"{len(missed)} of vLLM's weights were not updated, among them {missed[0]}")

    def finish_weight_update(self) -> None:
        if self.layerwise:
            from vllm.model_executor.model_loader.reload import finalize_layerwise_reload

            finalize_layerwise_reload(self.model, self.model_config)

    def shutdown(self) -> None:
        return


def _names_of(model: torch.nn.Module) -> dict[str, set[str]]:
    by_weight: dict[int, set[str]] = {}
    for name, weight in model.named_parameters(remove_duplicate=False):
        by_weight.setdefault(id(weight), set()).add(name)
    return {name: names for names in by_weight.values() for name in names}


def register() -> None:
    """Make the backend known to vLLM; a second time changes nothing."""
    if BACKEND not in WeightTransferEngineFactory._registry:
        WeightTransferEngineFactory.register_engine(BACKEND, InProcessTransfer)
