"""Whether lending the other pool's idle devices pays: one gate per direction, on plain numbers and a stage-time model.

A gate is a prediction, nothing is moved here: the time without a lease against the time with it, all of the switch
cost included (design section 7). Both are strict, so at equality the devices stay at home. A number that is missing
(nan, or an infinite cost) never admits.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

from planner.policy.wording import told
from planner.stage_model import StageTime


@dataclass(frozen=True, slots=True, kw_only=True)
class RolloutVerdict:
    """Whether trainers become rollouters for a while, and who gets how many of the missing groups."""

    admit: bool
    """true: grant the lease"""
    gain_s: float
    """seconds by which the groups are finished earlier, switching not counted: M_r(Q, d_p) - M_r(Q, d_p + d_a)"""
    cost_s: float
    """seconds of switching: C_in + C_out"""
    auxiliary_groups: int
    """Q_a, groups reserved for the auxiliaries; 0 when rejected"""
    primary_groups: int
    """groups left to the primaries; all of them when rejected"""
    reason: str
    """one sentence with its numbers"""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainVerdict:
    """Whether rollouters become trainers for a while. The lease pays when `borrow_s` is below `alone_s`."""

    admit: bool
    """true: grant the lease"""
    drained: int
    """units at the head that the primaries finish while the auxiliaries prepare"""
    alone_s: float
    """T_no, seconds in which the primaries train all units"""
    joint_s: float
    """seconds in which both sides train the units that are not drained; 0 when there are none"""
    borrow_s: float
    """T_borrow, seconds with the lease: C_in + joint_s + C_out + C_grad"""
    reason: str
    """one sentence with its numbers"""

    @property
    def gain_s(self) -> float:
        """Seconds by which the units are trained earlier, switching not counted."""
        return self.alone_s - self.joint_s

    @property
    def cost_s(self) -> float:
        """Seconds of switching: C_in + C_out + C_grad."""
        return self.borrow_s - self.joint_s


def split_groups(*, groups: int, primaries: int, auxiliaries: int) -> tuple[int, int]:
    """(primary share, auxiliary share) of the groups: Q_a = round(d_a / (d_p + d_a) * Q), halves up.

    In integers: Python's round would give 2 of 5 to one of two replicas, and binary fractions miss other halves.
    Raises ValueError when there is no replica or a number is below 0.
    """
    if min(groups, primaries, auxiliaries) < 0 or primaries + auxiliaries == 0:
        raise ValueError(
            "groups and replicas must be at least 0, and one replica must exist, got "
            f"{groups} groups, {primaries} primaries, {auxiliaries} auxiliaries"
        )
    replicas = primaries + auxiliaries
    auxiliary_share = (2 * groups * auxiliaries + replicas) // (2 * replicas)
    return groups - auxiliary_share, auxiliary_share


def gate_rollout_on_train(
    *, groups: int, primaries: int, auxiliaries: int, model: StageTime, in_s: float, out_s: float
) -> RolloutVerdict:
    """Admit iff M_r(Q, d_p) - M_r(Q, d_p + d_a) > C_in + C_out and at least one group falls to the auxiliaries.

    `groups`: Q, groups that the trainer lacks. `model`: seconds of rollouts. Raises ValueError like `split_groups`.
    """
    primary_groups, auxiliary_groups = split_groups(groups=groups, primaries=primaries, auxiliaries=auxiliaries)
    alone_s = model.seconds(groups, primaries)
    joint_s = model.seconds(groups, primaries + auxiliaries)
    gain_s, cost_s = alone_s - joint_s, in_s + out_s
    sides = f"{_count(primaries, 'primary', 'primaries')} and {_count(auxiliaries, 'auxiliary', 'auxiliaries')}"
    if groups == 0:
        admit, reason = False, "the trainer lacks no groups"
    elif auxiliary_groups == 0:
        admit, reason = False, f"none of {_count(groups, 'group')} falls to the auxiliaries beside {sides}"
    else:
        admit = gain_s > cost_s
        reason = (
            f"{_count(groups, 'group')} by {sides} take {told(joint_s)} instead of {told(alone_s)}: the gain of "
            f"{told(gain_s)} {'exceeds' if admit else 'does not exceed'} the switch cost of {told(cost_s)}"
        )
    return RolloutVerdict(
        admit=admit,
        gain_s=gain_s,
        cost_s=cost_s,
        auxiliary_groups=auxiliary_groups if admit else 0,
        primary_groups=primary_groups if admit else groups,
        reason=reason,
    )


def drain_prefix(*, units: Sequence[float], in_s: float, model: StageTime, primaries: int) -> int:
    """Units of the longest prefix that the primaries finish within C_in; one that ends exactly then belongs to it.

    `units`: workload of each (group-equivalents), in the order of training; none is skipped for a smaller one behind.
    """
    drained = 0
    for work in accumulate(units):
        if not model.seconds(work, primaries) <= in_s:
            break  # also at a time that is no number
        drained += 1
    return drained


def gate_train_on_rollout(
    *,
    units: Sequence[float],
    primaries: int,
    auxiliaries: int,
    model: StageTime,
    in_s: float,
    out_s: float,
    grad_s: float,
) -> TrainVerdict:
    """Admit iff C_in + M_t(U', d_p + d_a) + C_out + C_grad < M_t(U, d_p), with U' = U without its drained prefix.

    `units`: workload of each unit that remains (group-equivalents), in the order of training. `model`: seconds of
    training. An empty U' rejects, and so does having no auxiliary.
    """
    drained = drain_prefix(units=units, in_s=in_s, model=model, primaries=primaries)
    rest = units[drained:]
    alone_s = model.seconds(math.fsum(units), primaries)
    joint_s = model.seconds(math.fsum(rest), primaries + auxiliaries)
    borrow_s = in_s + joint_s + out_s + grad_s
    if not units:
        admit, reason = False, "no trainer work remains"
    elif not rest:
        admit = False
        reason = f"the primaries finish all {_count(drained, 'unit')} within the {told(in_s)} of preparing"
    elif auxiliaries == 0:
        admit, reason = False, "there is no auxiliary to lend"
    else:
        admit = borrow_s < alone_s
        reason = (
            f"{_count(len(units), 'unit')} take {told(borrow_s)} with {_count(auxiliaries, 'auxiliary', 'auxiliaries')}"
            f" ({drained} while they prepare, the rest in {told(joint_s)}, switching {told(in_s + out_s + grad_s)}), "
            f"which is {'less' if admit else 'not less'} than {told(alone_s)} without"
        )
    return TrainVerdict(
        admit=admit, drained=drained, alone_s=alone_s, joint_s=joint_s, borrow_s=borrow_s, reason=reason
    )


def _count(number: int, one: str, many: str | None = None) -> str:
    return f"{number} {one if number == 1 else many or one + 's'}"
