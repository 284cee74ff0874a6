"""Times and quantities as a reader sees them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.clock import PageClock, count, device_time, duration

NOON = 1_777_636_800.0  # 2026-05-01 12:00:00 UTC


def test_times_are_the_readers_local_ones() -> None:
    clock = PageClock(offset_s=2 * 3600)
    assert clock.time(NOON) == "14:00:00"
    assert clock.moment(NOON) == "2026-05-01 14:00"


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("2026-05-01 14:00:00.2500", 0.25),
        ("2026-05-01 14:00", 0.0),
        ("2026-05-01", -14 * 3600),
        ((NOON + 7200) * 1000.0, 0.0),
    ],
    ids=["fraction", "no seconds", "no time", "milliseconds"],
)
def test_positions_come_back_from_the_axis_as_plotly_writes_them(value: object, seconds: float) -> None:
    assert PageClock(offset_s=7200).from_axis(value) == pytest.approx(NOON + seconds, abs=1e-6)


@pytest.mark.parametrize("value", [None, True, "yesterday", [1]], ids=str)
def test_a_position_that_is_no_time_is_refused(value: object) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - datetime words some of these itself
        PageClock().from_axis(value)


@given(st.floats(1e9, 2e9), st.sampled_from([-39600, 0, 19800, 50400]))
def test_an_axis_position_is_the_same_moment_again(at: float, offset: int) -> None:
    clock = PageClock(offset_s=offset)
    assert clock.from_axis(clock.axis(at)) == pytest.approx(at, abs=1e-3)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.2, "200 ms"),
        (4.25, "4.2 s"),
        (42, "42 s"),
        (200, "3 min 20 s"),
        (7500, "2 h 5 min"),
        (3600, "1 h"),
        (273_600, "3 d 4 h"),
    ],
)
def test_durations_have_two_units_at_most(seconds: float, text: str) -> None:
    assert duration(seconds) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (5.25, "5.2 device-s"),
        (59, "59 device-s"),
        (192, "3.2 device-min"),
        (5760, "96.0 device-min"),
        (7200, "2.0 device-h"),
    ],
)
def test_device_time_has_a_unit_that_can_be_weighed(seconds: float, text: str) -> None:
    assert device_time(seconds) == text


@pytest.mark.parametrize(
    ("number", "text"), [(812, "812"), (9_999, "9,999"), (41_240, "41.2 k"), (3_100_000, "3.1 M"), (2.5e9, "2.5 G")]
)
def test_counts_are_short(number: float, text: str) -> None:
    assert count(number) == text
