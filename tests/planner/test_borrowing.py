"""The borrowing estimate: its bounds, its direction, and two cases by hand."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.borrowing import PoolLoad, borrowing_step_s
from planner.profile import SwitchCosts

FREE = SwitchCosts(in_s=0.0, out_s=0.0)

loads = st.builds(
    PoolLoad,
    devices=st.integers(1, 16).map(lambda n: 4 * n),
    fixed_s=st.floats(0, 50),
    work_device_s=st.floats(1, 5000),
)
leases = st.builds(SwitchCosts, in_s=st.floats(0, 20), out_s=st.floats(0, 20), grad_s=st.floats(0, 5))


def estimate(one: PoolLoad, other: PoolLoad, lease: SwitchCosts, block: int = 4) -> float:
    borrower, lender = (one, other) if one.seconds >= other.seconds else (other, one)
    return borrowing_step_s(borrower=borrower, lender=lender, block=block, lease=lease)


@given(one=loads, other=loads, lease=leases)
def test_borrowing_is_never_slower_than_not_and_never_faster_than_fluid(
    one: PoolLoad, other: PoolLoad, lease: SwitchCosts
) -> None:
    seconds = estimate(one, other, lease)
    assert seconds <= max(one.seconds, other.seconds)
    fluid = (one.work_device_s + other.work_device_s) / (one.devices + other.devices)
    assert seconds >= fluid * (1 - 1e-9)
    assert seconds >= max(one.fixed_s, other.fixed_s)


@given(
    one=loads,
    other=loads,
    lease=leases,
    more=st.tuples(st.floats(0, 50), st.floats(0, 1000), st.floats(0, 20)),
)
def test_more_work_and_dearer_leases_never_make_a_step_shorter(
    one: PoolLoad, other: PoolLoad, lease: SwitchCosts, more: tuple[float, float, float]
) -> None:
    before = estimate(one, other, lease)
    heavier = PoolLoad(devices=one.devices, fixed_s=one.fixed_s + more[0], work_device_s=one.work_device_s + more[1])
    dearer = SwitchCosts(in_s=lease.in_s + more[2], out_s=lease.out_s, grad_s=lease.grad_s)
    assert estimate(heavier, other, lease) >= before * (1 - 1e-9)
    assert estimate(one, other, dearer) >= before * (1 - 1e-9)


def test_free_leases_of_single_devices_reach_the_fluid_bound() -> None:
    # 4 devices with 400 device-seconds, 12 with 400: 100 s against 33 s alone, 800 / 16 = 50 s together
    slow = PoolLoad(devices=4, fixed_s=0, work_device_s=400)
    quick = PoolLoad(devices=12, fixed_s=0, work_device_s=400)
    assert estimate(slow, quick, FREE, block=1) == pytest.approx(50.0)


def test_a_lease_costs_its_blocks_device_seconds_once_a_step() -> None:
    # 4 devices with 400 device-seconds, 12 with 200, a lease of 5 s for blocks of 4. One block, away all the time:
    # 400/T = 4 + 4 * (1 - 5/T), T = 52.5. Two: (600 + 2 * 4 * 5) / 16 = 40, where 6 of their 7 devices are needed
    slow = PoolLoad(devices=4, fixed_s=0, work_device_s=400)
    quick = PoolLoad(devices=12, fixed_s=0, work_device_s=200)
    assert estimate(slow, quick, SwitchCosts(in_s=3, out_s=2)) == pytest.approx(40.0)
    one_block = PoolLoad(devices=4, fixed_s=0, work_device_s=50)
    assert estimate(slow, one_block, SwitchCosts(in_s=3, out_s=2)) == pytest.approx((450 + 20) / 8)


def test_a_lease_that_costs_more_than_the_step_is_not_taken() -> None:
    slow = PoolLoad(devices=4, fixed_s=0, work_device_s=400)
    quick = PoolLoad(devices=12, fixed_s=0, work_device_s=400)
    assert estimate(slow, quick, SwitchCosts(in_s=90, out_s=10)) == 100.0
    assert estimate(slow, quick, FREE, block=16) == 100.0, "no block of 16 devices to lend"


def test_fixed_seconds_are_not_shortened_by_borrowing() -> None:
    tail = PoolLoad(devices=4, fixed_s=90, work_device_s=40)
    assert estimate(tail, PoolLoad(devices=12, fixed_s=0, work_device_s=1), FREE) > 90
