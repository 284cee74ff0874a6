"""Adapters: what is trained and travels, what a checkpoint of them holds, and what is refused."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM, PreTrainedModel

from engine.config import LoraConfig, ModelConfig, parse_job
from engine.learning.lora import add_adapter, base_sha256, dropping, has_adapter, merged_weights
from engine.learning.model_folder import load_folder
from engine.learning.torch_trainer import TorchTrainer
from engine.models.files import read
from tests.learning.builders import finish, make_algorithm, make_request
from tests.learning.test_real_models import load, make_pair
from tests.tiny_models import tiny_folder

LORA = LoraConfig(r=4, alpha=8)
BATCH = torch.randint(5, 260, (2, 20), generator=torch.Generator().manual_seed(0))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tiny_folder(tmp_path / "model")


def make_trainer(folder: Path, lora: LoraConfig = LORA, **settings) -> TorchTrainer:
    loaded = load(folder, lora=lora)
    algorithm = make_algorithm(**{key: settings.pop(key) for key in ("kl_coef",) if key in settings})
    return TorchTrainer(loaded.model, loaded.tokenizer, algorithm, temperature=0.8, max_response_tokens=12, **settings)


def groups(folder: Path, count: int = 1):
    _, rollouter = make_pair(folder, LORA)
    for number in range(count):
        rollouter.add(make_request(number))
    return [group.with_rewards([0, 1, 0, 1]) for group in finish(rollouter).values()]


def train(trainer: TorchTrainer, folder: Path, steps: int = 2) -> None:
    for group in groups(folder, steps):
        trainer.accumulate([group])
        trainer.finish_step()


def logits(model: torch.nn.Module) -> torch.Tensor:
    with torch.no_grad():
        return model(input_ids=BATCH).logits


@pytest.mark.parametrize("targets", ["all-linear", ["q_proj", "v_proj"]], ids=str)
def test_only_adapters_travel_and_their_number_is_known_before_the_model_is_loaded(targets, folder: Path) -> None:
    lora = LoraConfig(r=4, alpha=8, targets=targets)
    trainer = make_trainer(folder, lora)
    files = read(folder)
    assert len(trainer.vector()) == files.adapter_parameters(4, targets) < files.parameters / 2
    assert trainer.snapshot().parameters.shape == trainer.gradient().vector.shape == trainer.vector().shape


def test_fresh_adapters_change_nothing_and_trained_ones_change_the_model_but_no_frozen_weight(folder: Path) -> None:
    trainer = make_trainer(folder)
    base = load(folder).model
    assert torch.equal(logits(trainer._model), logits(base))
    train(trainer, folder)
    assert not torch.allclose(logits(trainer._model), logits(base), atol=1e-3)
    frozen = {
        name.replace(".base_layer", ""): p for name, p in trainer._model.named_parameters() if "lora_" not in name
    }
    assert all(torch.equal(frozen[name], parameter) for name, parameter in base.named_parameters())


def test_the_checkpoint_of_adapters_loads_on_its_base_and_the_merged_model_loads_alone(folder: Path) -> None:
    trainer = make_trainer(folder, merged=True)
    train(trainer, folder)
    saved = folder.parent / "step-2"
    trainer.save(saved)
    assert not (saved / "model.safetensors").exists()
    on_base = AutoModelForCausalLM.from_pretrained(saved, dtype=torch.float32).eval()
    assert torch.allclose(logits(on_base), logits(trainer._model), atol=1e-5)
    folder.rename(folder.parent / "gone")
    alone = AutoModelForCausalLM.from_pretrained(saved / "merged", dtype=torch.float32).eval()
    assert not has_adapter(alone)
    assert torch.allclose(logits(alone), logits(trainer._model), atol=1e-5)
    assert alone.lm_head.weight is alone.model.embed_tokens.weight


def test_without_being_asked_for_the_whole_model_is_not_saved(folder: Path) -> None:
    trainer = make_trainer(folder)
    trainer.save(folder.parent / "step-0")
    assert not (folder.parent / "step-0" / "merged").exists()


@pytest.mark.parametrize("kl_coef", [0.0, 0.1])
def test_adapters_that_are_resumed_equal_those_that_are_not(kl_coef: float, folder: Path) -> None:
    whole, first, second = (make_trainer(folder, kl_coef=kl_coef) for _ in range(3))
    data = groups(folder, 4)
    for number, group in enumerate(data):
        for trainer in (whole, first if number < 2 else second):
            trainer.accumulate([group])
            trainer.finish_step()
        if number == 1:
            first.save(folder.parent / "half")
            second.load(folder.parent / "half")
    assert second.vector().tobytes() == whole.vector().tobytes()


def test_the_reference_of_adapters_shares_what_is_frozen_and_keeps_what_was_trained(folder: Path) -> None:
    trainer = make_trainer(folder, kl_coef=0.1)
    before = trainer.reference_vector()
    train(trainer, folder)
    assert trainer.reference_vector().tobytes() == before.tobytes() != trainer.vector().tobytes()
    assert trainer._reference.model.embed_tokens.weight is trainer._model.model.embed_tokens.weight


def test_another_rank_is_refused_on_resume(folder: Path) -> None:
    make_trainer(folder).save(folder.parent / "saved")
    with pytest.raises(ValueError, match=r"cannot be resumed from: its adapter has other layers or another rank"):
        make_trainer(folder, LoraConfig(r=2)).load(folder.parent / "saved")


def test_adapters_are_not_resumed_on_another_base_of_the_same_shapes(folder: Path) -> None:
    saved, other = folder.parent / "saved", tiny_folder(folder.parent / "other", seed=1)
    make_trainer(folder, merged=True).save(saved)
    trainer = make_trainer(other, merged=True)
    with pytest.raises(ValueError, match=r"saved cannot be resumed from: its adapters were trained on a base"):
        trainer.load(saved)
    assert trainer.version == 0
    assert make_trainer(folder).load(saved) == ()


def test_one_changed_weight_is_another_base_and_the_type_it_computes_in_is_not(folder: Path) -> None:
    loaded = load(folder, lora=LORA).model
    digest = base_sha256(loaded)
    assert base_sha256(load(folder).model) is None, "without adapters nothing is frozen"
    assert digest == base_sha256(add_to(load_folder(folder, dtype=torch.bfloat16)[0]))
    train(trainer := make_trainer(folder), folder)
    assert digest == base_sha256(trainer._model), "training changes no frozen weight"
    loaded.model.layers[1].mlp.up_proj.base_layer.weight.data[3, 4] += 0.5
    assert digest != base_sha256(loaded)


def add_to(model: PreTrainedModel) -> PreTrainedModel:
    add_adapter(model, LORA, seed=5)
    return model


def test_a_checkpoint_that_does_not_say_its_base_is_resumed_with_a_note(folder: Path) -> None:
    saved = folder.parent / "saved"
    make_trainer(folder).save(saved)
    about = json.loads((saved / "trainer.json").read_text())
    del about["base_sha256"]
    (saved / "trainer.json").write_text(json.dumps(about))
    (note,) = make_trainer(folder).load(saved)
    assert note.startswith(f"{saved} does not say which base model its adapters were trained on")


def test_adapters_drop_out_while_they_are_trained_and_at_no_other_time(folder: Path) -> None:
    trainer = make_trainer(folder, LoraConfig(r=4, alpha=8, dropout=0.5))
    train(trainer, folder)
    model = trainer._model
    quiet = logits(model)
    assert torch.equal(quiet, logits(model))
    with dropping(model):
        assert not torch.equal(quiet, logits(model))
    assert torch.equal(quiet, logits(model))


def test_merged_weights_have_the_names_of_the_model_without_adapters(folder: Path) -> None:
    assert merged_weights(make_trainer(folder)._model).keys() == load(folder).model.state_dict().keys()


def test_what_has_no_such_layer_or_no_package_is_refused(folder: Path, monkeypatch) -> None:
    with pytest.raises(
        ValueError, match=r"model\.lora\.targets: 'query' names no .*allowed: all-linear, or of .*q_proj"
    ):
        load(folder, lora=LoraConfig(targets=["query"]))
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "peft" else find(name))
    with pytest.raises(ValueError, match=r"model\.lora: it needs the package peft; get it with: pip install"):
        load(folder, lora=LORA)


def test_dropout_cannot_be_deterministic_and_the_small_builtin_model_takes_no_adapter() -> None:
    with pytest.raises(ValueError, match=r"model\.lora\.dropout 0\.1 is random"):
        parse_job("model: {source: some/model, lora: {dropout: 0.1}}\nschedule: {deterministic: true}")
    with pytest.raises(ValueError, match="lora has no meaning for builtin:tiny"):
        ModelConfig(lora=LORA)


def test_gradients_of_adapters_are_those_of_the_product(folder: Path) -> None:
    # B is zero at first, so that A has no gradient yet and B has one
    trainer = make_trainer(folder)
    trainer.accumulate(groups(folder))
    by_name = {name: p.grad for name, p in trainer._model.named_parameters() if p.requires_grad}
    assert all(float(np.abs(grad).max()) == 0 for name, grad in by_name.items() if ".lora_A." in name)
    assert all(float(np.abs(grad).max()) > 0 for name, grad in by_name.items() if ".lora_B." in name)
