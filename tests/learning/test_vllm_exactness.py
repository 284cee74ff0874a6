"""vLLM itself, on the CPU: its log-probabilities are the trainer's, after every update of the weights, in float32."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from engine.config import SamplingConfig
from engine.learning.rollouter import Rollouter
from engine.learning.sequences import FinishedGroup, GroupRequest
from engine.learning.slot_rollouter import RolloutSettings
from engine.learning.torch_trainer import TorchTrainer
from engine.learning.transformers_rollouter import TransformersRollouter
from engine.learning.weights import flatten, load_flat
from tests.learning.builders import finish, make_algorithm
from tests.learning.tiny_folder import byte_tokenizer, tiny_model
from tests.needs_vllm import VLLM_TIMEOUT_S, needs_vllm

pytestmark = [needs_vllm, pytest.mark.timeout(VLLM_TIMEOUT_S)]

KINDS = [("qwen3", True), ("qwen3", False), ("llama", True), ("llama", False)]
IDS = [f"{kind}, {'tied' if tied else 'untied'}" for kind, tied in KINDS]

UPDATES = 20

TEMPERATURE = 0.7


def settings(**overrides: Any) -> RolloutSettings:
    sampling = SamplingConfig(max_response_tokens=16, temperature=TEMPERATURE)
    common = {"prompt_of": lambda item: f"{item} and {item * 7} make", "seed": 3, "group_size": 4, "slots": 16}
    return RolloutSettings(**(common | {"sampling": sampling} | overrides))


def make_both(kind: str, tied: bool, cache_dir: Path) -> tuple[TransformersRollouter, Rollouter]:
    from engine.learning.vllm.making import make_vllm_rollouter

    model, tokenizer = tiny_model(kind, tied=tied), byte_tokenizer()
    vllm = make_vllm_rollouter(model, tokenizer, settings(), cache_dir=cache_dir)
    vllm.load(flatten(model), 0)
    return TransformersRollouter(model, tokenizer, settings()), vllm


def request(number: int) -> GroupRequest:
    return GroupRequest(group_id=number, epoch=0, position=number, item=number, bound=1.0)


def generate(rollouter: Any, numbers: Sequence[int]) -> dict[int, FinishedGroup]:
    for number in numbers:
        rollouter.add(request(number))
    return finish(rollouter)


@torch.inference_mode()
def worst_difference(model: torch.nn.Module, groups: Sequence[FinishedGroup]) -> float:
    """Largest difference between a recorded log-probability and that of a whole forward pass of the model."""
    worst = 0.0
    for group in groups:
        for response in group.responses:
            ids = torch.tensor([[*group.prompt_tokens.tolist(), *response.tokens.tolist()]])
            logits = model(input_ids=ids).logits[0, len(group.prompt_tokens) - 1 : -1] / TEMPERATURE
            wanted = logits.log_softmax(-1).gather(1, ids[0, len(group.prompt_tokens) :, None])[:, 0].numpy()
            worst = max(worst, float(np.abs(wanted - response.logprobs).max()))
    return worst


@pytest.mark.parametrize(("kind", "tied"), KINDS, ids=IDS)
def test_log_probabilities_are_the_trainers_right_after_each_update(kind, tied, tmp_path):
    _, vllm = make_both(kind, tied, tmp_path)
    model = tiny_model(kind, tied=tied)
    trainer = TorchTrainer(
        model,
        byte_tokenizer(),
        make_algorithm(learning_rate=3e-3),
        temperature=TEMPERATURE,
        max_response_tokens=16,
    )
    before = trainer.vector()
    for step in range(UPDATES):
        [group] = generate(vllm, [step]).values()
        scored = group.with_rewards(
            [float(response.tokens[0] % 2) + 0.1 * i for i, response in enumerate(group.responses)]
        )
        trainer.accumulate([scored])
        trainer.finish_step()
        vllm.load(trainer.vector(), trainer.version)
        sampled = generate(vllm, [1000 + step])
        assert sampled[1000 + step].version == step + 1
        assert worst_difference(model, list(sampled.values())) <= 1e-4
    moved = np.abs(trainer.vector() - before).max()
    assert moved > 0.01  # or stale weights would pass


def test_with_adapters_log_probabilities_are_those_of_the_adapted_model_after_each_of_two_updates(tmp_path):
    pytest.importorskip("peft")
    from engine.config import LoraConfig
    from engine.learning.lora import add_adapter
    from engine.learning.vllm.making import make_vllm_rollouter

    models = [tiny_model("qwen3", tied=True) for _ in range(2)]
    for model in models:
        add_adapter(model, LoraConfig(r=4), seed=1)
    vllm = make_vllm_rollouter(models[0], byte_tokenizer(), settings(), cache_dir=tmp_path)
    plain = tiny_model("qwen3", tied=True)
    for version in range(2):
        vector = flatten(models[1]) + np.random.default_rng(version).normal(0, 0.1, flatten(models[1]).shape)
        load_flat(models[1], vector.astype(np.float32))
        vllm.load(flatten(models[1]), version)
        groups = list(generate(vllm, [version]).values())
        assert worst_difference(models[1], groups) <= 1e-4
        assert worst_difference(plain, groups) > 0.01


def test_a_group_goes_from_one_engine_to_the_other_and_says_what_it_would_have_said(tmp_path):
    ours, vllm = make_both("qwen3", True, tmp_path)
    whole = generate(ours, [0, 1])
    for first, second in ((vllm, ours), (ours, vllm)):
        for number in (0, 1):
            first.add(request(number))
        for _ in range(5):
            first.step()
        taken = first.abort()
        assert all(len(partial.tokens) == 5 for group in taken for partial in group.partial if not partial.finished_by)
        for group in taken:
            second.add(group.request())
        for number, group in finish(second).items():
            for mine, wanted in zip(group.responses, whole[number].responses, strict=True):
                assert mine.tokens.tolist() == wanted.tokens.tolist()
                np.testing.assert_allclose(mine.logprobs, wanted.logprobs, atol=1e-4)
    assert vllm.greedy(["one and one"], "a") == ours.greedy(["one and one"], "a")
    assert vllm.sampled(["one and one"] * 3) == ours.sampled(["one and one"] * 3)


def test_weights_change_in_flight_and_nothing_computed_under_the_old_ones_is_shared_with_new_groups(tmp_path):
    """The prompt fills whole blocks, so that sharing it is possible."""
    from engine.learning.vllm.making import make_vllm_rollouter

    model, tokenizer = tiny_model("llama", tied=True), byte_tokenizer()
    long = {"prompt_of": lambda item: "the same words for all of them, over and over, and once more " * 3}
    vllm = make_vllm_rollouter(model, tokenizer, settings(**long), cache_dir=tmp_path)
    vllm.load(flatten(model), 0)
    newer = tiny_model("llama", tied=True, seed=9)
    vllm.add(request(0))
    vllm.step()
    vllm.step()
    vllm.load(flatten(newer), 1)
    vllm.add(request(1))
    groups = finish(vllm)
    assert groups[0].responses[0].versions[0] == (0, 2)
    assert groups[1].version == 1
    assert worst_difference(newer, [groups[1]]) <= 1e-4
    first_two = [replace(r, tokens=r.tokens[:2], logprobs=r.logprobs[:2]) for r in groups[0].responses]
    assert worst_difference(model, [replace(groups[0], responses=tuple(first_two))]) <= 1e-4


def test_too_little_room_for_keys_and_values_puts_sequences_off_and_changes_no_answer(tmp_path, monkeypatch):
    from engine.learning.vllm import making

    monkeypatch.setattr(making, "PROMPT_TOKENS", 1)
    model, tokenizer = tiny_model("qwen3", tied=True), byte_tokenizer()
    long = {"prompt_of": lambda item: f"{item}: " + "as many words as fill some blocks, " * 6}
    ours = TransformersRollouter(model, tokenizer, settings(**long))
    vllm = making.make_vllm_rollouter(model, tokenizer, settings(**long), cache_dir=tmp_path)
    vllm.load(flatten(model), 0)
    wanted = generate(ours, range(4))
    for number in range(4):
        vllm.add(request(number))
    put_off, found = 0, {}
    while vllm.active_groups:
        active, step = vllm.active_sequences, vllm._engine.step
        made: list[int] = []
        monkeypatch.setattr(vllm._engine, "step", lambda step=step, made=made: _counted(step, made))
        found |= {group.group_id: group for group in vllm.step()}
        monkeypatch.setattr(vllm._engine, "step", step)
        put_off += active - made[0]
    assert put_off > 0
    for number, group in found.items():
        for mine, theirs in zip(group.responses, wanted[number].responses, strict=True):
            assert mine.tokens.tolist() == theirs.tokens.tolist()
            np.testing.assert_allclose(mine.logprobs, theirs.logprobs, atol=1e-4)


def _counted(step: Any, made: list[int]) -> Any:
    tokens = step()
    made.append(len(tokens))
    return tokens


@pytest.mark.parametrize("tied", [True, False])
def test_vllm_loads_a_checkpoint_folder_and_says_what_the_trainer_says(tied, tmp_path):
    from engine.learning.vllm.in_process import InProcessEngine

    model = tiny_model("qwen3", tied=tied, seed=4)
    trainer = TorchTrainer(model, byte_tokenizer(), make_algorithm(), temperature=1.0, max_response_tokens=16)
    trainer.save(tmp_path / "checkpoint")
    heard: dict[str, torch.Tensor] = {}

    def pick(keys: list[str], logits: torch.Tensor) -> torch.Tensor:
        heard.update({key: row.log_softmax(-1) for key, row in zip(keys, logits.clone(), strict=True)})
        return logits.argmax(-1)

    engine = InProcessEngine(
        tmp_path / "checkpoint",
        pick,
        end_tokens=[2],
        slots=4,
        longest=64,
        kv_bytes=2**24,
        weights_from_folder=True,
    )
    batch = {f"r{row}": np.random.default_rng(row).integers(3, 264, size=9 + 13 * row).tolist() for row in range(4)}
    for key, tokens in batch.items():
        engine.add(key, tokens, longest=1, salt="")
    engine.step()
    for key, tokens in batch.items():
        with torch.inference_mode():
            wanted = model(input_ids=torch.tensor([tokens])).logits[0, -1].log_softmax(-1)
        assert float((heard[key] - wanted).abs().max()) <= 1e-5


def test_the_process_keeps_its_cores_and_threads_when_vllm_starts(tmp_path):
    import os

    cores, threads, set_threads = os.sched_getaffinity(0), torch.get_num_threads(), torch.set_num_threads
    make_both("llama", False, tmp_path)
    assert os.sched_getaffinity(0) == cores
    assert torch.get_num_threads() == threads
    assert torch.set_num_threads is set_threads


def test_heads_that_vllm_does_not_compute_are_refused_before_it_starts(tmp_path):
    from engine.learning.builtin_model import build_model, build_tokenizer
    from engine.learning.vllm.making import make_vllm_rollouter

    tokenizer = build_tokenizer()
    with pytest.raises(ValueError, match=r"attention heads of 32, 64, .* dimensions, this model's have 24"):
        make_vllm_rollouter(build_model(tokenizer, seed=0), tokenizer, settings(), cache_dir=tmp_path)
