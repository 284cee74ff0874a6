from __future__ import annotations

import numpy as np
import pytest
import torch

from engine.learning.weights import flatten, load_flat, nbytes_of, parameter_count, sha256
from tests.learning.builders import make_model


@pytest.mark.parametrize("kind", ["tied", "untied, shared keys"])
def test_weights_survive_the_journey_bitwise(kind):
    source, target = make_model(kind, seed=1), make_model(kind, seed=2)
    vector = flatten(source)
    assert vector.dtype == np.float32
    assert len(vector) == parameter_count(source)
    vector.setflags(write=False)
    load_flat(target, vector)
    assert sha256(flatten(target)) == sha256(vector)
    assert all(torch.equal(a, b) for a, b in zip(source.parameters(), target.parameters(), strict=True))
    ids = torch.tensor([[1, 5, 6]])
    assert torch.equal(source(input_ids=ids).logits, target(input_ids=ids).logits)


def test_tied_weights_travel_once_and_stay_tied():
    tied, untied = make_model("tied"), make_model("tied")
    load_flat(tied, flatten(make_model("tied", seed=3)))
    assert tied.lm_head.weight is tied.model.embed_tokens.weight
    assert parameter_count(untied) == len(flatten(untied)) == sum(p.numel() for _, p in untied.named_parameters())


def test_the_vector_is_a_copy():
    model = make_model()
    vector = flatten(model)
    before = sha256(vector)
    with torch.no_grad():
        next(model.parameters()).add_(1.0)
    assert sha256(vector) == before != sha256(flatten(model))


@pytest.mark.parametrize(
    ("vector", "match"),
    [
        (np.zeros(7, dtype=np.float32), r"shape \(7,\) do not fit a model of \d+ parameters"),
        (np.zeros(parameter_count(make_model()), dtype=np.float64), "float64, only float32"),
    ],
    ids=["size", "type"],
)
def test_a_wrong_vector_is_refused_and_nothing_is_written(vector, match):
    model = make_model()
    before = sha256(flatten(model))
    with pytest.raises(ValueError, match=match):
        load_flat(model, vector)
    assert sha256(flatten(model)) == before


def test_a_model_in_half_precision_is_refused():
    with pytest.raises(ValueError, match="bfloat16"):
        flatten(make_model().to(torch.bfloat16))


def test_memory_is_that_of_parameters_and_buffers_with_tied_weights_once():
    model = make_model("tied")
    buffers = sum(buffer.nbytes for buffer in model.buffers())
    assert nbytes_of(model) == 4 * parameter_count(model) + buffers
    assert nbytes_of(make_model("untied, shared keys")) != nbytes_of(model)
