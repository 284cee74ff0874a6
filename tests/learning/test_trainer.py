from __future__ import annotations

import copy
import dataclasses

import numpy as np
import pytest
import torch

from engine.learning import micro_batches
from engine.learning.stats import merge
from engine.learning.trainer import Gradient
from engine.learning.weights import flatten, load_flat
from tests.learning.builders import (
    MODEL_KINDS,
    finish,
    make_groups,
    make_model,
    make_request,
    make_rollouter,
    make_trainer,
    relative_l2,
)


def chunk_gradient(groups, *, chunk: int = 100, **settings) -> np.ndarray:
    trainer = make_trainer(**settings)
    for begin in range(0, len(groups), chunk):
        trainer.accumulate(groups[begin : begin + chunk])
    return trainer.gradient().vector


@pytest.mark.parametrize("kind", MODEL_KINDS)
@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_right_after_a_publish_the_rollouters_log_probabilities_are_the_trainers(kind, temperature):
    trainer = make_trainer(make_model(kind), temperature=temperature)
    rollouter = make_rollouter(make_model(kind, seed=5), temperature=temperature)
    for _ in range(2):
        trainer.accumulate(make_groups(4, version=trainer.version))
        trainer.finish_step()
        rollouter.load(trainer.vector(), trainer.version)
        rollouter.add(make_request(0, position=trainer.version))
        group = finish(rollouter)[0]
        stats = trainer.accumulate([group.with_rewards([0, 1, 0, 1])])
        assert stats.over_lags.tokens == group.response_tokens
        # k3 is d^2 / 2 for a difference d: a mean below 5e-11 is a mean square difference below 1e-5
        assert stats.over_lags.mismatch_kl < 5e-11
        trainer.discard()
        model = make_model(kind)
        load_flat(model, trainer.vector())
        for response in group.responses:
            ids = torch.from_numpy(np.concatenate([group.prompt_tokens, response.tokens]).astype(np.int64))[None]
            logprobs = torch.log_softmax(model(input_ids=ids).logits[0] / temperature, -1)
            first = len(group.prompt_tokens)
            expected = logprobs[first - 1 : -1].gather(1, ids[0, first:, None])[:, 0].detach().numpy()
            assert np.abs(response.logprobs - expected).max() <= 1e-5


@pytest.mark.parametrize("chunk", [1, 3, 5])
@pytest.mark.parametrize("kind", MODEL_KINDS)
def test_the_gradient_by_chunks_is_the_gradient_in_one_batch(chunk, kind):
    groups = make_groups(9)
    whole = chunk_gradient(groups, model=make_model(kind))
    assert relative_l2(chunk_gradient(groups, model=make_model(kind), chunk=chunk), whole) <= 1e-6


def test_the_gradient_does_not_depend_on_how_micro_batches_are_cut(monkeypatch):
    groups = make_groups(9)
    whole = chunk_gradient(groups)
    monkeypatch.setattr(micro_batches, "MICRO_BATCH_TOKENS", 30)
    assert relative_l2(chunk_gradient(groups), whole) <= 1e-6


def test_the_gradient_is_that_of_the_loss_written_out_without_batches():
    groups = make_groups(3, seed=4)
    model = make_model()
    total = torch.zeros((), dtype=torch.float64)
    for group in groups:
        rewards = np.array([response.reward for response in group.responses])
        if rewards.std() == 0:
            continue
        for response, reward in zip(group.responses, rewards, strict=True):
            ids = torch.from_numpy(np.concatenate([group.prompt_tokens, response.tokens]).astype(np.int64))
            logprobs = torch.log_softmax(model(input_ids=ids[None]).logits[0], -1)[:-1].gather(1, ids[1:, None])[:, 0]
            logprobs = logprobs[len(group.prompt_tokens) - 1 :]
            advantage = (reward - rewards.mean()) / (rewards.std(ddof=1) + 1e-4)
            weights = (logprobs.detach() - torch.from_numpy(response.logprobs)).exp().clamp(max=2.0)
            total = total - (weights * (logprobs - logprobs.detach()).exp() * advantage).sum()
    total.backward()
    total = total.detach()
    expected = np.concatenate([p.grad.numpy().reshape(-1) for p in model.parameters()])
    trainer = make_trainer()
    stats = trainer.accumulate(groups)
    assert relative_l2(trainer.gradient().vector, expected) <= 1e-5
    assert stats.loss_sum == pytest.approx(float(total), rel=1e-5)


