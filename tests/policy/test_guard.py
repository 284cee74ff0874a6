"""The never-slower guard: when it goes off, that noise alone seldom does it, and how it comes back."""

from __future__ import annotations

import math
import random
from collections.abc import Iterable

import pytest

from planner.intervals import upper_bound
from planner.policy.guard import CONFIDENCE, MIN_LEASES, OFF_S, WINDOW_LEASES, Guard, is_off, observe


def observed(gains_s: Iterable[float], guard: Guard | None = None, now: float = 0.0) -> Guard:
    guard = guard or Guard()
    for gain_s in gains_s:
        guard = observe(guard, gain_s, now)
    return guard


def test_a_fresh_guard_is_on() -> None:
    assert not is_off(Guard(), 0.0)


def test_it_never_goes_off_on_fewer_leases_than_it_needs() -> None:
    guard = observed([-100.0] * (MIN_LEASES - 1))
    assert not is_off(guard, 0.0)
    assert guard.reason == "only 7 of 8 leases have been measured"


def test_it_goes_off_for_a_while_when_leases_clearly_lose_time_and_says_so() -> None:
    """Mean -2, s = sqrt(8 / 7), so -2 + 1.4149 * 1.0690 / sqrt(8) = -1.47."""
    guard = observed([-1.0, -3.0] * 4, now=50.0)
    assert [is_off(guard, now) for now in (50.0, 50.0 + OFF_S - 1, 50.0 + OFF_S)] == [True, True, False]
    assert guard.reason == (
        "off for 600 s: the last 8 leases won -2.00 s on average, with 90% confidence at most -1.47 s"
    )


def test_it_stays_on_while_the_mean_is_negative_but_may_well_be_noise() -> None:
    """Mean -0.25, s = sqrt(8 * 2.25 ** 2 / 7) = 2.405, so -0.25 + 1.4149 * 2.405 / sqrt(8) = 0.95."""
    guard = observed([2.0, -2.5] * 4)
    assert not is_off(guard, 0.0)
    assert guard.reason == "on: the last 8 leases won -250 ms on average, with 90% confidence at most 953 ms"


@pytest.mark.parametrize(("gain_s", "off"), [(-1e-6, True), (0.0, False), (1.0, False)])
def test_equal_gains_leave_no_doubt_and_a_gain_of_nothing_is_no_loss(gain_s: float, off: bool) -> None:
    assert is_off(observed([gain_s] * MIN_LEASES), 0.0) is off


def test_it_comes_back_with_an_empty_window() -> None:
    back = OFF_S + 1
    guard = observed([-1.0] * (MIN_LEASES - 1), observed([-1.0] * MIN_LEASES), now=back)
    assert guard.gains_s == (-1.0,) * (MIN_LEASES - 1)
    assert not is_off(guard, back)
    assert is_off(observe(guard, -1.0, back), back)


def test_a_lease_that_ends_while_it_is_off_changes_nothing() -> None:
    guard = observed([-1.0] * MIN_LEASES)
    assert observe(guard, 5.0, OFF_S - 1) == guard


def test_only_the_last_leases_are_remembered_so_that_old_gains_do_not_hide_new_losses() -> None:
    good = observed([1.0, 2.0] * 100)
    assert good.gains_s == (1.0, 2.0) * (WINDOW_LEASES // 2)
    assert is_off(observed([-1.5] * WINDOW_LEASES, good), 0.0)


@pytest.mark.parametrize("gain_s", [math.nan, math.inf])
def test_a_gain_that_is_no_number_is_refused(gain_s: float) -> None:
    with pytest.raises(ValueError, match=f"a measured gain must be a number of seconds, got {gain_s}"):
        observe(Guard(), gain_s, 0.0)


# -- how often it is wrong --------------------------------------------------------------------------------------------

TRIALS = 3000


@pytest.mark.parametrize("leases", [MIN_LEASES, WINDOW_LEASES])
def test_noise_without_a_mean_is_taken_for_a_loss_in_one_test_of_ten(leases: int) -> None:
    """Independent windows of normal gains; the share has a standard error of sqrt(0.1 * 0.9 / 3000) = 0.55%."""
    rng = random.Random(leases)
    alarms = sum(upper_bound([rng.gauss(0, 3) for _ in range(leases)], CONFIDENCE) < 0 for _ in range(TRIALS))
    assert alarms / TRIALS == pytest.approx(0.1, abs=0.02)


def test_leases_that_win_as_much_as_they_scatter_are_hardly_ever_switched_off() -> None:
    rng = random.Random(1)
    alarms = sum(is_off(observed(rng.gauss(3, 3) for _ in range(40)), 0.0) for _ in range(300))
    assert alarms <= 1


def test_leases_that_lose_as_much_as_they_scatter_are_switched_off_within_a_window() -> None:
    rng = random.Random(2)
    found = sum(is_off(observed(rng.gauss(-3, 3) for _ in range(WINDOW_LEASES)), 0.0) for _ in range(300))
    assert found >= 295
