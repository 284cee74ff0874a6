"""Models as they come in folders, with tokenizers of their own: generated from, trained, published, saved, loaded."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from engine.config import LoraConfig, ModelConfig, SamplingConfig, TaskConfig
from engine.learning.model_source import LoadedModel, load_model
from engine.learning.sequences import FinishedGroup
from engine.learning.slot_rollouter import RolloutSettings
from engine.learning.tasks import ReasoningGymTask
from engine.learning.torch_trainer import TorchTrainer
from engine.learning.transformers_rollouter import TransformersRollouter
from tests.learning.builders import finish, make_algorithm, make_request
from tests.tiny_models import tiny_folder

SAMPLING = SamplingConfig(max_response_tokens=12, temperature=0.8)
TASK = TaskConfig(items=50)
KINDS = [("qwen3", True), ("qwen3", False), ("llama", True), ("llama", False)]
ids = [f"{kind}, {'tied' if tied else 'untied'}" for kind, tied in KINDS]


def load(folder: Path, *, trained: bool = True, lora: LoraConfig | None = None, **model) -> LoadedModel:
    task = ReasoningGymTask(TASK, seed=1, held_out_items=5)
    config = ModelConfig(source=str(folder), lora=lora, **model)
    return load_model(config, task=task, task_config=TASK, seed=1, cache_dir=folder / "unused", trained=trained)


def make_pair(folder: Path, lora: LoraConfig | None = None) -> tuple[TorchTrainer, TransformersRollouter]:
    """A trainer and a rollouter, each with a model of its own."""
    mine, other = load(folder, lora=lora), load(folder, lora=lora, trained=False)
    trainer = TorchTrainer(
        mine.model, mine.tokenizer, make_algorithm(steps=20), temperature=0.8, max_response_tokens=12
    )
    task = ReasoningGymTask(TASK, seed=1, held_out_items=5)
    rollouter = TransformersRollouter(
        other.model,
        other.tokenizer,
        RolloutSettings(prompt_of=task.prompt, seed=3, group_size=4, sampling=SAMPLING, slots=16),
    )
    return trainer, rollouter


def logprobs_of(model: torch.nn.Module, group: FinishedGroup) -> list[np.ndarray]:
    """Of each response's tokens, one sequence at a time, without any of our code."""
    found = []
    for response in group.responses:
        tokens = torch.from_numpy(np.concatenate([group.prompt_tokens, response.tokens]).astype(np.int64))[None]
        with torch.no_grad():
            logits = model(input_ids=tokens).logits[0] / SAMPLING.temperature
        first = len(group.prompt_tokens)
        found.append(torch.log_softmax(logits, -1)[first - 1 : -1].gather(1, tokens[0, first:, None])[:, 0].numpy())
    return found


@pytest.mark.parametrize("lora", [None, LoraConfig(r=4, alpha=8)], ids=["whole", "adapters"])
@pytest.mark.parametrize(("kind", "tied"), KINDS, ids=ids)
def test_after_each_of_twenty_updates_rollouter_and_trainer_have_the_same_log_probabilities(
    kind: str, tied: bool, lora: LoraConfig | None, tmp_path: Path
) -> None:
    trainer, rollouter = make_pair(tiny_folder(tmp_path / "model", kind, tied=tied), lora)
    worst, moved = 0.0, trainer.vector()
    for update in range(20):
        rollouter.load(trainer.vector(), trainer.version)
        rollouter.add(make_request(update, position=update))
        group = finish(rollouter)[update].with_rewards([0, 1, 0, 1])
        for response, expected in zip(group.responses, logprobs_of(trainer._model, group), strict=True):
            worst = max(worst, float(np.abs(response.logprobs - expected).max()))
        trainer.accumulate([group])
        trainer.finish_step()
    assert worst <= 1e-4
    assert trainer.version == 20
    assert np.abs(trainer.vector() - moved).max() > 1e-2, "the weights did not move: equality says nothing"


