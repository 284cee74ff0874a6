"""Each loss against its formula written out, response by response; and that placement changes nothing."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import torch

from engine.config import JobError, parse_job
from engine.learning.sequences import FinishedGroup
from engine.learning.weights import flatten, load_flat
from tests.learning.builders import make_groups, make_model, make_trainer, relative_l2

LONGEST = 16
"""Response tokens allowed; the builders' responses have up to 14."""

PROMPTS = 6
"""Of a step."""

LOSSES: dict[str, dict[str, Any]] = {
    "grpo": {"loss": "grpo"},
    "dapo": {"loss": "dapo"},
    "dapo, overlong": {"loss": "dapo", "overlong_tokens": 6},
    "dr_grpo": {"loss": "dr_grpo"},
    "dr_grpo with a KL term": {"loss": "dr_grpo", "kl_coef": 0.1},
}


def settings(name: str) -> dict[str, Any]:
    return LOSSES[name] | {"prompts_per_step": PROMPTS, "max_response_tokens": LONGEST}


def make_step(seed: int = 3) -> list[FinishedGroup]:
    """Six groups; the last has no signal unless its lengths give it one."""
    return [*make_groups(PROMPTS - 1, seed=seed), *[_moved(make_groups(1, seed=99, rewards=[1, 1, 1, 1])[0])]]


def _moved(group: FinishedGroup) -> FinishedGroup:
    return dataclasses.replace(group, group_id=PROMPTS - 1, position=PROMPTS - 1)


# -- the formulas, as their papers have them --------------------------------------------------------------------------


def logprobs_of(model: torch.nn.Module, group: FinishedGroup, index: int) -> torch.Tensor:
    response = group.responses[index]
    ids = torch.from_numpy(np.concatenate([group.prompt_tokens, response.tokens]).astype(np.int64))
    logits = model(input_ids=ids[None]).logits[0]
    return torch.log_softmax(logits, -1)[:-1].gather(1, ids[1:, None])[len(group.prompt_tokens) - 1 :, 0]


def token_losses(logprobs: torch.Tensor, recorded: np.ndarray, advantage: float) -> torch.Tensor:
    """-w min(r A, clip(r) A), at r = 1 and with w = min(pi / pi_behaviour, 2)."""
    w = (logprobs.detach() - torch.from_numpy(recorded)).exp().clamp(max=2.0)
    ratio = (logprobs - logprobs.detach()).exp()
    return -w * torch.minimum(ratio * advantage, ratio.clamp(0.8, 1.28) * advantage)


def reference(name: str, model: torch.nn.Module, groups: Sequence[FinishedGroup]) -> torch.Tensor:
    total, tokens = torch.zeros(()), 0
    for group in groups:
        lengths = np.array([len(response.tokens) for response in group.responses])
        rewards = np.array([response.reward for response in group.responses], dtype=np.float64)
        if name == "dapo, overlong":
            for place, length in enumerate(lengths):
                free = LONGEST - 6
                rewards[place] += 0.0 if length <= free else (free - length) / 6
        centred = rewards - rewards.mean()
        equal = rewards.max() == rewards.min()
        scale = 1.0 if name.startswith("dr_grpo") else rewards.std(ddof=1) + 1e-4
        advantages = centred / scale
        if equal and "KL" not in name:
            continue
        for place, response in enumerate(group.responses):
            logprobs = logprobs_of(model, group, place)
            losses = token_losses(logprobs, response.logprobs, float(advantages[place]))
            if "KL" in name:
                difference = logprobs.detach() - logprobs  # the reference is the model as it is
                losses = losses + 0.1 * (difference.exp() - difference - 1)
            total = total + losses.sum()
            tokens += len(response.tokens)
    if name.startswith("dr_grpo"):
        return total / (len(groups) * len(groups[0].responses) * LONGEST)
    return total / tokens


@pytest.mark.parametrize("name", LOSSES)
def test_the_gradient_of_a_step_is_that_of_the_formula(name: str) -> None:
    groups, model = make_step(), make_model()
    loss = reference(name, model, groups)
    loss.backward()
    expected = np.concatenate([p.grad.numpy().reshape(-1) for p in model.parameters()])
    trainer = make_trainer(**settings(name))
    stats = trainer.accumulate(groups)
    gradient = trainer.gradient().vector.copy()
    step = trainer.finish_step()
    assert step.divisor is not None
    assert relative_l2(gradient / step.divisor, expected) <= 1e-5
    assert step.grad_norm == pytest.approx(float(np.linalg.norm(expected)), rel=1e-5)
    assert stats.loss_sum / step.divisor == pytest.approx(float(loss.detach()), rel=1e-4, abs=1e-7)


def test_dapo_without_overlong_shaping_is_grpo_as_it_is_here_to_the_bit() -> None:
    vectors = []
    for name in ("grpo", "dapo"):
        trainer = make_trainer(**settings(name))
        trainer.accumulate(make_step())
        trainer.finish_step()
        vectors.append(trainer.vector().tobytes())
    assert vectors[0] == vectors[1]


