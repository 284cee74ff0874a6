"""How long a step would take if the pool that is done earlier lent devices to the slower one: an estimate for planning.

From mean stage times alone, in closed form and one bisection. It knows no queue, no version and no tail; the simulator
does. It decides nothing: whether a lease opens is for the gates of `planner.policy`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from planner.profile import SwitchCosts

PRECISION = 1e-12
"""Relative error of the bisection: far below the planner's tie of 1e-9, so that it makes no order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolLoad:
    """What one step asks of a pool: seconds on g devices = fixed_s + work_device_s / g."""

    devices: int
    """g, devices of the pool"""
    fixed_s: float
    """seconds that more devices do not shorten: the tail of a rollout, a chunk's overhead"""
    work_device_s: float
    """device-seconds that any number of devices shares"""

    @property
    def seconds(self) -> float:
        """Seconds of a step on the pool's own devices."""
        return self.fixed_s + self.work_device_s / self.devices


def borrowing_step_s(*, borrower: PoolLoad, lender: PoolLoad, block: int, lease: SwitchCosts) -> float:
    """Estimated seconds of a step when the pool that is done earlier lends whole blocks of devices to the slower one.

    `block`: L = lcm(rho_r, rho_t), the fewest devices that hold whole replicas of either role. A step of T seconds
    needs w / (T - a) devices of a stage with fixed seconds a and work w, so the borrower is lent X = w_b / (T - a_b) -
    g_b of them on average. A lent block works at most all of the step but its lease's C = C_in + C_out + C_grad, once
    per step: n = ceil(X / (L * (1 - C/T))) blocks are lent, which must exist. T is the least for which it all fits:

        w_b / (T - a_b) + w_l / (T - a_l) + n * L * C / T <= g_b + g_l

    Every term falls as T grows, hence the bisection. The result is never above the step without borrowing, never below
    what the best split of infinitely divisible devices takes, and never falls when a time or a cost grows. An estimate:
    a device is as fast at either role, leases go in one direction only, and fixed seconds stay lost, although leases
    fill part of the tails as well, so it is on the careful side.
    """
    lease_s = lease.in_s + lease.out_s + lease.grad_s
    devices = borrower.devices + lender.devices

    def fits(seconds: float) -> bool:
        needed = borrower.work_device_s / (seconds - borrower.fixed_s)
        lent = max(0.0, needed - borrower.devices)
        blocks = math.ceil(lent / (block * (1 - lease_s / seconds)))
        own = lender.work_device_s / (seconds - lender.fixed_s)
        return blocks * block <= lender.devices and needed + own + blocks * block * lease_s / seconds <= devices

    too_short, enough = max(borrower.fixed_s, lender.fixed_s, lease_s), borrower.seconds
    while enough - too_short > PRECISION * enough:
        middle = (too_short + enough) / 2
        if fits(middle):
            enough = middle
        else:
            too_short = middle
    return enough
