from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from engine.learning.randomness import EVALUATION_EPOCH, uniforms

WORDS = st.integers(0, 2**40)


@given(seed=WORDS, epoch=WORDS, position=WORDS, response=WORDS, count=st.integers(0, 50), more=st.integers(0, 50))
def test_the_prefix_of_a_stream_is_the_stream_of_the_prefix(seed, epoch, position, response, count, more):
    longer = uniforms(seed, epoch, position, response, count + more)
    assert np.array_equal(uniforms(seed, epoch, position, response, count), longer[:count])
    assert ((longer >= 0) & (longer < 1)).all()


def test_the_stream_is_the_one_that_recorded_runs_were_made_with():
    # Philox 4x64 of numpy 2.3; a change here would break the resuming of every stored run
    words = np.random.Philox(key=np.array([3, 1], np.uint64), counter=np.array([0, 0, 2, 5], np.uint64)).random_raw(2)
    assert uniforms(3, 1, 5, 2, 2).tolist() == [int(word) // 2**11 / 2**53 for word in words]


def test_every_coordinate_gives_another_stream():
    base = (3, 1, 5, 2)
    streams = [uniforms(*base, 8)]
    for index in range(4):
        other = list(base)
        other[index] += 1
        streams.append(uniforms(*other, 8))
    streams.append(uniforms(3, EVALUATION_EPOCH, 5, 2, 8))
    assert len({stream.tobytes() for stream in streams}) == len(streams)


def test_the_numbers_are_uniform():
    numbers = np.concatenate([uniforms(0, 0, position, 0, 100) for position in range(200)])
    # 20,000 draws: the standard error of the mean is 0.289 / sqrt(20000) = 0.002
    assert abs(numbers.mean() - 0.5) < 0.01
    assert np.abs(np.histogram(numbers, bins=10, range=(0, 1))[0] - 2000).max() < 200
