"""Below s = 1: how many training blocks to lend, and when to bring them home, by when the step ends."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from planner.policy.outlook import Outlook
from planner.policy.step_end import FIRST_GROUP, StepWork, rolled_in, step_end
from planner.stage_model import slope

RETURNS = ((0.0, 0.0), (0.0, 0.5), (0.0, 1.0), (0.5, 0.5), (0.5, 1.0), (1.0, 1.0))
"""Ways of bringing lent blocks home, as shares of the time between the first group and the last: when the first block
leaves and when the last one does."""

BATCHES = 4
"""Lent blocks come home in at most so many batches in a prediction; more would cost time and change it little."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Training blocks in a prediction."""

    home_rollouters: int
    """rollouters that are no auxiliaries"""
    trainers: int
    """trainers at home when nothing returns and nothing is lent"""
    lent: int
    """blocks whose rollouters generate"""
    auxiliaries: int
    """rollouters of a lent block"""
    primaries: int
    """trainers of a block"""
    in_s: float
    out_s: float
    """seconds of C_in and C_out"""


def plan_of(view: Outlook) -> Plan:
    """The blocks as they are."""
    some = (*view.home_train, *view.lent_train)[0]
    costs = view.estimates.rollout_on_train
    return Plan(
        home_rollouters=view.home_rollouters,
        trainers=view.trainers,
        lent=len(view.auxiliaries),
        auxiliaries=some.auxiliaries,
        primaries=some.primaries,
        in_s=costs.in_s,
        out_s=costs.out_s,
    )


def work_of(view: Outlook, *, helpers: bool) -> StepWork:
    """What is left of the step. `helpers`: the RollPool may train when it has nothing to generate."""
    estimates = view.estimates
    group_s = slope(estimates.rollout)
    fresh = max(0, view.needed - view.in_flight - view.returned)
    running = min(view.needed, view.in_flight)
    waiting = min(view.needed - running, view.returned)
    rollout = fresh + min(view.left * running / max(1, view.in_flight), running) + waiting
    tail_s = max(0.0, estimates.rollout.seconds(1, 1) - group_s)
    return StepWork(
        rollout=rollout,
        tail_s=tail_s * min(1.0, rollout / view.needed) if view.needed else 0.0,
        trainable=view.trainable,
        untrained=view.untrained + view.training / 2,
        group_s=group_s,
        train_s=view.train_s,
        helpers=sum(block.auxiliaries for block in view.home_rollout) if helpers else 0,
        helpers_in_s=estimates.train_on_rollout.in_s,
        spare_s=estimates.optimizer_s + estimates.sync_s + tail_s * FIRST_GROUP,
    )


def counts_to_try(most: int) -> list[int]:
    """0, all, and some between."""
    return sorted({0, min(1, most), min(2, most), most // 4, most // 2, most * 3 // 4, most})


def end_lending(work: StepWork, plan: Plan, count: int) -> float:
    """Seconds until the step ends when so many idle blocks more are lent now."""
    rollouters = [(0.0, plan.home_rollouters + plan.auxiliaries * plan.lent)]
    if count:
        rollouters.append((plan.in_s, rollouters[0][1] + plan.auxiliaries * count))
    trainers = [(0.0, plan.trainers - plan.primaries * count)]
    return _best_end(work, plan, plan.lent + count, rollouters, trainers, plan.in_s if count else 0.0)


def end_returning(work: StepWork, plan: Plan, count: int) -> float:
    """Seconds until the step ends when so many lent blocks go home now."""
    lent = plan.lent - count
    rollouters = [(0.0, plan.home_rollouters + plan.auxiliaries * lent)]
    trainers = [(0.0, plan.trainers)]
    if count:
        trainers.append((plan.out_s, plan.trainers + plan.primaries * count))
    return _best_end(work, plan, lent, rollouters, trainers, 0.0)


def _best_end(
    work: StepWork,
    plan: Plan,
    lent: int,
    rollouters: list[tuple[float, int]],
    trainers: list[tuple[float, int]],
    ready_s: float,
) -> float:
    """The earliest end over the ways of bringing the lent blocks home, none of them before `ready_s`."""
    if lent == 0:
        return step_end(work, rollouters, trainers)
    rolled_s = rolled_in(work, rollouters)
    first_s = max(ready_s, work.first_s)
    span_s = max(rolled_s - first_s, 0.0)
    batches = min(lent, BATCHES)
    ends = []
    for leave, stay in RETURNS:
        generating, training = list(rollouters), list(trainers)
        home = 0
        for batch in range(batches):
            share = leave + (stay - leave) * batch / max(1, batches - 1)
            at = max(ready_s, first_s + span_s * share)
            gone = lent * (batch + 1) // batches
            generating.append((at, rollouters[-1][1] - plan.auxiliaries * gone))
            home = trainers[-1][1] + plan.primaries * gone
            training.append((at + plan.out_s, home))
        # a block that comes home after the next step has work for it holds that one up
        ends.append(max(step_end(work, generating, sorted(training)), training[-1][0] - work.spare_s))
    return min(ends)


def best(ends: Iterable[tuple[float, int]]) -> tuple[float, int]:
    """The earliest end and its count; at equal ends the smaller count: what moves nothing."""
    return min(ends)
