"""Random schedules against the staleness rules: replicas, trainer and operator as adversaries, checked from outside.

    python tests/policy/brute_force.py --schedules 20000

Each schedule draws B (1 to 12), s (0 to 4, fractions too), one to five replicas with their own slots and publish
delays, that update in flight or only when empty, durations with heavy tails, a streaming or whole-batch trainer, 5% of
groups excluded, 1% generated again under newer weights, and in more than half of the schedules live changes of s.
A schedule ends after its steps; anything else is a finding:

- deadlock: nothing is left to happen and the step is not full
- violation: a step with a group too old, too many slipped ones, a group trained twice, or a wrong number of groups
- left behind: at the start of a step some group can no longer be trained in time

The checks do their own arithmetic; only `may_start`, `choose` and `choose_many` come from the code under test.
"""

from __future__ import annotations

import argparse
import heapq
import itertools
import json
import math
import random
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from planner.policy.staleness import Bound, Unconsumed, choose, choose_many, may_start

STALENESSES = (0, 0, 0.1, 0.25, 0.3, 0.5, 0.75, 0.9, 1, 1, 1.25, 1.5, 1.9, 2, 2, 2.3, 2.5, 3, 3.3, 3.75, 4)
"""Whole values and fractions on both sides of each of them; 2.3 is the one that binary floors get wrong."""


@dataclass
class Group:
    group_id: int
    version: int
    bound: Bound
    order: int | None = None


@dataclass
class Replica:
    slots: int
    in_flight_updates: bool
    drains: bool  # starts nothing while newer weights wait for it to be empty
    delay: float
    version: int = 0
    newest: int = 0
    active: set[int] = field(default_factory=set)


