"""What `bidirectional` expects: rates of both roles, and when the step will end under a division of the devices."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from planner.policy.pulls import startable
from planner.stage_model import StageTime
from planner.policy.step_end import StepWork, rolled_in, step_end
from planner.policy.state import Block, Estimates, State


FIRST_SHARE = 1.0
"""Share of a full-load group latency until a rollouter that begins delivers its first groups."""


RETURNS = ((0.0, 0.0), (0.0, 0.5), (0.0, 1.0), (0.5, 0.5), (0.5, 1.0), (1.0, 1.0))
"""Ways of bringing lent blocks home, as shares of the time between the first group and the last: when the first block
leaves and when the last one does."""


def slope(model: StageTime) -> float:
    """Seconds per group and replica of a stage-time model, its fixed part left out."""
    return (model.seconds(64, 1) - model.seconds(32, 1)) / 32


@dataclass(frozen=True, slots=True, kw_only=True)
class Outlook:
    """The counts that gates need, taken from a state once a decision."""

    now: float
    estimates: Estimates
    rollouters: int
    """replicas in the rollouter role, those that prepare for it included"""
    trainers: int
    """replicas in the trainer role, those that prepare for it included"""
    startable: int
    returned: int
    in_flight: int
    left: float
    """groups' worth of tokens that groups in flight still need"""
    may_help: bool
    """the RollPool may be lent"""
    trainable: int
    """groups that a trainer may take now"""
    finished: int
    """groups that no step has taken"""
    training: int
    """groups of running chunks"""
    needed: int
    """groups that this step still lacks: neither taken nor finished"""
    untrained: int
    """groups of this step whose gradient is still to be computed, without those of running chunks"""
    home_train: tuple[Block, ...]
    home_rollout: tuple[Block, ...]
    lent_train: tuple[Block, ...]
    """training blocks that are lent"""
    lent_rollout: tuple[Block, ...]
    """rollout blocks that are lent"""
    kept_training: frozenset[int]
    """lent rollout blocks whose lease goes on into the next step"""
    per_block: tuple[int, int]
    """rollouters that a training block holds, trainers that it is worth"""

    coming_back: int
    """training blocks that are on their way home"""
    ages: tuple[tuple[int, int, float], ...]
    """(block, rollouters, seconds since they began) of each lease on the TrainPool"""
    primary_room: int
    """groups that rollouters at home, and auxiliaries at work, can take at once"""
    room: int
    """groups that all rollouters can take at once"""

    def supply_over(self, horizon_s: float, newly_lent: int, *, without: int | None = None) -> float:
        """Groups per second that rollouters finish on average over a time to come: those at home at what they hold
        now, those of a lease from when their first groups have gone all the way."""
        auxiliaries = sum(count for _, count, _ in self.ages)
        home = self.rollouters - auxiliaries
        held = self.in_flight * home / max(1, home + sum(count for _, count, age in self.ages if age > 0))
        rate = self.supply(home, round(held))
        for lent, count, age in (*self.ages, (-1, newly_lent, 0.0)):
            if lent == without:
                continue
            ripe = horizon_s - (self.estimates.group_latency_s - age)
            if ripe > 0:
                rate += self.rollout_rate(count) * min(1.0, ripe / horizon_s)
        return rate

    def supply(self, replicas: int, groups: int) -> float:
        """Groups per second that rollouters finish while they hold so many groups."""
        if groups == 0 or replicas == 0:
            return 0.0
        estimates = self.estimates
        each = groups / replicas
        full = estimates.slot_groups / (estimates.slot_groups + estimates.half_groups)
        load = each / (each + estimates.half_groups) / full
        return self.rollout_rate(replicas) * min(1.0, load)

    def utilisation(self, trainers: int, lent: int, supply: float) -> float:
        """Share of the time that `lent` of the trainers would be busy at home at this supply of groups per second, the
        others being served first."""
        return min(1.0, max(0.0, (supply - self.train_rate(trainers - lent)) / self.train_rate(lent)))

    def version_in(self, trainers: int) -> float:
        """Seconds until the next version when so many trainers work and are fed."""
        estimates = self.estimates
        if trainers <= 0:
            return math.inf
        return (self.untrained + self.training / 2) / self.train_rate(trainers) + estimates.optimizer_s + estimates.sync_s

    def home_use(self, block: Block, trainers: int, newly_lent: int) -> float:
        """Share of the time until a group that starts now has been generated, and the block has come home, that the
        block's trainers would be busy at home: it being one of `trainers`, and its rollouters not generating."""
        costs = self.estimates.rollout_on_train
        horizon_s = self.estimates.group_latency_s + costs.in_s + costs.out_s
        supply = self.supply_over(horizon_s, newly_lent, without=block.block)
        return self.utilisation(trainers, block.primaries, supply + (self.finished + self.trainable) / horizon_s)

    def dry_in(self, rollouters: int, trainers: int, closing: bool) -> float:
        """Seconds until trainers have nothing to do: what is finished, and what rollouters at home add to it."""
        if trainers <= 0:
            return math.inf
        stock = self.finished if closing else self.finished + self.trainable
        deficit = self.train_rate(trainers) - self.supply(rollouters, max(self.in_flight, rollouters * self.estimates.slot_groups))
        return stock / deficit if deficit > 0 else math.inf

    def rollout_rate(self, replicas: int) -> float:
        """Groups per second at full load."""
        return replicas / self.estimates.full_load_group_s

    def train_rate(self, replicas: int) -> float:
        """Groups per second."""
        return replicas / slope(self.estimates.train)

    def work(self) -> StepWork:
        """What is left of the step."""
        estimates = self.estimates
        unit = slope(estimates.rollout)
        fresh = max(0, self.needed - self.in_flight - self.returned)
        held = min(self.needed, self.in_flight + self.returned)
        left = self.left * held / max(1, self.in_flight) + min(self.returned, self.needed)
        rollout = fresh + min(left, held)
        tail_s = max(0.0, estimates.rollout.seconds(1, 1) - unit)
        return StepWork(
            rollout=rollout,
            tail_s=tail_s * min(1.0, rollout / self.needed) if self.needed else 0.0,
            trainable=self.trainable,
            untrained=self.untrained + self.training / 2,
            group_s=unit,
            train_s=slope(estimates.train),
            helpers=sum(block.auxiliaries for block in self.home_rollout) if self.may_help else 0,
            helpers_in_s=estimates.train_on_rollout.in_s,
        )

    def end_lending(self, count: int) -> float:
        """Seconds until the step ends when so many idle training blocks more are lent now, and all that are lent
        return at the best times."""
        work = self.work()
        lent = len(self.lent_train) - self.coming_back
        in_s = self.estimates.rollout_on_train.in_s if count else 0.0
        return self._best_return(work, count + lent, self.rollouters - lent * self.per_block[0], self.trainers - count * self.per_block[1], in_s, count)

    def end_returning(self) -> tuple[float, float]:
        """Seconds until the step ends when one lent block goes home now, and when none does."""
        work, lent = self.work(), len(self.lent_train) - self.coming_back
        rollouters = self.rollouters - lent * self.per_block[0]
        keep = self._best_return(work, lent, rollouters, self.trainers, 0.0, 0)
        now = self._best_return(
            work, lent - 1, rollouters, self.trainers + self.per_block[1], 0.0, 0, back_s=self.estimates.rollout_on_train.out_s
        )
        return now, keep

    def _best_return(
        self, work: StepWork, lent: int, home: int, trainers: int, in_s: float, joining: int, back_s: float = 0.0
    ) -> float:
        """The earliest end over some ways of bringing `lent` blocks home: at once, or one after the other.

        `home`: rollouters at home; `trainers`: those at home, from `back_s` on; the last `joining` of the lent blocks
        begin to generate after `in_s`.
        """
        out_s = self.estimates.rollout_on_train.out_s
        away, primaries = self.per_block
        start: list[tuple[float, int]] = [(0.0, home + away * (lent - joining))]
        if joining:
            start.append((in_s, home + away * lent))
        begin: list[tuple[float, int]] = [(0.0, trainers)]
        if back_s:
            begin = [(0.0, trainers - primaries), (back_s, trainers)]
        if lent == 0:
            return step_end(work, start, begin)
        rolled_s = rolled_in(work, start)
        first_s = max(in_s, work.first_s)
        span = max(rolled_s - first_s, 0.0)
        ends = []
        for begin_share, end_share in RETURNS:
            times = [
                max(in_s, first_s + span * (begin_share + (end_share - begin_share) * place / max(1, lent - 1)))
                for place in range(lent)
            ]
            rollouters = start + [(at, home + away * (lent - 1 - place)) for place, at in enumerate(times)]
            homes = begin + [(at + out_s, trainers + primaries * (place + 1)) for place, at in enumerate(times)]
            ends.append(step_end(work, rollouters, sorted(homes)))
        return min(ends)



