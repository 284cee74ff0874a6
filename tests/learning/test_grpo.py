from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from engine.learning.grpo.advantages import advantages, has_signal
from engine.learning.grpo.loss import token_loss
from engine.learning.grpo.reference_kl import reference_kl
from engine.learning.grpo.schedule import learning_rate
from tests.learning.builders import make_algorithm


def test_advantages_by_hand():
    # rewards 1 0 0 1 0 0 0 0: mean .25, squared deviations 2 * .5625 + 6 * .0625 = 1.5, std sqrt(1.5 / 7) = .46291
    rewards = np.array([1, 0, 0, 1, 0, 0, 0, 0], dtype=np.float64)
    std = math.sqrt(1.5 / 7) + 1e-4
    assert advantages(rewards, scale_rewards="group") == pytest.approx(
        [0.75 / std if reward else -0.25 / std for reward in rewards], abs=1e-12
    )
    assert advantages(rewards, scale_rewards="none") == pytest.approx([0.75 if r else -0.25 for r in rewards])


@pytest.mark.parametrize("value", [0.0, 1.0, 0.1])
@pytest.mark.parametrize("scale", ["group", "none"])
def test_a_group_whose_rewards_are_equal_has_no_signal(value, scale):
    rewards = np.full(3, value)
    assert not has_signal(rewards)
    assert advantages(rewards, scale_rewards=scale).tolist() == [0.0, 0.0, 0.0]


def logs(*values: float) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64).log()


@pytest.mark.parametrize(
    ("theta", "prox", "behaviour", "advantage", "loss", "flags"),
    [
        # (pi_theta, pi_prox, pi_behaviour, A) -> -w * min(r A, clip(r) A); flags clipped, capped
        (0.4, 0.4, 0.4, 1.0, -1.0, (False, False)),
        (0.4, 0.4, 0.5, 2.0, -0.8 * 2.0, (False, False)),
        (0.5, 0.4, 0.4, 1.0, -1.25, (False, False)),
        (0.6, 0.4, 0.4, 1.0, -1.28, (True, False)),
        (0.6, 0.4, 0.4, -1.0, 1.5, (True, False)),
        (0.2, 0.4, 0.4, 1.0, -0.5, (True, False)),
        (0.2, 0.4, 0.4, -1.0, 0.8, (True, False)),
        (0.4, 0.4, 0.1, 1.0, -2.0, (False, True)),
        (0.6, 0.4, 0.1, 1.0, -2.0 * 1.28, (True, True)),
    ],
    ids=[
        "on policy",
        "importance weight",
        "ratio inside",
        "clip high",
        "high, bad answer: not clipped",
        "low, good answer: not clipped",
        "clip low",
        "weight capped",
        "both",
    ],
)
def test_token_losses_by_hand(theta, prox, behaviour, advantage, loss, flags):
    result = token_loss(
        logs(theta), logs(prox), logs(behaviour), torch.tensor([advantage]), clip_low=0.2, clip_high=0.28, is_cap=2.0
    )
    assert float(result.losses) == pytest.approx(loss, abs=1e-6)
    assert (bool(result.clipped), bool(result.capped)) == flags
    w = prox / behaviour
    assert float(result.mismatch_kl) == pytest.approx(w - 1 - math.log(w), abs=1e-6)
    assert float(result.weights) == pytest.approx(min(w, 2.0))


def test_without_correction_the_weight_is_one_and_the_mismatch_is_still_measured():
    result = token_loss(logs(0.4), logs(0.4), logs(0.1), torch.ones(1), clip_low=0.2, clip_high=0.28, is_cap=None)
    assert (float(result.losses), float(result.weights), bool(result.capped)) == (-1.0, 1.0, False)
    assert float(result.mismatch_kl) == pytest.approx(4 - 1 - math.log(4))


def test_only_pi_theta_carries_a_gradient():
    theta, prox, behaviour = (logs(p).float().requires_grad_() for p in (0.4, 0.4, 0.5))
    token_loss(
        theta, prox, behaviour, torch.tensor([2.0]), clip_low=0.2, clip_high=0.28, is_cap=2.0
    ).losses.sum().backward()
    # d/d log pi of -w * r * A at r = 1: -.8 * 2
    assert float(theta.grad) == pytest.approx(-1.6)
    assert prox.grad is None
    assert behaviour.grad is None


def test_reference_kl_by_hand():
    # d = log(.2 / .4): .5 + .6931 - 1; equal policies give 0
    assert reference_kl(logs(0.4, 0.3), logs(0.2, 0.3)).tolist() == pytest.approx([0.5 + math.log(2) - 1, 0.0])


@pytest.mark.parametrize(
    ("version", "expected"),
    [(0, 0.2), (3, 0.8 * (1 - 0.7 * 3 / 100)), (4, 1 - 0.7 * 4 / 100), (50, 0.65), (100, 0.3), (150, 0.3)],
)
def test_linear_schedule_by_hand(version, expected):
    settings = {"learning_rate": 2.0, "lr_warmup_steps": 5, "lr_final_fraction": 0.3, "steps": 100}
    assert learning_rate(make_algorithm(lr_schedule="linear", **settings), version) == pytest.approx(2 * expected)


def test_constant_schedule_stays():
    assert {learning_rate(make_algorithm(learning_rate=3e-4), version) for version in (0, 5, 999)} == {3e-4}
