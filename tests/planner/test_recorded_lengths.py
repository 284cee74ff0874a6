"""The spread of recorded lengths: what a distribution was drawn with is found again, also where it was cut."""

from __future__ import annotations

import numpy as np
import pytest

from planner.profile import Lengths
from planner.profile_models import draw_lengths
from planner.recorded_lengths import KEPT, RecordedLengths


def recorded(lengths: Lengths, *, drift: float = 0.0) -> RecordedLengths:
    """Sixteen steps of 32 groups, every other step longer and shorter by `drift` in the log."""
    kept = RecordedLengths(group_size=8, per_step=32, most=lengths.max)
    levels = drift * np.where(np.arange(KEPT) // 32 % 2, 1.0, -1.0)
    drawn = draw_lengths(lengths, KEPT, 8, seed=0) * np.exp(levels)[:, None]
    for row in np.minimum(drawn, lengths.max).round().astype(int).tolist():
        kept.add(row, 50)
    return kept


def test_the_spread_over_groups_and_over_responses_is_told_apart() -> None:
    found = recorded(Lengths(median=300, max=10**6, sigma_group=0.6, sigma_response=0.2)).fit()
    assert (found.median, found.sigma_group, found.sigma_response, found.max) == (
        pytest.approx(300, rel=0.06),
        pytest.approx(0.6, abs=0.05),
        pytest.approx(0.2, abs=0.01),
        10**6,
    )
    assert found.drift < 0.1


def test_a_level_that_wanders_from_step_to_step_is_drift_and_not_spread_of_groups() -> None:
    found = recorded(Lengths(median=300, max=10**6, sigma_group=0.3, sigma_response=0.3), drift=0.4).fit()
    assert found.drift == pytest.approx(0.4, abs=0.05)
    assert found.sigma_group == pytest.approx(0.3, abs=0.04)


@pytest.mark.parametrize("cut", [900, 700, 500], ids=["a third is cut", "half is cut", "most are cut"])
def test_lengths_that_were_cut_are_those_of_the_whole_distribution(cut: int) -> None:
    found = recorded(Lengths(median=700, max=cut, sigma_group=0.4, sigma_response=0.4)).fit()
    assert found.max == cut
    assert found.median == pytest.approx(min(700, cut), rel=0.08)
    spread = (found.sigma_group**2 + found.sigma_response**2) ** 0.5
    assert spread == pytest.approx(0.566, rel=0.25)


def test_lengths_that_are_nearly_all_cut_are_taken_as_they_are() -> None:
    kept = RecordedLengths(group_size=8, per_step=4, most=24)
    for place in range(64):
        kept.add([24] * 7 + [1 + place % 24], 10)
    found = kept.fit()
    assert (found.max, found.median) == (24, pytest.approx(24, rel=0.2))
    assert found.sigma_response < 0.5


def test_lengths_that_are_all_cut_or_all_the_same_have_no_spread() -> None:
    kept = RecordedLengths(group_size=2, per_step=4)
    for _ in range(8):
        kept.add([24, 24], 10)
    assert kept.fit() == Lengths(median=24, max=24, sigma_group=0, sigma_response=0, drift=0)


def test_empty_responses_and_groups_of_one_are_lengths_too() -> None:
    kept = RecordedLengths(group_size=1, per_step=1, most=8)
    for length in (0, 1, 2, 4, 8, 3):
        kept.add([length], 5)
    found = kept.fit()
    assert 1 <= found.median <= 8
    assert found.sigma_response == 0
    assert (kept.prompt_tokens, len(kept), kept.recent().shape) == (5, 6, (6, 1))
