"""What vLLM does on GPUs, as far as a CPU can show it: its own code for them is run here, on tensors of the CPU."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from transformers import Qwen3MoeConfig, Qwen3MoeForCausalLM

from engine.learning.vllm.probe import check_alike
from engine.learning.weights import flatten
from tests.learning.test_vllm_exactness import IDS, KINDS, generate, settings, worst_difference
from tests.learning.tiny_folder import byte_tokenizer, tiny_model
from tests.needs_vllm import VLLM_TIMEOUT_S, needs_vllm

pytestmark = [needs_vllm, pytest.mark.timeout(VLLM_TIMEOUT_S)]


@pytest.fixture
def layerwise(monkeypatch: pytest.MonkeyPatch) -> None:
    """New weights go the way that they go on GPUs."""
    from engine.learning.vllm.process import import_vllm

    import_vllm()
    from engine.learning.vllm.transfer import InProcessTransfer

    monkeypatch.setattr(InProcessTransfer, "layerwise", True)


def make_vllm(kind: str, tied: bool, cache_dir: Path, dtype: str = "float32") -> Any:
    from engine.learning.vllm.making import make_vllm_rollouter

    model = tiny_model(kind, tied=tied)
    return make_vllm_rollouter(model, byte_tokenizer(), settings(), cache_dir=cache_dir, dtype=dtype)


def weights(rollouter: Any) -> dict[str, torch.Tensor]:
    [named] = rollouter._engine._llm.apply_model(lambda model: dict(model.named_parameters()))
    return dict(named)


@pytest.mark.parametrize(("kind", "tied"), KINDS, ids=IDS)
def test_layerwise_reloaded_weights_are_used_and_stay_where_cuda_graphs_read_them(kind, tied, tmp_path, layerwise):
    vllm = make_vllm(kind, tied, tmp_path)
    places = {name: weight.data_ptr() for name, weight in weights(vllm).items()}
    for version in range(2):
        model = tiny_model(kind, tied=tied, seed=version)
        vllm.load(flatten(model), version)
        assert worst_difference(model, list(generate(vllm, [version]).values())) <= 1e-4
    assert {name: weight.data_ptr() for name, weight in weights(vllm).items()} == places


@pytest.mark.parametrize("tied", [True, False])
def test_float32_vectors_become_the_nearest_bfloat16_weights(tied, tmp_path, layerwise, monkeypatch):
    from vllm.model_executor.layers import utils

    monkeypatch.setattr(utils, "check_cpu_sgl_kernel", lambda *shape: False)  # on some CPUs it packs weights away
    vllm = make_vllm("qwen3", tied, tmp_path, dtype="bfloat16")
    model = tiny_model("qwen3", tied=tied, seed=5)
    vllm.load(flatten(model), 1)
    held, compared = weights(vllm), 0
    assert {weight.dtype for weight in held.values()} == {torch.bfloat16}
    for name, wanted in model.named_parameters():
        if name in held:
            assert torch.equal(held[name][: len(wanted)], wanted.bfloat16()), name
            compared += 1
    assert compared >= 10
    for group in generate(vllm, [0]).values():
        for response in group.responses:
            assert response.logprobs.dtype == np.float32
            assert np.isfinite(response.logprobs).all()


class TwoLayers(torch.nn.Module):
    """A tied pair and one more weight; `load_weights` takes what it is told to."""

    def __init__(self, taken: set[str]) -> None:
        super().__init__()
        self.embed, self.head, self.norm = (torch.nn.Linear(2, 2, bias=False) for _ in range(3))
        self.head.weight = self.embed.weight
        self.taken = taken

    def load_weights(self, tensors: Any) -> set[str]:
        return self.taken & {name for name, _ in tensors}


@pytest.mark.parametrize(
    ("taken", "missed"),
    [({"embed.weight", "norm.weight"}, None), ({"head.weight", "norm.weight"}, None), ({"embed.weight"}, "norm")],
)
@pytest.mark.parametrize("apart", [False, True], ids=["tied", "apart while it loads"])
def test_a_weight_that_got_no_value_is_told_and_a_tied_one_counts_under_any_name(taken, missed, apart):
    from engine.learning.vllm.process import import_vllm

    import_vllm()
    from engine.learning.vllm.transfer import InProcessTransfer, NamedTensors

    transfer = InProcessTransfer.__new__(InProcessTransfer)
    transfer.model, transfer.device = TwoLayers(taken), torch.device("cpu")
    transfer.start_weight_update()
    if apart:
        transfer.model.head.weight = torch.nn.Parameter(torch.zeros(2, 2))
    update = NamedTensors(tensors=[(name, torch.zeros(2, 2)) for name in sorted(taken)])
    if missed is None:
        transfer.receive_weights(update)
    else:
        with pytest.raises(RuntimeError, match=f"1 of vLLM's weights were not updated, among them {missed}"):
            transfer.receive_weights(update)


def test_vllm_starts_on_a_gpu_of_which_a_trainer_holds_most(tmp_path):
    from engine.learning.vllm.process import import_vllm

    import_vllm()
    from vllm.v1.worker.utils import request_memory

    config = make_vllm("qwen3", True, tmp_path)._engine._engine.vllm_config.cache_config
    gpu = SimpleNamespace(total_memory=80 * 2**30, free_memory=12 * 2**30, device_="cuda:0")
    request_memory(gpu, config)
    with pytest.raises(ValueError, match="less than desired GPU memory utilization"):
        request_memory(gpu, SimpleNamespace(gpu_memory_utilization=0.92))


def test_what_is_needed_of_vllms_environment_is_set_against_the_operators(monkeypatch):
    from engine.learning.vllm.process import import_vllm

    monkeypatch.setenv("VLLM_USE_V2_MODEL_RUNNER", "1")
    monkeypatch.setenv("VLLM_ENABLE_V1_MULTIPROCESSING", "1")
    monkeypatch.setenv("VLLM_LOGGING_LEVEL", "INFO")
    import_vllm()
    assert os.environ["VLLM_USE_V2_MODEL_RUNNER"] == os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] == "0"
    assert os.environ["VLLM_LOGGING_LEVEL"] == "INFO"


def test_a_model_that_gave_its_shape_holds_no_memory_and_keeps_its_shape():
    from engine.learning.vllm.layout import Layout
    from engine.learning.vllm.making import give_back

    model = tiny_model("qwen3", tied=True)
    before = Layout.of(model)
    give_back(model)
    assert {tensor.device.type for tensor in (*model.parameters(), *model.buffers())} == {"meta"}
    assert set(before.shapes) <= set(Layout.of(model).shapes)


@pytest.fixture
def own_groups() -> Iterator[None]:
    """vLLM makes its groups of devices for the process's first model; this one's has no use for those of others."""
    from engine.learning.vllm.process import import_vllm

    import_vllm()
    from vllm.distributed.parallel_state import destroy_model_parallel

    destroy_model_parallel()
    yield
    destroy_model_parallel()


def test_a_model_that_vllm_computes_otherwise_from_the_same_weights_is_refused(tmp_path, own_groups):
    """On CPUs vLLM packs the experts of a mixture: what is copied in place is then read as if it were packed."""
    from engine.learning.vllm.making import make_vllm_rollouter

    torch.manual_seed(0)
    common = tiny_model("qwen3", tied=False).config.to_dict()
    for name in ("model_type", "architectures", "layer_types"):
        common.pop(name, None)
    model = Qwen3MoeForCausalLM(
        Qwen3MoeConfig(**common, num_experts=4, num_experts_per_tok=2, moe_intermediate_size=48)
    ).eval()
    with pytest.raises(ValueError, match="vllm computes another model than transformers from the same weights"):
        make_vllm_rollouter(model, byte_tokenizer(), settings(), cache_dir=tmp_path)


def test_a_layer_whose_new_weights_go_astray_is_found_when_vllm_starts(tmp_path, monkeypatch):
    from engine.learning.vllm.in_process import InProcessEngine

    load = InProcessEngine.load

    def astray(engine: Any, weights: Any, version: int) -> None:
        load(
            engine, [(name, weight * (0 if "layers.0.self_attn.o_proj" in name else 1)) for name, weight in weights], 0
        )

    monkeypatch.setattr(InProcessEngine, "load", astray)
    with pytest.raises(ValueError, match="vllm computes another model than transformers from the same weights"):
        make_vllm("llama", False, tmp_path)


def test_a_wrong_layer_is_told_from_rounding():
    logits = torch.randn(1000, generator=torch.Generator().manual_seed(0)) * 3
    wanted = logits.log_softmax(-1)
    check_alike(wanted, logits.bfloat16().float().log_softmax(-1), "bfloat16")
    for dtype in ("float32", "bfloat16"):
        with pytest.raises(ValueError, match=f"on average, allowed in {dtype}"):
            check_alike(wanted, logits.flip(0).log_softmax(-1), dtype)
        with pytest.raises(ValueError, match="differ by nan"):
            check_alike(wanted, torch.full((1000,), float("nan")), dtype)
