from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from engine.learning.sampling import greedy, nucleus, sample

P = [0.1, 0.2, 0.4, 0.3]
LOGITS = torch.tensor([P]).log()


def draw(number: float, **settings: float) -> tuple[int, float]:
    settings = {"temperature": 1.0, "top_p": 1.0} | settings
    tokens, logprobs = sample(LOGITS, torch.tensor([number], dtype=torch.float64), **settings)
    return int(tokens[0]), float(logprobs[0])


@pytest.mark.parametrize(
    ("number", "token"),
    [(0.0, 0), (0.09, 0), (0.11, 1), (0.29, 1), (0.31, 2), (0.69, 2), (0.71, 3), (1 - 2**-53, 3)],
)
def test_the_token_is_the_first_whose_cumulative_probability_exceeds_the_number(number, token):
    assert draw(number) == (token, pytest.approx(math.log(P[token]), abs=1e-6))


def test_temperature_sharpens_and_the_log_probability_is_that_of_the_sharpened_distribution():
    # squares .01 .04 .16 .09 sum to .30: cumulative 1/30, 5/30, 21/30, 1
    assert draw(0.5, temperature=0.5) == (2, pytest.approx(math.log(16 / 30), abs=1e-6))
    assert draw(0.1, temperature=0.5) == (1, pytest.approx(math.log(4 / 30), abs=1e-6))


def test_top_p_draws_from_the_nucleus_renormalised():
    # .4 and .3 reach .6; renormalised 4/7 and 3/7, in order of token id
    assert draw(0.0, top_p=0.6) == (2, pytest.approx(math.log(4 / 7), abs=1e-6))
    assert draw(0.6, top_p=0.6) == (3, pytest.approx(math.log(3 / 7), abs=1e-6))


@pytest.mark.parametrize(
    ("top_p", "kept"), [(0.1, [2]), (0.39, [2]), (0.41, [2, 3]), (0.71, [1, 2, 3]), (0.95, [0, 1, 2, 3])]
)
def test_the_nucleus_is_the_fewest_likeliest_tokens_that_reach_top_p(top_p, kept):
    assert nucleus(torch.tensor([P]), top_p)[0].nonzero()[:, 0].tolist() == kept


def test_a_token_of_probability_zero_is_never_drawn():
    logits = torch.tensor([[-math.inf, 0.0, -math.inf, 0.0, -math.inf]])
    numbers = torch.tensor([0.0, 0.25, 0.5, 0.75, 1 - 2**-53], dtype=torch.float64)
    tokens, _ = sample(logits.expand(5, 5), numbers, temperature=1.0, top_p=1.0)
    assert set(tokens.tolist()) == {1, 3}


def test_rows_are_drawn_independently():
    logits = torch.randn(40, 30)
    numbers = torch.rand(40, dtype=torch.float64)
    tokens, logprobs = sample(logits, numbers, temperature=0.7, top_p=0.9)
    alone = [sample(logits[i : i + 1], numbers[i : i + 1], temperature=0.7, top_p=0.9) for i in range(40)]
    assert tokens.tolist() == [int(token) for token, _ in alone]
    assert np.allclose(logprobs.numpy(), [float(logprob) for _, logprob in alone], atol=1e-6)


def test_greedy_takes_the_likeliest():
    assert greedy(LOGITS).tolist() == [2]


@pytest.mark.parametrize("top_p", [1.0, 0.9])
@pytest.mark.parametrize(
    "row", [[0.0, math.nan, 0.0, 0.0], [0.0, math.inf, 0.0, 0.0], [-math.inf] * 4], ids=["NaN", "infinity", "nothing"]
)
def test_logits_that_make_no_distribution_give_no_token(row, top_p):
    logits = torch.cat([LOGITS, torch.tensor([row]), LOGITS])
    with pytest.raises(FloatingPointError, match="logits are not finite for 1 of 3 sequences, so there is no token"):
        sample(logits, torch.tensor([0.5, 0.5, 0.5], dtype=torch.float64), temperature=0.7, top_p=top_p)
    with pytest.raises(FloatingPointError, match="logits are not finite for 1 of 3 sequences"):
        greedy(logits)
