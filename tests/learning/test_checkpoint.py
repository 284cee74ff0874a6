from __future__ import annotations

import json
import stat

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, AutoTokenizer

from tests.learning.builders import MODEL_KINDS, make_groups, make_model, make_tokenizer, make_trainer


def train(trainer, steps: int) -> None:
    for _ in range(steps):
        trainer.accumulate(make_groups(4, seed=trainer.version, version=trainer.version))
        trainer.finish_step()


@pytest.mark.parametrize("kind", MODEL_KINDS)
def test_anyone_can_load_the_folder_and_gets_the_same_logits(kind, tmp_path):
    model = make_model(kind)
    trainer = make_trainer(model)
    train(trainer, 2)
    trainer.save(tmp_path / "step-2")
    loaded = AutoModelForCausalLM.from_pretrained(tmp_path / "step-2", dtype=torch.float32).eval()
    ids = torch.tensor([[1, 5, 6, 7]])
    assert torch.equal(loaded(input_ids=ids).logits, model(input_ids=ids).logits)
    text = AutoTokenizer.from_pretrained(tmp_path / "step-2")
    assert text.encode("12+3") == make_tokenizer().encode("12+3")
    assert text.eos_token_id == 2


@pytest.mark.parametrize("kl_coef", [0.0, 0.1])
@pytest.mark.parametrize("kind", ["tied", "untied, shared keys"])
def test_a_run_that_is_resumed_equals_one_that_is_not(kind, kl_coef, tmp_path):
    settings = {"kl_coef": kl_coef, "lr_schedule": "linear", "lr_warmup_steps": 3}
    whole = make_trainer(make_model(kind), **settings)
    train(whole, 6)
    first = make_trainer(make_model(kind), **settings)
    train(first, 3)
    first.save(tmp_path / "half")
    second = make_trainer(make_model(kind), **settings)
    second.load(tmp_path / "half")
    assert (second.version, second.vector().tobytes()) == (3, first.vector().tobytes())
    train(second, 3)
    assert second.vector().tobytes() == whole.vector().tobytes()
    assert second.version == 6


def test_saving_replaces_what_was_there_and_leaves_nothing_beside_it(tmp_path):
    trainer = make_trainer()
    (tmp_path / "run" / "last").mkdir(parents=True)
    (tmp_path / "run" / "last" / "old.txt").write_text("old")
    trainer.save(tmp_path / "run" / "last")
    assert [path.name for path in (tmp_path / "run").iterdir()] == ["last"]
    assert not (tmp_path / "run" / "last" / "old.txt").exists()
    assert stat.S_IMODE((tmp_path / "run" / "last").stat().st_mode) == 0o755
    names = {path.name for path in (tmp_path / "run" / "last").iterdir()}
    assert {"config.json", "model.safetensors", "tokenizer.json", "optimizer.pt", "trainer.json"} <= names


def test_saving_inside_a_step_keeps_its_gradient_out_of_the_folder_and_in_the_trainer(tmp_path):
    trainer = make_trainer()
    trainer.accumulate(make_groups(2))
    before = trainer.gradient()
    trainer.save(tmp_path / "x")
    assert (trainer.gradient().vector == before.vector).all()
    resumed = make_trainer()
    resumed.load(tmp_path / "x")
    assert resumed.gradient().tokens == 0
    assert (resumed.vector() == trainer.vector()).all()


def _other_format(folder):
    (folder / "trainer.json").write_text(json.dumps({"format": 99, "version": 1}))


def _not_finite(folder):
    weights = load_file(folder / "model.safetensors")
    weights["model.norm.weight"][1] = float("nan")
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})


def cut(file):
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])


@pytest.mark.parametrize(
    ("damage", "match"),
    [
        (lambda folder: (folder / "trainer.json").unlink(), "trainer.json"),
        (lambda folder: (folder / "optimizer.pt").unlink(), "optimizer.pt"),
        (
            lambda folder: cut(folder / "model.safetensors"),
            "cannot be resumed from: model.safetensors cannot be used:",
        ),
        (lambda folder: cut(folder / "optimizer.pt"), "cannot be resumed from: optimizer.pt cannot be used:"),
        (lambda folder: cut(folder / "trainer.json"), "cannot be resumed from: trainer.json cannot be used:"),
        (_not_finite, "model.safetensors cannot be used: weight model.norm.weight holds NaN"),
        (_other_format, "format 99, this version reads 1"),
    ],
    ids=["no trainer.json", "no optimizer", "weights cut", "optimizer cut", "trainer.json cut", "NaN", "newer format"],
)
def test_a_folder_that_is_not_whole_is_refused_and_changes_nothing(damage, match, tmp_path):
    saved = make_trainer()
    train(saved, 1)
    saved.save(tmp_path / "x")
    damage(tmp_path / "x")
    trainer = make_trainer()
    before = trainer.vector().tobytes()
    with pytest.raises(ValueError, match=match):
        trainer.load(tmp_path / "x")
    assert (trainer.version, trainer.vector().tobytes()) == (0, before)


def test_another_models_folder_is_refused(tmp_path):
    make_trainer(make_model("untied, shared keys")).save(tmp_path / "x")
    with pytest.raises(ValueError, match="cannot be resumed from"):
        make_trainer(make_model("tied")).load(tmp_path / "x")
