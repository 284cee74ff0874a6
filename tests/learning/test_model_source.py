from __future__ import annotations

import json
import math

import pytest
import torch
from safetensors.torch import load_file, save_file

from engine.config import ModelConfig, TaskConfig, WarmStartConfig
from engine.learning import warm_start
from engine.learning.model_source import LoadedModel, load_model
from engine.learning.prompts import encode_prompt, end_tokens
from engine.learning.tasks import ReasoningGymTask
from engine.learning.warm_start import WarmStartStopped, rate_factor
from engine.learning.weights import flatten
from tests.learning.builders import make_model, make_tokenizer

TASK = TaskConfig(params={"min_terms": 3, "max_terms": 4, "min_digits": 1, "max_digits": 1}, items=100)


def load(
    cache_dir, *, source: str = "builtin:tiny", steps: int = 3, seed: int = 1, held_out: int = 5, size=None, **callbacks
):
    warm = WarmStartConfig(steps=steps, worked_only_steps=2, batch=4)
    config = ModelConfig(source=source, size=size or {}, warm_start=warm)
    task = ReasoningGymTask(TASK, seed=seed, held_out_items=held_out)
    return load_model(config, task=task, task_config=TASK, seed=seed, cache_dir=cache_dir, **callbacks)


def bits(loaded: LoadedModel) -> bytes:
    return flatten(loaded.model).tobytes()


def test_the_warm_start_is_made_once_and_then_taken_from_the_cache(tmp_path, monkeypatch):
    seen = []
    first = load(tmp_path, progress=lambda sentence, fraction: seen.append((sentence, fraction)))
    assert seen == [(f"warm start {step}/3", step / 3) for step in (1, 2, 3)]
    assert "made and kept" in first.notes[0]
    files = list((tmp_path / "warm_start").iterdir())
    assert len(files) == 1
    monkeypatch.setattr(warm_start, "train", lambda *a, **k: pytest.fail("trained again"))
    again = load(tmp_path)
    assert "taken from" in again.notes[0]
    assert bits(again) == bits(first)


def test_the_warm_start_is_the_same_wherever_it_is_made(tmp_path):
    assert bits(load(tmp_path / "a")) == bits(load(tmp_path / "b"))


@pytest.mark.parametrize(
    "change",
    [{"seed": 2}, {"steps": 2}, {"held_out": 6}, {"size": {"feed_forward": 64}}],
    ids=lambda change: next(iter(change)),
)
def test_other_inputs_are_other_cache_entries(change, tmp_path):
    load(tmp_path)
    assert "made and kept" in load(tmp_path, **change).notes[0]
    assert len(list((tmp_path / "warm_start").iterdir())) == 2


def test_a_broken_cache_entry_is_made_again_and_said_so(tmp_path):
    first = load(tmp_path)
    file = next((tmp_path / "warm_start").iterdir())
    file.write_bytes(file.read_bytes()[:100])
    again = load(tmp_path)
    assert "could not be read" in again.notes[0]
    assert bits(again) == bits(first)
    assert "taken from" in load(tmp_path).notes[0]


def test_a_warm_start_can_be_stopped_and_leaves_nothing(tmp_path):
    answers = iter([False, True])
    with pytest.raises(WarmStartStopped, match="stopped at step 1 of 3"):
        load(tmp_path, should_stop=lambda: next(answers))
    assert not (tmp_path / "warm_start").exists()


def test_no_steps_leave_random_weights_and_say_so(tmp_path):
    config = ModelConfig(warm_start=WarmStartConfig(steps=0, worked_only_steps=0))
    task = ReasoningGymTask(TASK, seed=1, held_out_items=5)
    loaded = load_model(config, task=task, task_config=TASK, seed=1, cache_dir=tmp_path)
    assert loaded.notes == ("no warm start: the weights are random",)


def test_a_few_steps_lower_the_loss(tmp_path):
    ids = torch.tensor([encode_prompt(load(tmp_path).tokenizer, "State the final answer to the following arithmetic "
                                      "problem: 1 + 2 + 3 =").tolist()])  # fmt: skip
    think = load(tmp_path).tokenizer.convert_tokens_to_ids("<think>")
    short, longer = (
        torch.softmax(load(tmp_path, steps=steps).model(input_ids=ids).logits[0, -1], -1)[think] for steps in (2, 12)
    )
    assert longer > short


