from __future__ import annotations

import numpy as np
import pytest

from engine.learning import micro_batches as module
from engine.learning.micro_batches import Sample, micro_batches


def make_samples(lengths: list[tuple[int, int]]) -> list[Sample]:
    rng, samples = np.random.default_rng(0), []
    for index, (prompt, response) in enumerate(lengths):
        tokens = rng.integers(1, 90, size=prompt + response).astype(np.int32)
        samples.append(
            Sample(
                prompt=tokens[:prompt],
                response=tokens[prompt:],
                behaviour=np.full(response, -float(index), dtype=np.float32),
                advantage=float(index),
                lag=index % 3,
            )
        )
    return samples


def test_every_response_token_appears_once_beside_its_own_numbers(monkeypatch):
    monkeypatch.setattr(module, "MICRO_BATCH_TOKENS", 40)
    rng = np.random.default_rng(1)
    samples = make_samples([(int(rng.integers(1, 12)), int(rng.integers(1, 12))) for _ in range(30)])
    seen = []
    for batch in micro_batches(samples, vocabulary=100):
        assert batch.ids.numel() <= 40
        columns = batch.first + batch.places_N
        assert (batch.places_N >= 0).all()
        # the logits that predict a token stand one column before it
        assert np.array_equal(batch.ids[batch.rows_N, columns + 1].numpy(), batch.targets_N.numpy())
        advantages = batch.advantages_N.numpy()
        assert np.array_equal(batch.behaviour_N.numpy(), -advantages)
        assert np.array_equal(batch.lags_N, advantages.astype(int) % 3)
        seen += zip(advantages.astype(int).tolist(), batch.targets_N.tolist(), strict=True)
    expected = [(index, int(token)) for index, sample in enumerate(samples) for token in sample.response]
    assert sorted(seen) == sorted(expected)


def test_similar_lengths_share_a_batch():
    batches = list(micro_batches(make_samples([(5, 5), (5, 500), (5, 6), (5, 490)]), vocabulary=100))
    assert [tuple(batch.ids.shape) for batch in batches] == [(2, 505), (2, 11)]


@pytest.mark.parametrize(("vocabulary", "rows"), [(100, [10]), (2**25 // 30, [3, 3, 3, 1]), (2**30, [1] * 10)])
def test_a_large_vocabulary_makes_small_batches_but_never_none(vocabulary, rows):
    batches = list(micro_batches(make_samples([(5, 5)] * 10), vocabulary=vocabulary))
    assert [batch.ids.shape[0] for batch in batches] == rows


def test_no_samples_make_no_batches():
    assert list(micro_batches([], vocabulary=10)) == []
