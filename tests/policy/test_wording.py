"""Times in reasons, at every size."""

from __future__ import annotations

import math

import pytest

from planner.policy.wording import told


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.0, "0 s"),
        (0.0004, "0.4 ms"),
        (0.0123, "12.3 ms"),
        (0.25, "250 ms"),
        (1.5, "1.50 s"),
        (-2.0, "-2.00 s"),
        (12.34, "12.3 s"),
        (600.0, "600 s"),
        (math.inf, "endless"),
    ],
)
def test_a_time_keeps_three_digits_whatever_its_size(seconds: float, text: str) -> None:
    assert told(seconds) == text
