from __future__ import annotations

import numpy as np
import pytest
import torch
from transformers import LlamaConfig, Qwen3NextConfig

from engine.learning.decoding import DecodingBatch, _batches
from engine.learning.kv_window import check_supported
from tests.learning.builders import MODEL_KINDS, VOCABULARY, make_model


@pytest.mark.parametrize("kind", MODEL_KINDS)
def test_rows_that_come_and_go_have_the_logits_of_a_forward_over_their_whole_sequence(kind):
    # 90 tokens, so that the buffers are laid out anew several times; 12 rows at most, so that they also grow
    model, rng = make_model(kind), np.random.default_rng(5)
    batch, rows = DecodingBatch(model, 12), []
    for _ in range(90):
        copies = int(rng.integers(1, 4))
        if len(rows) + copies <= 12 and (not rows or rng.random() < 0.3):
            prompt = rng.integers(0, VOCABULARY, size=rng.integers(1, 20)).astype(np.int32)
            batch.join(prompt, copies)
            rows += [prompt.tolist() for _ in range(copies)]
        logits = batch.forward()
        assert logits.shape == (len(rows), VOCABULARY)
        row = int(rng.integers(len(rows)))
        with torch.inference_mode():
            expected = model(input_ids=torch.tensor([rows[row]])).logits[0, -1]
        assert torch.allclose(logits[row], expected, atol=1e-4), f"row {row} of {len(rows)}"
        tokens = rng.integers(0, VOCABULARY, size=len(rows))
        batch.feed(torch.from_numpy(tokens))
        rows = [[*held, int(token)] for held, token in zip(rows, tokens, strict=True)]
        gone = np.array([len(held) > 60 or rng.random() < 0.05 for held in rows])
        if gone.any():
            rows = [rows[index] for index in batch.drop(gone)]


def test_dropping_moves_only_what_fills_the_gaps():
    batch = DecodingBatch(make_model(), 6)
    batch.join(np.array([3, 4], dtype=np.int32), 6)
    batch.forward()
    batch.feed(torch.zeros(6, dtype=torch.long))
    kept = batch.drop(np.array([False, True, False, True, False, False]))
    assert kept.tolist() == [0, 4, 2, 5]


def test_a_row_that_was_not_fed_is_a_programming_error():
    batch = DecodingBatch(make_model(), 2)
    batch.join(np.array([3], dtype=np.int32), 1)
    batch.forward()
    with pytest.raises(AssertionError, match="fed 0 of 1 rows"):
        batch.forward()


def test_prefills_are_cut_so_that_padding_counts():
    lengths = [1000, 1000, 3000, 10, 5000, 1]
    batches = _batches([np.zeros(length, dtype=np.int32) for length in lengths])
    assert [[len(sequence) for sequence in batch] for batch in batches] == [[1000, 1000], [3000], [10], [5000], [1]]


def test_a_model_with_recurrent_layers_is_refused_by_name():
    with pytest.raises(ValueError, match=r"qwen3_next.*linear_attention; allowed: full_attention"):
        check_supported(Qwen3NextConfig(num_hidden_layers=4))
    assert check_supported(LlamaConfig(num_hidden_layers=3)) == 3