@pytest.mark.parametrize(("step", "expected"), [(0, 0.05), (9, 0.5 * 0.9993), (20, 0.9967), (260, 0.55), (519, 0.1)])
def test_the_rate_warms_up_and_falls_to_a_tenth_by_a_cosine(step, expected):
    # .1 + .9 * (1 + cos(pi * step / 520)) / 2, times (step + 1) / 20 in the first 20 steps
    assert rate_factor(step, 520) == pytest.approx(expected, rel=1e-3)


@pytest.fixture
def folder(tmp_path):
    make_model("untied, shared keys").save_pretrained(tmp_path / "model")
    make_tokenizer().save_pretrained(tmp_path / "model")
    return tmp_path / "model"


def test_a_folder_is_loaded_in_float32_with_its_tokenizer(folder, tmp_path):
    loaded = load(tmp_path, source=str(folder))
    assert bits(loaded) == flatten(make_model("untied, shared keys")).tobytes()
    assert loaded.tokenizer.encode("1+2") == make_tokenizer().encode("1+2")
    assert not loaded.model.training


def test_padding_falls_back_to_the_end_token(folder, tmp_path):
    tokenizer = make_tokenizer()
    tokenizer.pad_token = None
    tokenizer.save_pretrained(folder)
    loaded = load(tmp_path, source=str(folder))
    assert loaded.tokenizer.pad_token_id == loaded.tokenizer.eos_token_id == 2
    assert "the end token stands in" in loaded.notes[1]


def _no_end_token(folder):
    tokenizer = make_tokenizer()
    tokenizer.eos_token = None
    tokenizer.save_pretrained(folder)


def _weights_missing(folder):
    weights = load_file(folder / "model.safetensors")
    del weights["model.norm.weight"]
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})


def _unknown_architecture(folder):
    config = json.loads((folder / "config.json").read_text()) | {"model_type": "perpetuum"}
    (folder / "config.json").write_text(json.dumps(config))


def _weight(folder, value):
    weights = load_file(folder / "model.safetensors")
    weights["model.layers.1.mlp.up_proj.weight"][2, 3] = value
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})


@pytest.mark.parametrize(
    ("damage", "match"),
    [
        (lambda folder: (folder / "config.json").unlink(), "no config.json there; allowed: builtin:tiny, builtin:s"),
        (lambda folder: (folder / "model.safetensors").write_bytes(b"\x10\0\0"), "cut off or no safetensors"),
        (lambda folder: (folder / "model.safetensors").unlink(), "no weights there"),
        (lambda folder: (folder / "config.json").write_text("{"), "config.json cannot be read"),
        (_unknown_architecture, "model_type 'perpetuum' is none of the [0-9]+ that transformers"),
        (_weights_missing, "1 weight of the model in no file, such as model.norm.weight; allowed"),
        (_no_end_token, "has no end token"),
        (lambda folder: _weight(folder, math.nan), r"weight model\.layers\.1\.mlp\.up_proj\.weight holds NaN; allowed"),
        (lambda folder: _weight(folder, -math.inf), "up_proj.weight holds an infinite number; allowed"),
    ],
    ids=[
        "no config",
        "truncated",
        "no weights",
        "bad json",
        "unknown architecture",
        "missing weight",
        "no end token",
        "NaN",
        "infinity",
    ],
)
def test_a_folder_that_cannot_be_used_is_refused_with_its_name(damage, match, folder, tmp_path):
    damage(folder)
    with pytest.raises(ValueError, match=match) as error:
        load(tmp_path, source=str(folder))
    assert str(folder) in str(error.value)


def test_a_chat_template_wraps_the_question_and_its_end_tokens_count():
    tokenizer, model = make_tokenizer(), make_model()
    assert encode_prompt(tokenizer, "1+2").tolist() == tokenizer.encode("1+2")
    tokenizer.chat_template = "{{ '=' }}{{ messages[0]['content'] }}{% if add_generation_prompt %}{{ '+' }}{% endif %}"
    assert tokenizer.decode(encode_prompt(tokenizer, "1+2"), skip_special_tokens=True) == "=1+2+"
    assert end_tokens(model, tokenizer) == {2}
    model.generation_config.eos_token_id = [2, 5]
    assert end_tokens(model, tokenizer) == {2, 5}
