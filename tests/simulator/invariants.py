"""What holds for every simulated run, whatever the policy decides: checked from outside, by the design's text alone.

`problems(setup, trace)` looks at a finished run, one sentence a problem. `Watched` is a simulator that looks into its
books after every decision and stops a run that decides without end.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from itertools import pairwise

from planner.policy import actions as act
from planner.policy.idle import CAUSES
from planner.simulator.bounds import work_device_s
from planner.simulator.setup import Setup
from planner.simulator.simulator import Simulator
from planner.simulator.trace import Lease, SimulatedStep, Trace
from planner.simulator.workload import Workload

PRECISION = 1e-6
"""Relative error of sums of some thousand floats of seconds, with room."""

MOST_DECISIONS = 20_000
"""Decisions of a run of some hundred groups: ten times what any of them needs, so more is a policy that flaps."""

BUSY = {"rollout", "train", "grad_merge", "optimizer", "weight_sync", "switch_in", "switch_out", "failure"}
"""Kinds of spans that a simulated device can have."""


class Watched(Simulator):
    """Raises AssertionError when its books do not add up, RuntimeError for a policy that never comes to an end."""

    def _decide(self) -> None:
        super()._decide()
        if self.trace.decisions > MOST_DECISIONS:
            raise RuntimeError(f"flapping: {self.trace.decisions} decisions at {self.now:.1f} s, {self.describe()}")
        world, step = self.world, self.world.step
        held = [group for replica in self.world.rollouters.values() for group in replica.groups] + list(world.returned)
        finished = world.tally.picture().finished
        assert len(held) == len(set(held)), f"a group is in two places at {self.now:.1f} s: {self.describe()}"
        assert len(held) + finished == len(world.tally), f"a group is nowhere at {self.now:.1f} s: {self.describe()}"
        running = [group for t in world.trainers.values() for chunk in t.chunks for group in chunk]
        known = len(step.queue) + len(running) + step.trained
        assert known == len(step.taken), (
            f"{known} of the step's groups are known at {self.now:.1f} s: {self.describe()}"
        )


def problems(setup: Setup, trace: Trace) -> list[str]:
    """What is wrong with a finished run."""
    return [
        *_steps(setup, trace),
        *_staleness(setup, trace.steps),
        *_data_order(setup, trace),
        *_account(trace),
        *_leases(setup, trace.leases),
        *_actions(setup, trace),
        *_fluid(setup, trace),
    ]


def _steps(setup: Setup, trace: Trace) -> Iterator[str]:
    if [step.version for step in trace.steps] != list(range(setup.steps)):
        yield f"steps {[step.version for step in trace.steps]} of {setup.steps}"
    for before, after in pairwise(trace.steps):
        if after.began_at != before.ended_at:
            yield f"step {after.version} began at {after.began_at}, the one before ended at {before.ended_at}"
    for step in trace.steps:
        if step.ended_at < step.began_at:
            yield f"step {step.version} ended before it began"
        if len(step.places) != setup.prompts_per_step or sum(step.lags.values()) != setup.prompts_per_step:
            yield f"step {step.version} has {len(step.places)} groups of {setup.prompts_per_step}"


def _staleness(setup: Setup, steps: list[SimulatedStep]) -> Iterator[str]:
    s, B = setup.staleness, setup.prompts_per_step
    k = math.floor(s)
    slipping = math.floor(s * B + 1e-9) - k * B
    for step in steps:
        if min(step.lags) < 0 or max(step.lags) > math.ceil(s):
            yield f"staleness: step {step.version} has lags {step.lags} under s={s:g}"
        if step.lags.get(k + 1, 0) > slipping:
            yield f"staleness: step {step.version} has {step.lags[k + 1]} groups of lag {k + 1}, at most {slipping} may"


def _data_order(setup: Setup, trace: Trace) -> Iterator[str]:
    """Each place in exactly one step or excluded, and none left out."""
    used = Counter(place for step in trace.steps for place in step.places) + Counter(trace.excluded)
    twice = [place for place, times in used.items() if times > 1]
    if twice:
        yield f"data order: places {twice} were used twice"
    if setup.exclusion_rate == 0 and trace.excluded:
        yield "data order: groups were excluded without a reason"
    if sorted(used) != list(range(setup.steps * setup.prompts_per_step + len(trace.excluded))):
        yield f"data order: {len(used)} places up to {max(used)} were used, {len(trace.excluded)} excluded"


def _account(trace: Trace) -> Iterator[str]:
    account, whole = trace.account, trace.devices * trace.wall_s
    if not math.isclose(account.total_s, whole, rel_tol=PRECISION):
        yield f"account: {account.total_s:.6f} device-seconds of {whole:.6f}: {dict(account.busy)} {dict(account.idle)}"
    unknown = {cause for cause in account.idle if cause not in CAUSES} | {
        kind for kind, _ in account.busy if kind not in BUSY
    }
    if unknown:
        yield f"account: no words of the design: {unknown}"
    negative = {
        name: seconds
        for name, seconds in [*account.busy.items(), *account.idle.items()]
        if seconds < -PRECISION * whole
    }
    if negative:
        yield f"account: negative device-seconds: {negative}"


def _leases(setup: Setup, leases: list[Lease]) -> Iterator[str]:
    allowed = {"rollout_on_train": setup.rollout_on_train, "train_on_rollout": setup.train_on_rollout}
    for lease in leases:
        other_arm = setup.arm in allowed.keys() - {lease.direction}
        if setup.arm == "no_borrow" or other_arm or not setup.lendable or not allowed[lease.direction]:
            yield f"lease {lease.lease} was granted although {lease.direction} may not be"
        at_home = "train" if lease.block * setup.block_size >= setup.rollout_devices else "rollout"
        if not lease.direction.endswith(at_home):
            yield f"lease {lease.lease}: block {lease.block} of the {at_home} pool is lent as {lease.direction}"
        times = [lease.granted_at, lease.working_at, lease.ended_at, lease.released_at]
        known = [time for time in times if time is not None]
        if known != sorted(known):
            yield f"lease {lease.lease} goes back in time: {times}"
        if lease.released_at is not None and not lease.end_reason:
            yield f"lease {lease.lease} ended without a reason"
    for one in leases:
        for other in leases:
            until = math.inf if other.released_at is None else other.released_at
            if other.lease < one.lease and other.direction != one.direction and one.granted_at < until:
                yield f"lease {one.lease} was granted against lease {other.lease} of the other direction"
            if other.lease < one.lease and other.block == one.block and one.granted_at < until:
                yield f"block {one.block} was lent under leases {other.lease} and {one.lease} at once"


def _actions(setup: Setup, trace: Trace) -> Iterator[str]:
    """Only where the actions were kept."""
    for (before, _), (after, _) in pairwise(trace.actions):
        if after < before:
            yield f"time goes back from {before} to {after}"
    leaving: dict[int, list[tuple[float, float]]] = {}
    for lease in trace.leases:
        if lease.ended_at is not None:
            until = math.inf if lease.released_at is None else lease.released_at
            leaving.setdefault(lease.block, []).append((lease.ended_at, until))
    for at, action in trace.actions:
        if not action.reason:
            yield f"{action} has no reason"
        match action:
            case act.TrainChunk(device=device) | act.StartGroups(device=device) | act.ResumeGroups(device=device):
                block = device // setup.block_size
                if setup.lendable and any(ended < at < until for ended, until in leaving.get(block, ())):
                    yield f"{type(action).__name__} at {at:.3f} on block {block}, which is on its way home"
            case _:
                pass


def _fluid(setup: Setup, trace: Trace) -> Iterator[str]:
    """No schedule does the work in less device time than its parts need (noise makes devices faster than nominal)."""
    if setup.profile.noise:
        return
    workload = Workload(
        setup.profile.response_tokens,
        seed=setup.seed,
        group_size=setup.group_size,
        prompts_per_step=setup.prompts_per_step,
        steps=setup.steps,
    )
    needed = work_device_s(setup, workload, tuple(place for step in trace.steps for place in step.places))
    if needed > trace.devices * trace.wall_s * (1 + 1e-9):
        yield f"faster than possible: {needed:.3f} device-seconds of work in {trace.devices * trace.wall_s:.3f}"
