"""Discrete-event simulator of a run: a virtual clock, simulated replicas, and the one `decide`.

    event (a sequence ends, a chunk ends, a step is made, a lease is ready or released)
      -> books -> State -> decide -> actions -> replicas, new events

It decides nothing itself. Reports reach it in no time, so `decide` sees the world as it is; what a real engine adds is
the delay of a tick. The same setup and seed give the same trace.
"""

from __future__ import annotations

import math
from collections import Counter
from heapq import heappop, heappush

import numpy as np

from planner.policy import actions as act
from planner.policy.chunks import ChunkEvent, ChunkState, Outcome, after
from planner.policy.decide import decide
from planner.policy.idle import idle_causes
from planner.policy.state import Estimates, State
from planner.profile_models import mean_response_tokens
from planner.simulator.estimates import GRID, estimates_of, residual_tokens
from planner.simulator.events import CHUNK, FAIL, REVOKE, SEQUENCE, STEP, WAKE
from planner.simulator.lending import Lending
from planner.simulator.replicas import Rollouter, Trainer
from planner.simulator.setup import Setup
from planner.simulator.trace import SimulatedStep, Trace
from planner.simulator.workload import Workload
from planner.simulator.world import StepEntry, World

MAX_ROUNDS = 32
"""Decisions at one moment: each round may allow a few more; a rule that never settles is a fault."""

NOISES = 4093
"""Noise factors that are drawn once and looked up; a prime, so that no stride repeats early."""

ROLLOUT_NOISE, TRAIN_NOISE = 0, 1

MAX_AT_ONCE = 1000
"""Decisions at one time, over all that happens then: more is a lease that is granted and ended over and over."""

TERMINAL = (act.StartGroups, act.ResumeGroups, act.TrainChunk, act.Refuse)
"""After these alone nothing more can be decided at the same moment."""


