"""What `bidirectional` looks at before it lends: counts, rates, and how much a block would be used at home."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from planner.policy.counted import count_unconsumed
from planner.policy.pulls import startable
from planner.policy.state import Block, Estimates, State
from planner.stage_model import slope

SHORTEST_SWITCHES = 12
"""Times of its own switch there and back that a lease is looked ahead for: where groups take hardly longer than that,
shorter ones would go back and forth."""

LONGEST_ROUNDS = 8
"""Group latencies beyond which no lease is foreseen: lengths and speeds will have changed by then."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LentRollouters:
    """The auxiliary rollouters of one lease."""

    block: int
    replicas: int
    age_s: float
    """seconds since they began to generate; 0 while they prepare"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outlook:
    """Counts and rates of one decision."""

    now: float
    """seconds"""
    estimates: Estimates
    group_s: float
    """seconds per group and rollout replica that the gates reckon with"""
    train_s: float
    """seconds per group and trainer replica"""
    step_groups: int
    """groups of a step"""
    steps_ahead: int
    """k: whole steps that rollouters may be ahead"""
    tail_s: float
    """seconds of M_r that do not shrink with more replicas"""
    rollouters: int
    """replicas in the rollouter role, with those that prepare for it or are on their way home to it"""
    trainers: int
    """replicas in the trainer role, counted alike"""
    startable: int
    """groups that a replica with the newest version may start"""
    returned: int
    """unfinished groups that no replica holds"""
    in_flight: int
    """groups that rollouters hold"""
    left: float
    """groups' worth of tokens that they still need"""
    room: int
    """groups that rollouters can take at once"""
    trainable: int
    """groups that a trainer may take now"""
    finished: int
    """groups that are finished and that no step has taken"""
    training: int
    """groups of running chunks"""
    needed: int
    """groups that this step still lacks: neither taken nor finished"""
    untrained: int
    """groups of this step that are in no chunk and whose gradient is missing"""
    home_train: tuple[Block, ...]
    home_rollout: tuple[Block, ...]
    lent_train: tuple[Block, ...]
    """training blocks that are lent, those on their way home included"""
    lent_rollout: tuple[Block, ...]
    """rollout blocks that are lent, those on their way home included"""
    auxiliaries: tuple[LentRollouters, ...]
    held: Mapping[int, int]
    """block -> groups that its rollouters hold"""
    free: Mapping[int, int]
    """block -> groups that its rollouters can take at once"""

    def rollout_rate(self, replicas: int) -> float:
        """Groups per second at full load."""
        return replicas / self.group_s

    def steady_rate(self, replicas: int) -> float:
        """Groups per second over many steps: the tail of a step's groups, the fixed part of M_r, is hidden behind those
        of the steps that may be under way at once, and no more."""
        if replicas <= 0:
            return 0.0
        groups = self.step_groups
        return groups / (groups * self.group_s / replicas + self.tail_s / (1 + self.steps_ahead))

    def train_rate(self, replicas: int) -> float:
        """Groups per second."""
        return replicas / self.train_s

    @property
    def home_rollouters(self) -> int:
        """Rollouters that are no auxiliaries."""
        return self.rollouters - sum(lent.replicas for lent in self.auxiliaries)

    def supply(self, replicas: int, groups: float) -> float:
        """Groups per second that rollouters finish while they hold so many groups."""
        if groups <= 0 or replicas <= 0:
            return 0.0
        estimates = self.estimates
        each = groups / replicas
        full = estimates.slot_groups / (estimates.slot_groups + estimates.half_groups)
        return self.rollout_rate(replicas) * min(1.0, each / (each + estimates.half_groups) / full)

    def supply_over(self, horizon_s: float, newly_lent: int, without: frozenset[int] = frozenset()) -> float:
        """Groups per second that rollouters finish on average over a time to come: those at home at the load they have
        now, those of a lease from when their first groups have gone all the way. `without`: leases left out."""
        home = self.home_rollouters
        working = sum(lent.replicas for lent in self.auxiliaries if lent.age_s > 0)
        # what they can take at this moment counts as held: gates come before pulls
        held = self.in_flight + min(self.room, self.startable + self.returned)
        rate = self.supply(home, held * home / max(1, home + working))
        rate += self._ripe(newly_lent, 0.0, horizon_s)
        for lent in self.auxiliaries:
            if lent.block not in without:
                rate += self._ripe(lent.replicas, lent.age_s, horizon_s)
        return rate

    def _ripe(self, replicas: int, age_s: float, horizon_s: float) -> float:
        ripe_s = horizon_s - (self.estimates.group_latency_s - age_s)
        return self.rollout_rate(replicas) * min(1.0, ripe_s / horizon_s) if replicas and ripe_s > 0 else 0.0

    def lease_length(self, work: int, block: Block, trainers: int, newly_lent: int) -> float:
        """Seconds that a block's rollouters would find groups to start, of `work` that are left for them: the others
        start some too, and the trainers that stay at home open new ones."""
        in_s = self.estimates.rollout_on_train.in_s
        opened = self.train_rate(trainers - block.primaries)
        others = self.rollout_rate(self.rollouters + newly_lent)
        left = work - max(0.0, others - opened) * in_s
        drain = others + self.rollout_rate(block.auxiliaries) - opened
        longest_s = LONGEST_ROUNDS * self.estimates.group_latency_s
        return min(left / drain, longest_s) if drain > 0 else longest_s

    def use_at_home(self, block: Block, trainers: int, horizon_s: float, supply: float) -> float:
        """Share of a time to come that the block's trainers would be busy at home, as the last ones of `trainers` to
        be served: by `supply` groups per second and what is finished now."""
        others = self.train_rate(trainers - block.primaries)
        coming = supply + (self.finished + self.trainable) / horizon_s
        return min(1.0, max(0.0, (coming - others) / self.train_rate(block.primaries)))

    @property
    def round_trip_s(self) -> float:
        """Seconds of a lease to the other role and back that delivers a single round of groups, or that the switch is a
        small part of."""
        costs = self.estimates.rollout_on_train
        switch_s = costs.in_s + costs.out_s
        return max(self.estimates.group_latency_s + switch_s, SHORTEST_SWITCHES * switch_s)

    def dry_in(self, rollouters: int, trainers: int, *, at_close: bool) -> float:
        """Seconds until the trainers have nothing to do, with what is finished and what these rollouters add to it at
        full load. `at_close`: this step is complete, only what no step has taken counts."""
        if trainers <= 0:
            return math.inf
        stock = self.finished if at_close else self.finished + self.trainable
        deficit = self.train_rate(trainers) - self.steady_rate(rollouters)
        return stock / deficit if deficit > 0 else math.inf


