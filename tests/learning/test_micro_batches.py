from __future__ import annotations

import numpy as np
import pytest

from engine.learning import micro_batches as module
from engine.learning.micro_batches import Sample, bundles, micro_batches


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


@pytest.mark.parametrize(
    ("groups", "expected"),
    [
        ([], []),
        ([[10, 10]], [1]),
        ([[10, 10], [10, 10], [10]], [2, 1]),  # 4 x 10 tokens are a full micro batch of 40
        ([[5, 5], [15], [5, 5]], [1, 1, 1]),  # padded to 3 x 15 the first two would not fit, nor would the last two
        ([[30, 30], [30, 30], [5]], [1, 1, 1]),  # a group that is too large by itself is not cut
        ([[], [], [30, 30], [], [10], []], [4, 2]),
        ([[], []], [2]),
    ],
    ids=["none", "one", "full", "padding counts", "large groups", "groups without samples", "nothing to train"],
)
def test_bundles_are_consecutive_groups_that_fill_one_micro_batch(groups, expected, monkeypatch):
    monkeypatch.setattr(module, "MICRO_BATCH_TOKENS", 40)
    samples = [make_samples([(2, length - 2) for length in lengths]) for lengths in groups]
    cut = list(bundles(samples, vocabulary=100))
    assert [len(bundle) for bundle in cut] == expected
    assert [index for bundle in cut for index in bundle] == list(range(len(groups)))