def outlook_of(state: State, now: float, trainable: int) -> Outlook:
    """The outlook of a state that has estimates."""
    estimates = state.estimates
    assert estimates is not None
    home_train, home_rollout, lent_train, lent_rollout = [], [], [], []
    rollouters, trainers = len(state.rollout), len(state.train)
    for block in state.blocks:
        if block.lease_state == "dead":
            continue
        if block.lease is None:
            (home_train if block.pool == "train" else home_rollout).append(block)
            continue
        (lent_train if block.pool == "train" else lent_rollout).append(block)
        if block.lease_state == "preparing":
            if block.pool == "train":
                rollouters += block.auxiliaries
            else:
                trainers += block.auxiliaries
        elif block.lease_state == "releasing":
            if block.pool == "train":
                trainers += block.primaries
            else:
                rollouters += block.primaries
    B = state.bound.prompts_per_step
    finished = state.unconsumed.finished  # type: ignore[union-attr]
    taken = len(state.step.taken)
    training = sum(replica.groups for replica in state.train)
    some = home_train[0] if home_train else lent_train[0] if lent_train else None
    room = sum(replica.free_groups for replica in state.rollout)
    in_flight = sum(replica.in_flight for replica in state.rollout)
    view = Outlook(
        now=now,
        estimates=estimates,
        rollouters=rollouters,
        trainers=trainers,
        startable=startable(state, state.published),
        returned=len(state.returned),
        in_flight=in_flight,
        left=sum(replica.left_groups for replica in state.rollout),
        may_help=state.train_on_rollout,
        trainable=trainable,
        finished=finished,
        training=training,
        needed=max(0, B - taken - finished),
        untrained=B - state.step.trained - training,
        home_train=tuple(home_train),
        home_rollout=tuple(home_rollout),
        lent_train=tuple(lent_train),
        lent_rollout=tuple(lent_rollout),
        kept_training=frozenset(),
        per_block=(some.auxiliaries, some.primaries) if some else (0, 0),
        primary_room=room,
        room=room,
        coming_back=sum(block.lease_state == "releasing" for block in lent_train),
        ages=tuple(
            (block.block, block.auxiliaries, max(0.0, now - block.since - estimates.rollout_on_train.in_s)) for block in lent_train
        ),
    )
    if lent_rollout and state.improvements.keep_lease:
        return replace(view, kept_training=_kept(view, state.closing_since is not None))
    return view


def _kept(view: Outlook, closing: bool) -> frozenset[int]:
    """Lent rollout blocks that go on training: as many as leave the trainers fed until a block that is sent home now
    delivers its first groups."""
    kept = [block.block for block in view.lent_rollout]
    rollouters, trainers = view.rollouters, view.trainers
    wait_s = view.estimates.train_on_rollout.out_s + view.estimates.group_latency_s * FIRST_SHARE
    for block in reversed(view.lent_rollout):
        if view.dry_in(rollouters, trainers, closing) >= wait_s:
            break
        kept.remove(block.block)
        rollouters, trainers = rollouters + block.primaries, trainers - block.auxiliaries
    return frozenset(kept)