@pytest.mark.parametrize(("kind", "tied"), KINDS, ids=ids)
def test_a_checkpoint_that_transformers_loads_has_the_same_loss(kind: str, tied: bool, tmp_path: Path) -> None:
    trainer, rollouter = make_pair(tiny_folder(tmp_path / "model", kind, tied=tied))
    rollouter.load(trainer.vector(), 0)
    for number in range(3):
        rollouter.add(make_request(number))
        trainer.accumulate([finish(rollouter)[number].with_rewards([0, 1, 0, 1])])
        trainer.finish_step()
    trainer.save(tmp_path / "step-3")
    loaded = AutoModelForCausalLM.from_pretrained(tmp_path / "step-3", dtype=torch.float32).eval()
    batch = torch.randint(5, 260, (4, 30), generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        losses = [float(model(input_ids=batch, labels=batch).loss) for model in (trainer._model, loaded)]
    assert losses[0] == pytest.approx(losses[1], abs=1e-5)
    assert (loaded.lm_head.weight is loaded.model.embed_tokens.weight) == tied
    text = AutoTokenizer.from_pretrained(tmp_path / "step-3")
    assert text.encode("1 + é") == rollouter._tokenizer.encode("1 + é")
    assert text.chat_template == rollouter._tokenizer.chat_template


def test_a_model_whose_weights_are_saved_in_several_files_resumes_bitwise(tmp_path: Path, monkeypatch) -> None:
    folder = tiny_folder(tmp_path / "model", tied=False)
    trainer, _ = make_pair(folder)
    whole = type(trainer._model).save_pretrained
    monkeypatch.setattr(
        type(trainer._model), "save_pretrained", lambda model, path: whole(model, path, max_shard_size="20KB")
    )
    with torch.no_grad():
        next(trainer._model.parameters()).add_(1.0)
    trainer.save(tmp_path / "saved")
    assert len(list((tmp_path / "saved").glob("model-*.safetensors"))) > 1
    again, _ = make_pair(folder)
    assert again.vector().tobytes() != trainer.vector().tobytes()
    again.load(tmp_path / "saved")
    assert again.vector().tobytes() == trainer.vector().tobytes()


def test_a_rollouter_in_bfloat16_takes_float32_weights_and_stays_close(tmp_path: Path) -> None:
    folder = tiny_folder(tmp_path / "model")
    trainer, _ = make_pair(folder)
    lower = load(folder, trained=False, dtype="bfloat16")
    assert (lower.compute, lower.model.dtype) == (torch.bfloat16, torch.bfloat16)
    rollouter = TransformersRollouter(
        lower.model,
        lower.tokenizer,
        RolloutSettings(prompt_of=str, seed=3, group_size=4, sampling=SAMPLING, slots=8),
    )
    rollouter.load(trainer.vector() + np.float32(0.01), 1)
    rollouter.add(make_request(0))
    group = finish(rollouter)[0]
    trainer.take(trainer.vector() + np.float32(0.01), 1)
    for response, expected in zip(group.responses, logprobs_of(trainer._model, group), strict=True):
        assert np.abs(response.logprobs - expected).mean() < 0.2


def test_passes_in_bfloat16_leave_weights_and_gradients_in_float32_and_stay_close(tmp_path: Path) -> None:
    folder = tiny_folder(tmp_path / "model")
    gradients = {}
    for dtype in ("float32", "bfloat16"):
        loaded = load(folder, dtype=dtype)
        assert loaded.model.dtype == torch.float32
        _, rollouter = make_pair(folder)
        rollouter.add(make_request(0))
        trainer = TorchTrainer(
            loaded.model,
            loaded.tokenizer,
            make_algorithm(),
            temperature=0.8,
            max_response_tokens=12,
            compute=loaded.compute,
        )
        trainer.accumulate([finish(rollouter)[0].with_rewards([0, 1, 0, 1])])
        gradients[dtype] = trainer.gradient().vector
    exact, lower = gradients["float32"], gradients["bfloat16"]
    assert lower.dtype == np.float32
    assert 0 < np.linalg.norm(exact - lower) / np.linalg.norm(exact) < 0.1