def test_replicas_that_exchange_gradients_end_bitwise_equal_and_equal_to_one_replica():
    replicas, single = [make_trainer(), make_trainer()], make_trainer()
    for version in range(5):
        groups = make_groups(8, seed=version, version=version)
        stats = [replicas[0].accumulate(groups[:3]), replicas[1].accumulate(groups[3:])]
        whole = single.accumulate(groups)
        parts = [replica.gradient() for replica in replicas]
        results = [replica.finish_step(parts) for replica in replicas]
        alone = single.finish_step()
        assert results[0] == results[1]
        assert (results[0].version, results[0].tokens) == (alone.version, alone.tokens) == (version + 1, whole.tokens)
        assert merge(stats).loss_sum == pytest.approx(whole.loss_sum, rel=1e-5)
    vectors = [replica.vector() for replica in replicas]
    assert vectors[0].tobytes() == vectors[1].tobytes()
    assert relative_l2(vectors[0], single.vector()) <= 1e-6
    assert relative_l2(vectors[0], flatten(make_model())) > 1e-2


def test_a_replica_without_groups_takes_part_with_zeros():
    busy, empty, single = make_trainer(), make_trainer(), make_trainer()
    busy.accumulate(make_groups(4))
    parts = [busy.gradient(), empty.gradient()]
    assert (parts[1].tokens, float(np.abs(parts[1].vector).max())) == (0, 0.0)
    empty.finish_step(parts)
    single.accumulate(make_groups(4))
    single.finish_step()
    assert relative_l2(empty.vector(), single.vector()) <= 1e-6


def test_groups_without_signal_are_counted_and_carry_nothing():
    trainer = make_trainer()
    before = trainer.vector()
    stats = trainer.accumulate([*make_groups(2, rewards=[1, 1, 1, 1]), *make_groups(1, rewards=[0, 0, 0, 0])])
    assert (stats.groups, stats.no_signal, stats.tokens, stats.responses) == (3, 3, 0, 12)
    assert stats.response_tokens > 0
    assert (stats.reward_mean, stats.loss, stats.over_lags.groups) == (pytest.approx(2 / 3), None, 3)
    step = trainer.finish_step()
    assert (step.version, step.grad_norm, step.tokens) == (1, None, 0)
    assert trainer.vector().tobytes() == before.tobytes()


def test_groups_with_and_without_signal_train_as_the_former_alone():
    with_signal = make_groups(3, rewards=[1, 0, 0, 1])
    mixed = [*with_signal, *make_groups(3, seed=1, rewards=[0, 0, 0, 0])]
    assert chunk_gradient(mixed).tobytes() == chunk_gradient(with_signal).tobytes()


def test_the_kl_term_pulls_on_groups_without_signal_too():
    trainer = make_trainer(kl_coef=0.1)
    trainer.accumulate(make_groups(3))
    trainer.finish_step()
    stats = trainer.accumulate(make_groups(2, version=1, rewards=[1, 1, 1, 1]))
    assert (stats.no_signal, stats.tokens) == (2, stats.response_tokens)
    assert stats.reference_kl_sum > 0
    assert stats.loss_sum == pytest.approx(0.1 * stats.reference_kl_sum, rel=1e-4)
    assert np.linalg.norm(trainer.gradient().vector) > 0


def test_the_learning_signal_moves_the_policy_toward_the_rewarded_answer():
    trainer, rollouter = make_trainer(learning_rate=0.05), make_rollouter(group_size=4)
    rollouter.add(make_request(0))
    group = finish(rollouter)[0].with_rewards([1, 0, 0, 0])

    def surprise() -> list[float]:
        model = make_model()
        load_flat(model, trainer.vector())
        prompt = group.prompt_tokens.tolist()
        with torch.inference_mode():
            return [
                float(
                    torch.log_softmax(model(input_ids=torch.tensor([[*prompt, *r.tokens.tolist()]])).logits[0], -1)[
                        torch.arange(len(prompt) - 1, len(prompt) - 1 + len(r.tokens)), r.tokens.tolist()
                    ].mean()
                )
                for r in group.responses
            ]

    before = surprise()
    for _ in range(3):
        trainer.accumulate([group])
        trainer.finish_step()
    after = surprise()
    assert after[0] > before[0]
    assert after[0] - before[0] > max(new - old for new, old in zip(after[1:], before[1:], strict=True))


