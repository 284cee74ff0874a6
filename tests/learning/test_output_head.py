"""Logits in parts, layers computed again: the same gradient as all at once, and models that cannot are found out."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from transformers import GraniteConfig, GraniteForCausalLM, PreTrainedModel

from engine.learning import output_head
from engine.learning.output_head import OutputHead
from engine.learning.trained_pass import check_checkpointing, trained_pass
from tests.learning.builders import MODEL_KINDS, make_groups, make_model, make_trainer, relative_l2


def gradient(model: PreTrainedModel, **settings) -> tuple[np.ndarray, float, float, float]:
    trainer = make_trainer(model, **settings)
    stats = trainer.accumulate(make_groups(5))
    return trainer.gradient().vector, stats.loss_sum, stats.entropy_sum, stats.reference_kl_sum


@pytest.mark.parametrize("kl_coef", [0.0, 0.1])
@pytest.mark.parametrize("kind", MODEL_KINDS)
def test_logits_in_parts_give_the_gradient_of_all_at_once(kind: str, kl_coef: float, monkeypatch) -> None:
    whole = gradient(make_model(kind), kl_coef=kl_coef)
    monkeypatch.setattr(output_head, "LOGITS_AT_ONCE", 7 * 16)  # seven tokens of a vocabulary of 16
    assert len(list(OutputHead(make_model(kind)).parts(50))) == 8
    parts = gradient(make_model(kind), kl_coef=kl_coef)
    assert relative_l2(parts[0], whole[0]) < 1e-6
    assert parts[1:] == pytest.approx(whole[1:], rel=1e-5)


@pytest.mark.parametrize("kind", MODEL_KINDS)
def test_no_more_than_one_part_of_the_logits_is_alive(kind: str, monkeypatch) -> None:
    monkeypatch.setattr(output_head, "LOGITS_AT_ONCE", 7 * 16)
    sizes = []
    whole = OutputHead.logits
    monkeypatch.setattr(OutputHead, "logits", lambda *args: sizes.append(len(args[2])) or whole(*args))
    gradient(make_model(kind))
    assert max(sizes) == 7


@pytest.mark.parametrize("kind", MODEL_KINDS)
def test_every_model_of_these_kinds_takes_its_head_apart(kind: str) -> None:
    assert OutputHead(make_model(kind)).apart


def scaled() -> PreTrainedModel:
    """A model that divides its logits after its last layer."""
    torch.manual_seed(0)
    sizes = {"hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 1, "num_attention_heads": 2}
    config = GraniteConfig(
        vocab_size=16, **sizes, logits_scaling=3.0, initializer_range=0.3, max_position_embeddings=64
    )
    return GraniteForCausalLM(config).eval()


def test_a_model_that_scales_its_logits_is_found_out_and_trained_on_whole_ones() -> None:
    model = scaled()
    assert not OutputHead(model).apart
    trainer = make_trainer(model)
    group = make_groups(1, rewards=[1, 0, 0, 0])[0]
    trainer.accumulate([group])
    # the same by hand: gradient of -sum A w log pi over the group's tokens, w the capped importance weight
    other = scaled()
    rewards = np.array([1.0, 0, 0, 0])
    advantages = (rewards - rewards.mean()) / (rewards.std(ddof=1) + 1e-4)
    for response, advantage in zip(group.responses, advantages, strict=True):
        ids = torch.from_numpy(np.concatenate([group.prompt_tokens, response.tokens]).astype(np.int64))[None]
        first = len(group.prompt_tokens)
        logprobs = torch.log_softmax(other(input_ids=ids).logits[0], -1)[first - 1 : -1]
        own = logprobs.gather(1, ids[0, first:, None])[:, 0]
        weights = (own.detach() - torch.from_numpy(response.logprobs)).exp().clamp(max=2.0)
        (-(own - own.detach()).exp() * weights * advantage).sum().backward()
    expected = np.concatenate([p.grad.numpy().ravel() for p in other.parameters()])
    assert relative_l2(trainer.gradient().vector, expected) < 1e-5


@pytest.mark.parametrize("kind", MODEL_KINDS)
def test_layers_that_are_computed_again_give_the_same_gradient(kind: str) -> None:
    kept = gradient(make_model(kind))
    again = gradient(make_model(kind), recompute=True)
    assert relative_l2(again[0], kept[0]) < 1e-6


def test_layers_are_computed_again_only_where_that_was_asked_for() -> None:
    calls = {}
    for recompute in (False, True):
        model = make_model()
        seen = calls[recompute] = []
        model.model.layers[0].mlp.register_forward_pre_hook(lambda *_, seen=seen: seen.append(1))
        trainer = make_trainer(model, recompute=recompute)
        trainer.accumulate(make_groups(1, rewards=[1, 0, 0, 0]))
        assert not model.training
        assert not any(module.training for module in model.modules())
    # a forward pass each (the trial of the head makes two more), and one more while going back
    assert len(calls[True]) == len(calls[False]) + 1


def test_a_pass_leaves_the_model_as_it_was_when_it_fails() -> None:
    model = make_model("learned positions")
    with pytest.raises(RuntimeError, match="half-way"), trained_pass(model, recompute=True):
        raise RuntimeError("half-way")
    assert not model.is_gradient_checkpointing
    assert not any(module.training for module in model.modules())


def test_dropout_of_a_layers_own_is_off_while_it_is_computed_again() -> None:
    model = make_model()
    model.model.layers[0].dropout = 0.1  # as layers of some models have it
    check_checkpointing(model)
    assert model.model.layers[0].dropout == 0.0


def test_a_model_without_such_layers_is_refused() -> None:
    model = make_model()
    model.model.layers = torch.nn.ModuleList()
    with pytest.raises(ValueError, match=r"gradient_checkpointing true: a model of type 'llama' cannot"):
        check_checkpointing(model)