class Simulator:
    """One run; `run` plays it to its end. Raises RuntimeError when nothing can happen any more (a deadlock)."""

    def __init__(self, setup: Setup, estimates: Estimates | None = None, *, keep_actions: bool = False) -> None:
        self.setup = setup
        self.now = 0.0
        self.closing_ends = 0.0
        """When the step being made is."""
        self.trace = Trace(staleness=setup.staleness, devices=setup.devices)
        self.workload = Workload(
            setup.profile.response_tokens,
            seed=setup.seed,
            group_size=setup.group_size,
            prompts_per_step=setup.prompts_per_step,
            steps=setup.steps,
            hint=setup.length_hint,
        )
        known = estimates or estimates_of(
            setup.profile, prompts_per_step=setup.prompts_per_step, group_size=setup.group_size
        )
        self.world = World(setup, known, self.workload)
        self._keep_actions = keep_actions
        self._events: list[tuple[float, int, int, object, int]] = []
        self._count = 0
        drawn = np.random.default_rng([setup.seed, 3]).normal(0.0, setup.profile.noise, NOISES)
        self._noises: list[float] = np.exp(drawn).tolist()
        self._excluded = np.random.default_rng([setup.seed, 4])
        self._decided_at = -math.inf
        self._at_once = 0
        self._picked: list[int] = []
        self._changed: set[Rollouter] = set()
        self.lending = Lending(self)
        mean = mean_response_tokens(setup.profile.response_tokens) * setup.group_size
        self._group_tokens = mean
        self._residual = tuple(tokens / mean for tokens in residual_tokens(setup.profile.response_tokens))
        for device in range(0, setup.rollout_devices, setup.rollout_replica_size):
            self.add_rollouter(device, lease=None)
        for device in range(setup.rollout_devices, setup.devices, setup.train_replica_size):
            self.add_trainer(device, lease=None)
        for failure in setup.failures:
            self.push(failure.at, FAIL, failure)
        for at in setup.revoke_at:
            self.push(at, REVOKE, None)

    # -- the loop -----------------------------------------------------------------------------------------------------

    def run(self) -> Trace:
        """Play until the last step is made."""
        self._decide()
        events, world, setup = self._events, self.world, self.setup
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
                self._account_idle(
                    world.state(time)
                )  # or what falls idle and gets work before the decision is not seen
                continue
            self._decide()
        self.trace.events = handled
        self.lending.close()
        for rollouter in list(world.rollouters.values()):
            self.remove_rollouter(rollouter)
        for trainer in list(world.trainers.values()):
            self.remove_trainer(trainer)
        return self.trace

    def push(self, at: float, kind: int, subject: object, stamp: int = 0) -> None:
        """Something will happen."""
        self._count += 1
        heappush(self._events, (at, self._count, kind, subject, stamp))

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
        self._schedule(replica)
        return bool(finished) or (replica.view is None and self.world.has_work_for(replica))

    def _schedule(self, replica: Rollouter) -> None:
        """Announce the replica's next end; what was announced before does not hold any more."""
        replica.stamp += 1
        if replica.active:
            if replica.idle_since is not None:
                replica.idle_since, replica.busy_since = None, self.now
            self._count += 1
            heappush(self._events, (replica.next_end(), self._count, SEQUENCE, replica, replica.stamp))
        elif replica.idle_since is None:
            self.account(replica, "rollout", self.now - replica.busy_since)
            replica.idle_since = self.now

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
            for replica in self._changed:
                self._schedule(replica)
            self._changed.clear()
            if all(isinstance(action, TERMINAL) for action in actions):
                break
        else:
            last = ", ".join(sorted({type(action).__name__ for action in actions}))
            raise RuntimeError(f"no end of decisions at {self.now:.1f} s, the last {last}: {self.describe()}")
        self._account_idle(self.world.state(self.now) if actions else state)

    def _apply(self, action: act.Action) -> None:
        world = self.world
        if self._keep_actions:
            self.trace.actions.append((self.now, action))
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
            case act.ReturnGroups(device=device, group_ids=ids):
                for group in self._touched(device).give_back(ids):
                    world.returned[group.group_id] = group
            case act.LoadWeights(device=device, version=version):
                replica = self._touched(device)
                replica.version, replica.view = version, None
                replica.rate = self._rate(device, version)
            case act.TakeGroups(group_ids=ids):
                world.take(ids)
            case act.TrainChunk(device=device, group_ids=ids):
                self._train(world.trainers[device], ids)
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
        self.world.refused.discard("train_on_rollout")
        self._changed.add(replica)
        return replica

    def _train(self, trainer: Trainer, group_ids: tuple[int, ...]) -> None:
        world, speed = self.world, self.setup.profile.train
        world.refused.discard("rollout_on_train")
        assert trainer.busy is None, f"trainer {trainer.device} is on {trainer.busy}"
        if world.step.queue and world.step.queue[0] == group_ids[0]:
            for _ in group_ids:
                world.step.queue.popleft()
        else:
            for group_id in group_ids:
                world.step.queue.remove(group_id)
        noise = self.noise(TRAIN_NOISE, world.groups[group_ids[0]].place)
        prompt = self.setup.profile.prompt_tokens * self.setup.group_size
        end = self.now + speed.chunk_s * noise
        trainer.boundaries = []
        for group_id in group_ids:
            end += (world.groups[group_id].tokens + prompt) / speed.tokens_per_s * noise
            trainer.boundaries.append(end)
        trainer.chunks.append(group_ids)
        trainer.stamp += 1
        trainer.changed(busy="chunk", busy_since=self.now, idle_since=None)
        self.push(end, CHUNK, trainer, trainer.stamp)

    def _close_step(self) -> None:
        """Merge, optimizer, weight sync: the primaries that are at home do them together."""
        world, profile = self.world, self.setup.profile
        grad_s = profile.train_on_rollout.grad_s if world.step.merges else 0.0
        for trainer in world.trainers.values():
            if trainer.lease is None:
                trainer.changed(busy="optimizer", busy_since=self.now, idle_since=None)
                self.account(trainer, "grad_merge", grad_s)
                self.account(trainer, "optimizer", profile.optimizer_s)
                self.account(trainer, "weight_sync", profile.weight_sync_s)
        world.step.closing_since = self.now
        self.lending.step_closes()
        self.closing_ends = self.now + grad_s + profile.optimizer_s + profile.weight_sync_s
        self.push(self.closing_ends, STEP, None)

    # -- replicas and their time --------------------------------------------------------------------------------------

    def noise(self, kind: int, key: int) -> float:
        """A factor on a duration: the same for the same work in every arm, so that arms differ by what they do."""
        return self._noises[(kind * 7919 + key * 104_729) % NOISES]

    def _rate(self, device: int, version: int) -> float:
        return self.setup.profile.rollout.tokens_per_s / self.noise(ROLLOUT_NOISE, device * 1009 + version)

    def add_rollouter(self, device: int, *, lease: int | None) -> None:
        """A replica takes the rollouter role with the newest version."""
        speed, lengths = self.setup.profile.rollout, self.setup.profile.response_tokens
        self.world.rollouters[device] = Rollouter(
            device=device,
            devices=self.setup.rollout_replica_size,
            block=self.world.block_of(device),
            lease=lease,
            version=self.world.published,
            rate=self._rate(device, self.world.published),
            half=speed.half_batch,
            resume_tokens=speed.resume_tokens,
            slots=speed.slots,
            group_size=self.setup.group_size,
            in_flight_updates=self.setup.staleness > 0,
            residual=self._residual,
            residual_step=GRID / lengths.max,
            now=self.now,
        )

    def add_trainer(self, device: int, *, lease: int | None) -> None:
        """A replica takes the trainer role."""
        trainer = Trainer(
            device=device,
            devices=self.setup.train_replica_size,
            block=self.world.block_of(device),
            lease=lease,
            now=self.now,
        )
        self.world.trainers[device] = trainer

    def remove_rollouter(self, replica: Rollouter) -> None:
        """The replica leaves its role; it holds no groups any more, or the run is over."""
        replica.stamp += 1
        if replica.idle_since is None:
            self.account(replica, "rollout", self.now - replica.busy_since)
        if replica.lease is not None:
            self.lending.delivered(replica.block, replica.generated / self._group_tokens)
        self.trace.account.ends(replica.device, self.now)
        self._changed.discard(replica)
        del self.world.rollouters[replica.device]

    def remove_trainer(self, trainer: Trainer) -> None:
        """The replica leaves its role."""
        trainer.stamp += 1
        if trainer.busy == "chunk":
            self.account(trainer, "train", self.now - trainer.busy_since)
        self.trace.account.ends(trainer.device, self.now)
        del self.world.trainers[trainer.device]

    def keep_gradient(self, trainer: Trainer) -> None:
        """A trainer that leaves ships what it has accumulated; the primaries merge it."""
        if trainer.trained and trainer.lease is None:
            self.world.step.merges = True
        trainer.trained = []

    def lose_gradient(self, trainer: Trainer) -> None:
        """Its devices died: what the chunk table sends back to the queue is trained again by others."""
        event = ChunkEvent.PRIMARY_DIED if trainer.lease is None else ChunkEvent.AUXILIARY_DIED
        merged = self.world.step.closing_since is not None
        back: list[int] = []
        trained = ChunkState.FETCHED if merged else ChunkState.FINISHED
        if after(trained, event, held=merged) is Outcome.BACK_TO_QUEUE:
            self.world.step.trained -= len(trainer.trained)
            back += trainer.trained
        if after(ChunkState.RUNNING, event, held=False) is Outcome.BACK_TO_QUEUE:
            back += [group for chunk in trainer.chunks for group in chunk]
        self.world.requeue(back)

    def stop_at_boundary(self, trainer: Trainer) -> None:
        """The running chunk ends with the group it works on; the rest goes back to the queue."""
        groups = trainer.chunks.popleft()
        kept = next(place for place, end in enumerate(trainer.boundaries) if end >= self.now) + 1
        self.world.requeue(list(groups[kept:]))
        trainer.chunks.appendleft(groups[:kept])
        trainer.stamp += 1
        trainer.changed()
        self.push(trainer.boundaries[kept - 1], CHUNK, trainer, trainer.stamp)

    def account(self, replica: Rollouter | Trainer, kind: str, seconds: float) -> None:
        """The replica's devices did something for so long."""
        self.trace.account.add(kind, seconds * replica.devices, auxiliary=replica.lease is not None)

    def _account_idle(self, state: State) -> None:
        world = self.world
        everybody: list[Rollouter | Trainer] = [*world.rollouters.values(), *world.trainers.values()]
        idle = [(replica, replica.idle_since) for replica in everybody if replica.idle_since is not None]
        causes = idle_causes(state) if idle else {}
        self.trace.account.idle_causes(
            {r.device: (causes.get(r.device, "no_work"), r.devices, since) for r, since in idle}, self.now
        )