def outlook_of(state: State, now: float, trainable: int) -> Outlook:
    """The outlook of a state that has estimates. `trainable`: groups that a trainer may take now."""
    estimates = state.estimates
    assert estimates is not None
    homes: dict[str, list[Block]] = {"rollout": [], "train": []}
    lent: dict[str, list[Block]] = {"rollout": [], "train": []}
    auxiliaries: list[LentRollouters] = []
    rollouters, trainers = len(state.rollout), len(state.train)
    for block in state.blocks:
        if block.lease_state == "dead":
            continue
        (homes if block.lease is None else lent)[block.pool].append(block)
        if block.lease is None:
            continue
        train = block.pool == "train"
        if block.lease_state in ("granted", "preparing"):
            rollouters, trainers = rollouters + train * block.auxiliaries, trainers + (not train) * block.auxiliaries
        elif block.lease_state == "releasing":
            rollouters, trainers = rollouters + (not train) * block.primaries, trainers + train * block.primaries
        if train and block.lease_state != "releasing":
            age_s = max(0.0, now - block.since - estimates.rollout_on_train.in_s)
            auxiliaries.append(LentRollouters(block=block.block, replicas=block.auxiliaries, age_s=age_s))
    held: dict[int, int] = {}
    free: dict[int, int] = {}
    left = 0.0
    current, groups, places = -2, 0, 0
    for replica in state.rollout:  # replicas of a block mostly stand together: one entry a block, not one a replica
        if replica.block != current:
            held[current], free[current] = held.get(current, 0) + groups, free.get(current, 0) + places
            current, groups, places = replica.block, 0, 0
        groups += replica.in_flight
        places += replica.free_groups
        left += replica.left_groups
    held[current], free[current] = held.get(current, 0) + groups, free.get(current, 0) + places
    in_flight, room = sum(held.values()), sum(free.values())
    training = sum(replica.groups for replica in state.train)
    finished = count_unconsumed(state.unconsumed).finished
    steady = state.bound.k >= 1 and state.improvements.full_load_rate
    return Outlook(
        now=now,
        estimates=estimates,
        group_s=estimates.full_load_group_s if steady else slope(estimates.rollout),
        train_s=slope(estimates.train),
        step_groups=state.bound.prompts_per_step,
        steps_ahead=state.bound.k,
        tail_s=max(0.0, estimates.rollout.seconds(1, 1) - slope(estimates.rollout)),
        rollouters=rollouters,
        trainers=trainers,
        startable=startable(state, state.published),
        returned=len(state.returned),
        in_flight=in_flight,
        left=left,
        room=room,
        trainable=trainable,
        finished=finished,
        training=training,
        needed=max(0, state.bound.prompts_per_step - len(state.step.taken) - finished),
        untrained=state.bound.prompts_per_step - state.step.trained - training,
        home_train=tuple(homes["train"]),
        home_rollout=tuple(homes["rollout"]),
        lent_train=tuple(lent["train"]),
        lent_rollout=tuple(lent["rollout"]),
        auxiliaries=tuple(auxiliaries),
        held=held,
        free=free,
    )
