"""Throughput in tables; the golden cases H2 and H4 are checked with the others."""

from __future__ import annotations

import math

import pytest

from planner.throughput import steady, throughput

STEPS = [(100, 50), (100, 10), (200, 10), (300, 20), (400, 20), (500, 100)]


@pytest.mark.parametrize(
    ("steps", "staleness", "expected"),
    [
        pytest.param(STEPS, 0, 1500 / 160, id="s=0: only the first step is dropped"),
        pytest.param(STEPS, 1, 1000 / 60, id="s=1: one at each end"),
        pytest.param(STEPS, 1.5, 500 / 30, id="s=1.5: two at each end"),
        pytest.param(STEPS, 3, None, id="s=3: nothing is left"),
        pytest.param(STEPS, 9, None, id="more dropped than there are"),
        pytest.param(STEPS[:1], 0, None, id="one step is no steady part"),
        pytest.param([], 0, None, id="no step"),
        pytest.param([(5, 1), (5, 0)], 0, None, id="no time to divide by"),
    ],
)
def test_throughput_leaves_out_the_filling_and_the_draining_steps(
    steps: list[tuple[float, float]], staleness: float, expected: float | None
) -> None:
    assert throughput(steps, staleness) == (None if expected is None else pytest.approx(expected, rel=1e-12))


@pytest.mark.parametrize(("staleness", "kept"), [(0, "bcdef"), (0.5, "bcde"), (1, "bcde"), (2, "cd"), (3, ""), (9, "")])
def test_the_steady_part_is_what_throughput_is_taken_over(staleness: float, kept: str) -> None:
    assert steady("abcdef", staleness) == kept


@pytest.mark.parametrize("staleness", [-1, math.nan])
def test_a_staleness_below_zero_is_refused(staleness: float) -> None:
    with pytest.raises(ValueError, match="staleness must be a number >= 0"):
        throughput(STEPS, staleness)