def test_the_other_losses_learn_something_else() -> None:
    moved = {}
    for name in ("grpo", "dapo, overlong", "dr_grpo"):
        trainer = make_trainer(**settings(name))
        trainer.accumulate(make_step())
        trainer.finish_step()
        moved[name] = trainer.vector()
    assert relative_l2(moved["dapo, overlong"], moved["grpo"]) > 1e-4
    assert relative_l2(moved["dr_grpo"], moved["grpo"]) > 1e-4


def test_overlong_shaping_gives_a_group_of_equal_rewards_a_signal_and_leaves_what_is_reported() -> None:
    group = make_groups(1, seed=99, rewards=[1, 1, 1, 1])
    assert len({len(response.tokens) for response in group[0].responses}) > 1
    plain, shaped = (make_trainer(**settings(name)).accumulate(group) for name in ("dapo", "dapo, overlong"))
    assert (plain.no_signal, shaped.no_signal) == (1, 0)
    assert plain.reward_mean == shaped.reward_mean == 1.0


# -- placement --------------------------------------------------------------------------------------------------------


def in_one(groups: Sequence[FinishedGroup]) -> list[Sequence[FinishedGroup]]:
    return [groups]


def one_by_one(groups: Sequence[FinishedGroup]) -> list[Sequence[FinishedGroup]]:
    return [[group] for group in groups]


def backwards(groups: Sequence[FinishedGroup]) -> list[Sequence[FinishedGroup]]:
    return [groups[4:], groups[:4]]


Cut = Callable[[Sequence[FinishedGroup]], list[Sequence[FinishedGroup]]]


def trained(name: str, cut: Cut, *, replicas: int, deterministic: bool) -> np.ndarray:
    """Parameters after two steps whose chunks went round the replicas."""
    all_of_them = [make_trainer(deterministic=deterministic, **settings(name)) for _ in range(replicas)]
    for step in range(2):
        groups = [dataclasses.replace(group, version=step) for group in make_step(seed=step)]
        for place, chunk in enumerate(cut(groups)):
            all_of_them[place % replicas].accumulate(chunk)
        parts = [replica.gradient() for replica in all_of_them]
        for replica in all_of_them:
            replica.finish_step(parts)
    vectors = [replica.vector() for replica in all_of_them]
    assert all(vector.tobytes() == vectors[0].tobytes() for vector in vectors)
    return vectors[0]


@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize("deterministic", [False, True])
def test_who_trained_what_in_which_chunks_does_not_matter(name: str, deterministic: bool) -> None:
    whole = trained(name, in_one, replicas=1, deterministic=deterministic)
    assert relative_l2(whole, flatten(make_model())) > 1e-3
    for cut, replicas in ((one_by_one, 1), (one_by_one, 2), (backwards, 2)):
        other = trained(name, cut, replicas=replicas, deterministic=deterministic)
        if deterministic:
            assert other.tobytes() == whole.tobytes()
        else:
            assert relative_l2(other, whole) <= 1e-6


def test_a_step_without_any_signal_changes_nothing() -> None:
    for name in ("dapo", "dr_grpo"):
        trainer = make_trainer(**settings(name))
        before = trainer.vector()
        trainer.accumulate(make_groups(PROMPTS, rewards=[1, 1, 1, 1]))
        step = trainer.finish_step()
        assert (step.tokens, step.divisor, step.grad_norm) == (0, None, None)
        other = make_model()
        load_flat(other, trainer.vector())
        assert flatten(other).tobytes() == before.tobytes()


# -- what a job may say -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("algorithm", "told"),
    [
        ("loss: ppo", "algorithm.loss: must be one of grpo, dapo, dr_grpo, got 'ppo'"),
        ("loss: dr_grpo, scale_rewards: group", "algorithm.scale_rewards: must be none or null for loss dr_grpo"),
        ("loss: dapo, kl_coef: 0.1", "algorithm: kl_coef 0.1 has no meaning for loss dapo"),
        ("overlong_tokens: 4", "algorithm.overlong_tokens: belongs to loss dapo, the loss is grpo; allowed: 0, got 4"),
        ("loss: dapo, overlong_tokens: 32", "algorithm.overlong_tokens 32 leaves no length without a penalty;"),
        ("dynamic_sampling: 1.5", "algorithm.dynamic_sampling: must be true or false"),
    ],
)
def test_a_loss_that_cannot_be_is_refused_with_what_is_allowed(algorithm: str, told: str) -> None:
    with pytest.raises(JobError) as caught:
        parse_job(f"algorithm: {{{algorithm}}}")
    assert told in str(caught.value)


@pytest.mark.parametrize(
    ("algorithm", "scale"),
    [("", "group"), ("loss: dapo", "group"), ("loss: dr_grpo", "none"), ("scale_rewards: none", "none")],
)
def test_rewards_are_scaled_as_the_loss_has_it_unless_told_otherwise(algorithm: str, scale: str) -> None:
    assert parse_job(f"algorithm: {{{algorithm}}}").algorithm.scale_rewards_resolved == scale