def test_the_gradient_is_divided_once_and_clipped_and_the_rate_follows_the_schedule():
    trainer = make_trainer(lr_warmup_steps=4, learning_rate=0.4, max_grad_norm=1e-3)
    trainer.accumulate(make_groups(4))
    gradient = trainer.gradient()
    step = trainer.finish_step()
    assert step.grad_norm == pytest.approx(float(np.linalg.norm(gradient.vector)) / gradient.tokens, rel=1e-5)
    assert step.learning_rate == pytest.approx(0.1)
    assert trainer.finish_step().learning_rate == pytest.approx(0.2)


def test_discard_forgets_the_step_under_way():
    trainer = make_trainer()
    trainer.accumulate(make_groups(2))
    trainer.discard()
    assert (trainer.gradient().tokens, float(np.abs(trainer.gradient().vector).max())) == (0, 0.0)


def test_statistics_are_kept_by_lag():
    trainer = make_trainer(version=3)
    old, new = make_groups(2, version=1, seed=1), make_groups(3, version=3, seed=2)
    stats = trainer.accumulate([*old, *new])
    assert {lag: part.groups for lag, part in stats.by_lag.items()} == {2: 2, 0: 3}
    for lag, groups in ((2, old), (0, new)):
        alone = make_trainer(version=3).accumulate(groups).by_lag[lag]
        for field in dataclasses.fields(alone):
            actual = getattr(stats.by_lag[lag], field.name)
            assert actual == pytest.approx(getattr(alone, field.name), rel=1e-4), field.name
    assert stats.lag_max == 2
    assert stats.over_lags.tokens == stats.tokens
    assert 0 < stats.over_lags.capped < stats.tokens
    assert stats.over_lags.clipped == 0
    assert 0 < stats.over_lags.effective_sample_share < 1


def test_entropy_is_that_of_the_policy_at_the_sampling_temperature():
    model = make_model()
    with torch.no_grad():
        model.model.norm.weight.zero_()  # all logits 0: a uniform distribution over 16 tokens
    stats = make_trainer(model).accumulate(make_groups(1, rewards=[0, 1, 0, 1]))
    assert stats.entropy == pytest.approx(np.log(16), rel=1e-5)


@pytest.mark.parametrize(
    ("groups", "match"),
    [
        (make_groups(1, version=2), "group 0 has version 2, the trainer only 0"),
        ([make_groups(1)[0].with_rewards([0, 1, float("nan"), 0])], "every response needs a finite one"),
        (
            [dataclasses.replace(g, responses=tuple(dataclasses.replace(r, reward=None) for r in g.responses))
             for g in make_groups(1)],
            "group 0 has rewards .*None",
        ),
    ],
    ids=["from the future", "nan", "unscored"],
)  # fmt: skip
def test_groups_that_cannot_be_trained_on_are_refused_before_anything_is_added(groups, match):
    trainer = make_trainer()
    with pytest.raises(ValueError, match=match):
        trainer.accumulate([*make_groups(1, rewards=[0, 1, 0, 1]), *groups])
    assert trainer.gradient().tokens == 0
    assert float(np.abs(trainer.gradient().vector).max()) == 0


def test_a_gradient_that_is_not_finite_stops_the_step():
    trainer = make_trainer()
    trainer.accumulate(make_groups(2))
    broken = Gradient(vector=np.full_like(trainer.vector(), np.nan), tokens=5)
    before = trainer.vector().copy()
    with pytest.raises(FloatingPointError, match=r"step 1 has the norm nan, .*learning_rate.*largest rewards"):
        trainer.finish_step([broken])
    assert np.array_equal(trainer.vector(), before)


def test_two_runs_from_one_seed_are_equal():
    def run() -> bytes:
        trainer, rollouter = make_trainer(), make_rollouter()
        for step in range(3):
            for index in range(4):
                rollouter.add(make_request(10 * step + index))
            groups = finish(rollouter)
            trainer.accumulate(
                [groups[key].with_rewards([len(r.tokens) % 2 for r in groups[key].responses]) for key in sorted(groups)]
            )
            trainer.finish_step()
            rollouter.load(trainer.vector(), trainer.version)
        return trainer.vector().tobytes()

    assert run() == run()


def test_a_deep_copied_model_shares_nothing_with_the_trainer():
    model = make_model()
    other = copy.deepcopy(model)
    trainer = make_trainer(model)
    trainer.accumulate(make_groups(2))
    trainer.finish_step()
    assert flatten(other).tobytes() == flatten(make_model()).tobytes() != trainer.vector().tobytes()