class Schedule:
    """One random run. `play` gives the first finding or None; `changes`, `mixed_steps` say what it exercised."""

    def __init__(self, seed: int) -> None:
        rng = self.rng = random.Random(seed)
        self.B = rng.randint(1, 12)
        self.bound = Bound(staleness=rng.choice(STALENESSES), prompts_per_step=self.B)
        self.steps = rng.randint(4, 9)
        self.whole_batch = rng.random() < 0.3
        self.one_by_one = rng.random() < 0.2
        self.max_chunk = rng.randint(1, self.B)
        self.chunk_s = rng.choice((0.0, 0.05, 0.5, 2.0))
        self.tail = rng.choice((0.0, 0.5, 2.5))
        self.replicas = [
            Replica(
                slots=rng.randint(1, 2 * self.B + 2),
                in_flight_updates=rng.random() < 0.5,
                drains=rng.random() < 0.5,
                delay=rng.choice((0.0, 0.1, 1.0, 6.0)),
            )
            for _ in range(rng.randint(1, 5))
        ]
        self.now = 0.0
        self.events: list[tuple[float, int, Callable[[], None]]] = []
        self.ticket = itertools.count()
        self.finished = itertools.count()
        self.groups: dict[int, Group] = {}  # unconsumed
        self.trained: set[int] = set()
        self.version = self.started = self.excluded = self.changes = self.mixed_steps = 0
        self.taken: list[Group] = []
        self.training = False
        for _ in range(rng.choice((0, 1, 1, 2, 3, 4)) if rng.random() < 0.8 else 0):
            self.after(rng.uniform(0, 2.5 * self.steps), self.change)

    def after(self, seconds: float, action: Callable[[], None]) -> None:
        heapq.heappush(self.events, (self.now + seconds, next(self.ticket), action))

    def play(self) -> str | None:
        while self.version < self.steps:
            self.start_groups()
            problem = self.feed_trainer()
            if problem or self.version == self.steps:
                return problem
            if not self.events:
                return f"deadlock at step {self.version} with {len(self.taken)} of {self.B} groups"
            self.now, _, action = heapq.heappop(self.events)
            action()
        return None

    # the operator

    def change(self) -> None:
        self.bound = Bound(staleness=self.rng.choice(STALENESSES), prompts_per_step=self.B)
        self.changes += 1

    # the rollouters

    def start_groups(self) -> None:
        for replica in self.rng.sample(self.replicas, len(self.replicas)):
            while len(replica.active) < replica.slots and not (replica.drains and replica.newest > replica.version):
                if not may_start(
                    loaded_version=replica.version, started=self.started, excluded=self.excluded, bound=self.bound
                ):
                    break
                group = Group(self.started, replica.version, self.bound)
                self.started += 1
                self.groups[group.group_id] = group
                replica.active.add(group.group_id)
                self.generate(replica, group)

    def generate(self, replica: Replica, group: Group) -> None:
        seconds = self.rng.uniform(0.2, 1.0) * math.exp(self.rng.gauss(0, self.tail))
        self.after(min(seconds, 40.0), partial(self.end_group, replica, group))

    def end_group(self, replica: Replica, group: Group) -> None:
        if self.rng.random() < 0.01:  # its replica lost it: generated again, still under the bound it was started under
            group.version = replica.version
            self.generate(replica, group)
            return
        replica.active.discard(group.group_id)
        group.order = next(self.finished)
        if self.rng.random() < 0.05:
            del self.groups[group.group_id]
            self.excluded += 1
        self.load(replica)

    def load(self, replica: Replica) -> None:
        if replica.in_flight_updates or not replica.active:
            replica.version = replica.newest

    def publish(self, replica: Replica, version: int) -> None:
        replica.newest = max(replica.newest, version)
        self.load(replica)

    # the trainer

    def feed_trainer(self) -> str | None:
        while not self.training:
            if len(self.taken) == self.B:
                self.training = True
                self.after(self.rng.choice((0.0, 0.1, 1.0)), self.end_step)
                return self.check_step()
            problem = self.check_left_behind() if not self.taken else None
            if problem:
                return problem
            picked = self.pick()
            if not picked:
                return None
            for group_id in picked:
                self.taken.append(self.groups.pop(group_id))
            if self.chunk_s:
                self.training = True
                self.after(self.chunk_s, self.end_chunk)
        return None

    def pick(self) -> tuple[int, ...]:
        state: dict[str, Any] = {
            "version": self.version,
            "slots_left": self.B - len(self.taken),
            "taken": [(group.version, group.bound) for group in self.taken],
            "unconsumed": [
                Unconsumed(
                    group_id=group.group_id,
                    version=group.version,
                    bound=group.bound,
                    finished=group.order is not None,
                    order=group.order or 0,
                )
                for group in self.groups.values()
            ],
        }
        if self.one_by_one and not self.whole_batch:
            group_id = choose(**state).group_id
            return () if group_id is None else (group_id,)
        limit = None if self.whole_batch else self.max_chunk
        picked = choose_many(**state, limit=limit).group_ids
        return () if self.whole_batch and len(picked) < self.B else picked

    def end_chunk(self) -> None:
        self.training = False

    def end_step(self) -> None:
        self.training = False
        self.taken = []
        self.version += 1
        for replica in self.replicas:
            self.after(replica.delay * self.rng.random(), partial(self.publish, replica, self.version))

    # the checks, from the design's text alone

    def check_left_behind(self) -> str | None:
        slipping: Counter[float] = Counter()
        for group in self.groups.values():
            s = group.bound.staleness
            lag = self.version - group.version
            slipping[s] += lag == math.floor(s) + 1
            if lag > math.floor(s) + 1 or slipping[s] > self.may_slip(s):
                return f"left behind: group of lag {lag} under s={s:g} (B={self.B}) when step {self.version} starts"
        return None

    def check_step(self) -> str | None:
        slipping: Counter[float] = Counter()
        for group in self.taken:
            s = group.bound.staleness
            lag = self.version - group.version
            slipping[s] += lag == math.floor(s) + 1
            if not 0 <= lag <= math.ceil(s) or slipping[s] > self.may_slip(s):
                return f"violation: lag {lag} under s={s:g} (B={self.B}) in step {self.version}"
            if group.group_id in self.trained or group.order is None:
                return f"violation: group {group.group_id} trained twice or unfinished"
            self.trained.add(group.group_id)
        self.mixed_steps += len({group.bound.staleness for group in self.taken}) > 1
        everyone = len(self.trained) + self.excluded + len(self.groups)
        return None if everyone == self.started else f"violation: {self.started} started, {everyone} accounted for"

    def may_slip(self, s: float) -> int:
        return math.floor(s * self.B + 1e-9) - math.floor(s) * self.B


def run(schedules: int, *, first_seed: int = 0, stop_at: int = 5) -> dict[str, Any]:
    """Play the schedules of seeds first_seed.. and count; stops after `stop_at` findings, which it lists with seeds."""
    counts: Counter[str] = Counter()
    findings: list[str] = []
    began = time.perf_counter()
    for seed in range(first_seed, first_seed + schedules):
        schedule = Schedule(seed)
        problem = schedule.play()
        counts["schedules"] += 1
        counts["with_live_change"] += schedule.changes > 0
        counts["steps"] += schedule.version
        counts["steps_of_mixed_bounds"] += schedule.mixed_steps
        counts["groups_started"] += schedule.started
        counts["groups_excluded"] += schedule.excluded
        for kind in ("deadlock", "violation", "left behind"):
            counts[kind] += problem is not None and problem.startswith(kind)
        if problem:
            findings.append(f"seed {seed}: {problem}")
            if len(findings) >= stop_at:
                break
    return {**counts, "findings": findings, "seconds": round(time.perf_counter() - began, 1)}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--schedules", type=int, default=20_000)
    parser.add_argument("--first-seed", type=int, default=0)
    arguments = parser.parse_args()
    result = run(arguments.schedules, first_seed=arguments.first_seed)
    print(json.dumps(result, indent=1))
    raise SystemExit(1 if result["findings"] else 0)
