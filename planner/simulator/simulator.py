"""Discrete-event simulator of a run: a virtual clock, simulated replicas, and the one `decide`.

    event (a sequence ends, a chunk ends, a step is made, a lease is ready or released)
      -> books -> State -> decide -> actions -> replicas, new events

It decides nothing itself. Reports reach it in no time, so `decide` sees the world as it is; what a real engine adds is
the delay of a tick. The same setup and seed give the same trace.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from heapq import heappop

import numpy as np

from planner.policy import actions as act
from planner.policy.arms import LENDING, gates_first
from planner.policy.decide import decide
from planner.policy.idle import window_over
from planner.policy.state import Estimates
from planner.simulator.events import CHUNK, FAIL, REVOKE, SEQUENCE, STEP, WAKE
from planner.simulator.fleet import Fleet
from planner.simulator.replicas import Rollouter, Trainer
from planner.simulator.setup import Setup
from planner.simulator.trace import SimulatedStep, Trace
from planner.simulator.world import StepEntry

MAX_ROUNDS = 32
"""Decisions at one moment: each round may allow a few more; a rule that never settles is a fault."""

MAX_AT_ONCE = 1000
"""Decisions at one time, over all that happens then: more is a lease that is granted and ended over and over."""

LATER_S = 1e-6
"""The difference of two times is rounded: a lease that is asked about exactly at its least age may be found younger."""

TERMINAL = (act.StartGroups, act.ResumeGroups, act.TrainChunk, act.Refuse)
"""After these alone nothing more can be decided at the same moment, where gates come before pulls."""


class Simulator(Fleet):
    """One run; `run` plays it to its end. Raises RuntimeError when nothing can happen any more (a deadlock)."""

    def __init__(self, setup: Setup, estimates: Estimates | None = None, *, keep_actions: bool = False) -> None:
        super().__init__(setup, estimates)
        self._keep_actions = keep_actions
        # where gates come when nothing else is left to do, groups and chunks are still followed by them
        late = setup.arm in LENDING and not gates_first(setup.arm, setup.improvements)
        self._terminal = (act.Refuse,) if late else TERMINAL
        self._excluded = np.random.default_rng([setup.seed, 4])
        self._decided_at = -math.inf
        self._at_once = 0
        self._picked: list[int] = []
        self.watch: Callable[[int], None] | None = None
        """Told the number of steps that are made, after each: for whoever waits, and may raise to end it."""
        for failure in setup.failures:
            self.push(failure.at, FAIL, failure)
        for at in setup.revoke_at:
            self.push(at, REVOKE, None)

    # -- the loop -----------------------------------------------------------------------------------------------------

    def run(self) -> Trace:
        """Play until the last step is made."""
        self._decide()
        events, world, setup = self.events, self.world, self.setup
        every = setup.decide_every_s
        waking = False
        handled = 0
        while world.step.version < setup.steps:
            if not events:
                raise RuntimeError(f"deadlock at {self.now:.1f} s: {self.describe()}")
            time = events[0][0]
            self.now = time
            due = False
            while events and events[0][0] <= time:
                _, _, kind, subject, stamp = heappop(events)
                handled += 1
                if kind == SEQUENCE:
                    due |= self._sequence_ended(subject, stamp)  # type: ignore[arg-type]
                elif kind == WAKE:
                    waking, due = False, True
                else:
                    due |= self._handle(kind, subject, stamp)
            if not due:
                continue
            if every and time < self._decided_at + every:
                if not waking:
                    waking = True
                    self.push(self._decided_at + every, WAKE, None)
                continue
            self._decide()
        self.trace.events = handled
        self.lending.close()
        for rollouter in list(world.rollouters.values()):
            self.remove_rollouter(rollouter)
        for trainer in list(world.trainers.values()):
            self.remove_trainer(trainer)
        return self.trace

    def describe(self) -> str:
        """One line for whoever looks for a fault."""
        world = self.world
        busy = Counter(trainer.busy or "idle" for trainer in world.trainers.values())
        blocks = Counter(f"{entry.pool} {entry.lease_state or 'home'}" for entry in world.blocks.values())
        return (
            f"version {world.step.version}, {len(world.step.taken)} taken, {len(world.step.queue)} queued, "
            f"{world.step.trained} trained, {len(world.tally)} unconsumed, {len(world.returned)} returned, "
            f"{world.started} started, {world.excluded} excluded; {len(world.rollouters)} rollouters with "
            f"{sum(len(replica.groups) for replica in world.rollouters.values())} groups, trainers {dict(busy)}, "
            f"blocks {dict(blocks)}"
        )

    # -- events -------------------------------------------------------------------------------------------------------

    def _sequence_ended(self, replica: Rollouter, stamp: int) -> bool:
        if stamp != replica.stamp:
            return False
        replica.advance(self.now)
        finished = replica.ended()
        if finished:
            world, rate = self.world, self.setup.exclusion_rate
            for group in finished:
                excluded = rate > 0 and self._excluded.random() < rate
                if excluded:
                    self.trace.excluded.append(group.place)
                world.finish(group, excluded)
        self.announce(replica)
        return bool(finished) or (replica.view is None and self.world.has_work_for(replica))

    def _handle(self, kind: int, subject: object, stamp: int) -> bool:
        if kind == CHUNK:
            assert isinstance(subject, Trainer)
            return stamp == subject.stamp and self._chunk_done(subject)
        if kind == STEP:
            self._step_made()
            return True
        return self.lending.handle(kind, subject, stamp)

    def _chunk_done(self, trainer: Trainer) -> bool:
        groups = trainer.chunks.popleft()
        self.account(trainer, "train", self.now - trainer.busy_since)
        self.world.step.trained += len(groups)
        trainer.trained += groups
        if trainer.lease is not None:
            self.world.step.merges = True
            self.lending.delivered(trainer.block, len(groups))
        trainer.changed(busy=None, idle_since=self.now)
        if trainer.chunks:
            self.begin_chunk(trainer)
        if self.lending.is_draining(trainer.block):
            self.lending.release(trainer.block)
        return True

    def _step_made(self) -> None:
        world, step = self.world, self.world.step
        lags: dict[int, int] = {}
        prompt = self.setup.profile.prompt_tokens * self.setup.group_size
        for group in step.taken:
            lag = step.version - group.version
            lags[lag] = lags.get(lag, 0) + 1
            del world.groups[group.group_id]
        tokens = round(sum(group.tokens + prompt for group in step.taken))
        self.trace.steps.append(
            SimulatedStep(
                version=step.version,
                began_at=step.began_at,
                ended_at=self.now,
                tokens=tokens,
                lags=lags,
                places=tuple(group.place for group in step.taken),
            )
        )
        world.step = StepEntry(step.version + 1, self.now)
        world.published = step.version + 1
        for trainer in world.trainers.values():
            trainer.trained = []
            if trainer.busy == "optimizer":
                trainer.changed(busy=None, idle_since=self.now)
            trainer.changed(shipped=False)
        if self.watch is not None:
            self.watch(world.step.version)

    # -- decisions ----------------------------------------------------------------------------------------------------

    def _decide(self) -> None:
        self._at_once = self._at_once + 1 if self.now == self._decided_at else 0
        if self._at_once > MAX_AT_ONCE:
            raise RuntimeError(f"the run makes no way at {self.now:.1f} s: {self.describe()}")
        self._decided_at = self.now
        for _ in range(MAX_ROUNDS):
            self.trace.decisions += 1
            state = self.world.state(self.now)
            actions = decide(state, self.now)
            # picks of one decision all count from the same list of next groups: they are taken in one go
            self._picked = self._pick_all(actions)
            for action in actions:
                self._apply(action)
            for replica in self.changed:
                self.announce(replica)
            self.changed.clear()
            if all(isinstance(action, self._terminal) for action in actions):
                break
        else:
            last = ", ".join(sorted({type(action).__name__ for action in actions}))
            raise RuntimeError(f"no end of decisions at {self.now:.1f} s, the last {last}: {self.describe()}")
        self.account_idle(self.world.state(self.now) if actions else state)

    def _apply(self, action: act.Action) -> None:
        world = self.world
        if self._keep_actions:
            self.trace.actions.append((self.now, action))
        if (over := window_over(action)) is not None:
            world.refused.discard(over)
        match action:
            case act.StartGroups(device=device, count=count):
                replica = self._touched(device)
                if replica.lease is not None:
                    self.lending.pulled(replica.block, count)
                for place in self._places(count):
                    world.start(replica, place)
            case act.ResumeGroups(device=device, group_ids=ids):
                replica = self._touched(device)
                for group_id in ids:
                    world.resume(replica, group_id)
            case act.LoadWeights(device=device, version=version):
                replica = self._touched(device)
                replica.version, replica.view = version, None
                replica.rate = self.speeds.rate(device, version)
            case act.TakeGroups(group_ids=ids):
                world.take(ids)
            case act.TrainChunk(device=device, group_ids=ids):
                self.train(world.trainers[device], ids)
            case act.ShipGradient(device=device):
                world.trainers[device].changed(shipped=True)
            case act.FinishStep():
                self._close_step()
            case act.Refuse(direction=direction):
                world.refused.add(direction)
                self.trace.refused[direction] += 1
            case act.Lend(direction=direction):
                world.refused.add(direction)  # once per idle window, whatever the answer
                self.lending.lend(action)
                if self.setup.min_lease_s:
                    # it may end then, though nothing happens
                    self.push(self.now + self.setup.min_lease_s + LATER_S, WAKE, None)
            case act.EndLease():
                self.lending.end(action)
            case _:
                raise AssertionError(f"the simulator has no rule for {action!r}")

    def _pick_all(self, actions: list[act.Action]) -> list[int]:
        """Places of all groups that start now, in the order of the actions."""
        starts = [action for action in actions if isinstance(action, act.StartGroups)]
        if not starts:
            return []
        picks = tuple(pick for action in starts for pick in action.picks)
        return self.world.pull(sum(action.count for action in starts), picks)

    def _places(self, count: int) -> list[int]:
        places, self._picked = self._picked[:count], self._picked[count:]
        return places

    def _touched(self, device: int) -> Rollouter:
        replica = self.world.rollouters[device]
        replica.advance(self.now)
        self.changed[replica] = None
        return replica

    def _closing_s(self) -> tuple[float, float, float]:
        """Seconds of merge, optimizer and weight sync of the step being made."""
        profile = self.setup.profile
        grad_s = profile.train_on_rollout.grad_s if self.world.step.merges else 0.0
        return grad_s, profile.optimizer_s, profile.weight_sync_s

    def _close_step(self) -> None:
        """Merge, optimizer, weight sync: the primaries that are at home do them together."""
        world = self.world
        grad_s, optimizer_s, sync_s = self._closing_s()
        for trainer in world.trainers.values():
            if trainer.lease is None:
                self.woken(trainer)
                trainer.changed(busy="optimizer", busy_since=self.now, idle_since=None)
                self.account(trainer, "grad_merge", grad_s)
                self.account(trainer, "optimizer", optimizer_s)
                self.account(trainer, "weight_sync", sync_s)
        world.step.closing_since = self.now
        self.lending.step_closes()
        self.closing_ends = self.now + grad_s + optimizer_s + sync_s
        self.push(self.closing_ends, STEP, None)
