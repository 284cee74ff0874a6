"""Memory is used again when, and only when, nobody refers to it any more."""

import pickle

import numpy as np
import pytest
import torch

from engine.learning.reused_arrays import ReusedArrays

SHAPE = (2, 3)


def address(array):
    return array.__array_interface__["data"][0]


def test_an_array_that_was_let_go_is_the_next_one_of_its_size():
    arrays = ReusedArrays()
    first = arrays.empty(SHAPE)
    was = address(first)
    assert (first.shape, first.dtype) == (SHAPE, np.float32)
    del first
    assert address(arrays.empty((6,))) == was
    assert arrays.nbytes == 24


@pytest.mark.parametrize(
    "hold",
    [
        lambda array: array,
        lambda array: array[1][1:],
        lambda array: array.reshape(-1).view(np.uint8),
        lambda array: torch.from_numpy(array)[0],
        lambda array: memoryview(array),
        lambda array: pickle.PickleBuffer(array),
    ],
    ids=["itself", "a slice", "its bytes", "a tensor", "a memory view", "an out-of-band buffer"],
)
def test_whoever_holds_an_array_in_any_way_keeps_it(hold):
    arrays = ReusedArrays()
    held = hold(arrays.empty(SHAPE))
    kept = np.frombuffer(held.raw(), dtype=np.uint8) if isinstance(held, pickle.PickleBuffer) else np.asarray(held)
    before = kept.tobytes()
    others = [arrays.empty(SHAPE) for _ in range(3)]
    for other in others:
        other[:] = 7.0
    assert kept.tobytes() == before
    assert len({address(other) for other in others}) == 3
    del held, kept, others, other
    arrays.empty(SHAPE)
    assert arrays.nbytes == 24, "all but one of the free ones are given up"


def test_another_size_takes_nothing_from_it():
    arrays = ReusedArrays()
    small, large = address(arrays.empty((4,))), address(arrays.empty((8,)))
    assert small != large
    assert address(arrays.empty((4,))) == small
