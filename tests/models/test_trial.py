"""What a trial of a model folder tells: the sentences of a launch, which are those of the workers."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import (
    BertConfig,
    BertForMaskedLM,
    BertLMHeadModel,
    BloomConfig,
    BloomForCausalLM,
    GPT2Config,
    GPT2LMHeadModel,
    MambaConfig,
    MambaForCausalLM,
    PretrainedConfig,
    PreTrainedModel,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen3MoeConfig,
    Qwen3MoeForCausalLM,
    T5Config,
    T5ForConditionalGeneration,
)

from engine.learning.meta_model import check_causal, declares_causal
from engine.learning.model_folder import load_folder
from engine.learning.trial import told
from engine.models.trials import Question
from tests.tiny_models import CHAT, ROWS, byte_tokenizer, tiny_folder, tiny_model

BERT: dict[str, Any] = {
    "vocab_size": ROWS,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 32,
    "initializer_range": 0.2,
}
WEIGHTS = "model.safetensors"


def question(folder: Path, **changes: Any) -> Question:
    asked: dict[str, Any] = {"template": None, "recompute": False, "response_tokens": 16, "lora": None}
    return Question(folder=str(folder), **(asked | changes))


def written(folder: Path, model: PreTrainedModel) -> Path:
    model.save_pretrained(folder)
    byte_tokenizer().save_pretrained(folder)
    return folder


def config_says(**changes: Any) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        document = json.loads((folder / "config.json").read_text(encoding="utf-8")) | changes
        (folder / "config.json").write_text(json.dumps(document), encoding="utf-8")

    return change


def weights_with(**changes: torch.Tensor | None) -> Callable[[Path], None]:
    """Weights by name with __ for a point; None takes one away."""

    def change(folder: Path) -> None:
        weights = load_file(folder / WEIGHTS)
        for name, tensor in changes.items():
            weights.pop(name.replace("__", "."), None)
            if tensor is not None:
                weights[name.replace("__", ".")] = tensor
        save_file(weights, folder / WEIGHTS, metadata={"format": "pt"})

    return change


def model_of(model: Callable[[], PreTrainedModel]) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        written(folder, model())

    return change


def bert(**changes: Any) -> PretrainedConfig:
    return BertConfig(**(BERT | changes))


def mamba() -> PreTrainedModel:
    return MambaForCausalLM(MambaConfig(vocab_size=ROWS, hidden_size=32, num_hidden_layers=2, state_size=4))


def t5() -> PreTrainedModel:
    return T5ForConditionalGeneration(
        T5Config(vocab_size=ROWS, d_model=32, d_kv=16, d_ff=32, num_layers=1, num_heads=2)
    )


def without_end(folder: Path) -> None:
    byte_tokenizer(eos_token=None).save_pretrained(folder)


def with_full_embedding(folder: Path) -> None:
    """A row for each of the tokenizer's own ids; its class, chosen by the model's type, adds one more."""
    config = Qwen2Config(**(BERT | {"vocab_size": 261}), num_key_value_heads=2, max_position_embeddings=64)
    written(folder, Qwen2ForCausalLM(config))


FOLDERS: dict[str, tuple[Callable[[Path], None], str]] = {
    "an encoder": (
        model_of(lambda: BertForMaskedLM(bert())),
        "it is an encoder, whose tokens see what comes after them (BertForMaskedLM; is_decoder is false in co",
    ),
    "a decoder made to see all": (
        config_says(model_type="gemma2", use_bidirectional_attention=True, architectures=None),
        "it is an encoder, whose tokens see what comes after them (no architecture named; use_bidirectional_attention",
    ),
    "encoder and decoder": (model_of(t5), "model_type 't5' is an encoder with a decoder; allowed: a causal language"),
    "states": (model_of(mamba), "model 'mamba' has layers of type linear_attention; allowed: full_attention"),
    "no language model": (config_says(model_type="vit"), "model_type 'vit' has no causal language model in"),
    "an unknown type": (config_says(model_type="foonet"), "model_type 'foonet' is none of the "),
    "remote code": (
        config_says(model_type="foonet", auto_map={"AutoConfig": "x.Y"}),
        "model_type 'foonet' needs code that comes with the folder (auto_map in config.json), which is never run",
    ),
    "a value that cannot be": (config_says(hidden_act="gelu_of_old"), "no model can be made of its config.json"),
    "more layers": (
        config_says(num_hidden_layers=1, layer_types=None),
        "the files hold 2 layers and config.json says 1; 11 weights without a place in the model, such as model.l",
    ),
    "fewer layers": (
        config_says(num_hidden_layers=3, layer_types=None),
        "the files hold 2 layers and config.json says 3; 11 weights of the model in no file, such as model.l",
    ),
    "other numbers": (
        config_says(intermediate_size=96),
        "model.layers.0.mlp.down_proj.weight is [32, 48] in the files and [32, 96] by config.json, and so 5 more",
    ),
    "a huge configuration": (
        config_says(hidden_size=16_384, num_hidden_layers=80, layer_types=None),
        "the files hold 2 layers and config.json says 80; model.embed_tokens.weight is [272, 32] in the files and",
    ),
    "one of another shape": (
        weights_with(model__norm__weight=torch.ones(16)),
        "model.norm.weight is [16] in the files and [32] by config.json; allowed: config.json and weights of the",
    ),
    "left over": (
        weights_with(v_head__weight=torch.ones(1, 32)),
        "1 weight without a place in the model, such as v_head.weight; allowed",
    ),
    "missing": (weights_with(model__norm__weight=None), "1 weight of the model in no file, such as model.norm.weight"),
    "no end token": (
        without_end,
        "its tokenizer has no end token, so no answer could ever end; allowed: one whose",
    ),
    "an id too many": (
        with_full_embedding,
        "its tokenizer makes ids up to 261, its embedding has rows 0 to 260: they do not belong together",
    ),
}


@pytest.mark.parametrize(("damage", "sentence"), FOLDERS.values(), ids=FOLDERS)
def test_a_folder_is_refused_at_launch_and_in_a_worker_in_the_same_words(damage, sentence, tmp_path: Path) -> None:
    folder = tiny_folder(tmp_path / "model")
    assert told(question(folder)) == ""
    damage(folder)
    said = told(question(folder))
    assert said.startswith(f"model.source {folder}: ")
    assert sentence in said
    assert "\n" not in said
    with pytest.raises(ValueError) as worker:  # noqa: PT011 - the message is compared below
        load_folder(folder, dtype=torch.float32)
    assert " ".join(str(worker.value).split()) == said


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(weights_with(lm_head__weight=torch.zeros(ROWS, 32)), id="a tied head that is in the file too"),
        pytest.param(
            weights_with(model__layers__0__self_attn__rotary_emb__inv_freq=torch.zeros(16)), id="a computed buffer"
        ),
        pytest.param(config_says(auto_map={"AutoConfig": "x.Y"}), id="remote code beside a type that is known"),
    ],
)
def test_what_transformers_leaves_out_for_good_reason_is_no_fault(change, tmp_path: Path) -> None:
    folder = tiny_folder(tmp_path / "model")
    change(folder)
    assert told(question(folder)) == ""


def moe() -> PreTrainedModel:
    return Qwen3MoeForCausalLM(
        Qwen3MoeConfig(
            **(BERT | {"head_dim": 16}),
            num_key_value_heads=2,
            moe_intermediate_size=16,
            num_experts=4,
            num_experts_per_tok=2,
            max_position_embeddings=64,
        )
    )


def gpt2() -> PreTrainedModel:
    return GPT2LMHeadModel(GPT2Config(vocab_size=ROWS, n_embd=32, n_layer=2, n_head=2, n_positions=64))


@pytest.mark.parametrize(
    "model",
    [
        pytest.param(moe, id="experts that are stored one by one and computed as one"),
        pytest.param(gpt2, id="another family"),
        pytest.param(lambda: BertLMHeadModel(bert(is_decoder=True)), id="an encoder's family as a decoder"),
        pytest.param(lambda: tiny_model("llama", tied=False), id="untied"),
    ],
)
def test_other_families_are_taken_and_a_weight_too_few_is_still_seen(model, tmp_path: Path) -> None:
    folder = written(tmp_path / "model", model())
    assert told(question(folder)) == ""
    name = next(name for name in load_file(folder / WEIGHTS) if "norm" in name.casefold() or "ln_" in name)
    weights_with(**{name.replace(".", "__"): None})(folder)
    assert f"of the model in no file, such as {name}" in told(question(folder))


def test_weights_without_a_header_are_compared_too(tmp_path: Path) -> None:
    folder = tiny_folder(tmp_path / "model")
    weights = load_file(folder / WEIGHTS)
    (folder / WEIGHTS).unlink()
    torch.save(weights, folder / "pytorch_model.bin")
    assert told(question(folder)) == ""
    torch.save(weights | {"model.norm.weight": torch.ones(16)}, folder / "pytorch_model.bin")
    assert "model.norm.weight is [16] in the files and [32] by config.json" in told(question(folder))
    (folder / "pytorch_model.bin").write_bytes(b"no pickle")
    assert "pytorch_model.bin cannot be read" in told(question(folder))


@pytest.mark.parametrize(
    ("template", "sentence"),
    [
        ("{{ raise_exception('only system messages') }}", "its chat template cannot be used (only system messages)"),
        ("{% for m in messages %}", "its chat template cannot be used (Unexpected end of template."),
        ("{{ '' }}", "its chat template leaves the question out"),
        ("hello", "its chat template leaves the question out"),
    ],
    ids=["raises", "syntax", "renders nothing", "without the question"],
)
def test_a_chat_template_that_asks_nothing_is_refused_unless_the_job_does_without(
    template: str, sentence: str, tmp_path: Path
) -> None:
    folder = tiny_folder(tmp_path / "model")
    (folder / "chat_template.jinja").write_text(template, encoding="utf-8")
    said = told(question(folder))
    assert said.startswith("model.source")
    assert sentence in said
    assert "allowed: model.prompt_template plain, or text with {prompt}" in said
    assert told(question(folder, template="plain")) == told(question(folder, template="Q: {prompt} A:")) == ""


def test_a_chat_template_is_asked_for_only_where_there_is_one(tmp_path: Path) -> None:
    folder = tiny_folder(tmp_path / "model")
    assert (folder / "chat_template.jinja").read_text(encoding="utf-8") == CHAT
    assert told(question(folder, template="chat")) == ""
    (folder / "chat_template.jinja").unlink()
    assert told(question(folder, template="chat")).startswith(
        "model.prompt_template chat: the model's tokenizer has no"
    )


def test_positions_must_hold_a_prompt_beside_the_longest_response(tmp_path: Path) -> None:
    folder = tiny_folder(tmp_path / "model", max_position_embeddings=64)
    assert told(question(folder, response_tokens=64)) == (
        "sampling.max_response_tokens 64 leaves no room for a prompt in a model of 64 positions; allowed: up to 63"
    )
    # one token each for <|im_start|> (twice) and <|im_end|>, and one a byte: user\n, 1, \n, assistant\n
    assert 2 + 1 + 5 + 1 + 1 + 10 == 20
    assert told(question(folder, response_tokens=44)) == ""
    assert told(question(folder, response_tokens=45)) == (
        "sampling.max_response_tokens 45 leaves 19 tokens for a prompt, and the shortest has 20 with what the model's "
        "tokenizer puts around it; allowed: up to 44"
    )


@pytest.mark.parametrize(
    ("targets", "sentence"),
    [
        ("all-linear", ""),
        (["q_proj", "v_proj"], ""),
        (
            ["query"],
            "model.lora.targets: 'query' names no linear layer of the model; allowed: all-linear, or of down_pr",
        ),
        (["q_proj", "vproj"], "model.lora.targets: 'vproj' names no linear layer of the model; allowed"),
        (["mlp"], "model.lora.targets: 'mlp' names no linear layer of the model; allowed"),
    ],
)
def test_each_target_of_adapters_must_name_a_layer(targets, sentence: str, tmp_path: Path) -> None:
    pytest.importorskip("peft")
    said = told(question(tiny_folder(tmp_path / "model"), lora={"r": 2, "targets": targets}))
    assert said.startswith(sentence)
    assert bool(said) == bool(sentence)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_loaded_model_that_sees_ahead_is_told_from_one_that_does_not(dtype: torch.dtype) -> None:
    bloom = BloomForCausalLM(BloomConfig(vocab_size=ROWS, hidden_size=32, n_layer=2, n_head=2)).to(dtype).eval()
    assert not declares_causal(bloom)
    check_causal(bloom, "model.source x")
    check_causal(BertLMHeadModel(bert(is_decoder=True)).to(dtype).eval(), "model.source x")
    assert declares_causal(tiny_model())
    with pytest.raises(ValueError, match=r"^model\.source x: what it computes for a token depends on the tokens after"):
        check_causal(BertLMHeadModel(bert()).to(dtype).eval(), "model.source x")
