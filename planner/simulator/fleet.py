"""The devices of a simulated run: replicas in their roles, the clock they share, and where their time goes."""

from __future__ import annotations

from heapq import heappush

from planner.policy.chunks import ChunkEvent, ChunkState, Outcome, after
from planner.policy.idle import idle_causes
from planner.policy.state import Estimates, State
from planner.profile_models import mean_response_tokens
from planner.simulator.estimates import GRID, estimates_of, residual_tokens
from planner.simulator.events import CHUNK, SEQUENCE
from planner.simulator.lending import Lending
from planner.simulator.replicas import Rollouter, Trainer
from planner.simulator.setup import Setup
from planner.simulator.speeds import Speeds
from planner.simulator.trace import Trace
from planner.simulator.workload import Workload
from planner.simulator.world import World


class Fleet:
    """Replicas at a virtual time; whoever moves the time handles the events that they announce."""

    def __init__(self, setup: Setup, estimates: Estimates | None) -> None:
        self.setup = setup
        self.now = 0.0
        """Virtual seconds."""
        self.closing_ends = 0.0
        """When the step being made is."""
        self.trace = Trace(staleness=setup.staleness, devices=setup.devices)
        known = estimates or estimates_of(
            setup.profile, prompts_per_step=setup.prompts_per_step, group_size=setup.group_size
        )
        self.world = self._make_world(known)
        self.events: list[tuple[float, int, int, object, int]] = []
        """Heap of (when, number, kind, subject, stamp); one whose subject has another stamp by then does not hold."""
        self.changed: dict[Rollouter, None] = {}
        """Rollouters whose next end has to be announced anew, in the order in which they changed: a set has none."""
        self.lending = Lending(self)
        self._count = 0
        self.speeds = Speeds(setup.profile, seed=setup.seed, group_size=setup.group_size)
        tokens = mean_response_tokens(setup.profile.response_tokens) + setup.profile.rollout.start_tokens
        self._group_tokens = tokens * setup.group_size
        residual = residual_tokens(setup.profile.response_tokens)
        self._residual = tuple(tokens / self._group_tokens for tokens in residual)
        self._add_home_roles()

    def _make_world(self, estimates: Estimates) -> World:
        return World(self.setup, estimates, Workload.of(self.setup))

    def _add_home_roles(self) -> None:
        setup = self.setup
        for device in range(0, setup.rollout_devices, setup.rollout_replica_size):
            self.add_rollouter(device, lease=None)
        for device in range(setup.rollout_devices, setup.devices, setup.train_replica_size):
            self.add_trainer(device, lease=None)

    def push(self, at: float, kind: int, subject: object, stamp: int = 0) -> None:
        """Something will happen."""
        self._count += 1
        heappush(self.events, (at, self._count, kind, subject, stamp))

    # -- roles ---------------------------------------------------------------------------------------------------------

    def add_rollouter(self, device: int, *, lease: int | None, copies: int = 1) -> None:
        """A replica takes the rollouter role with the newest version.

        `copies`: so many replicas side by side, their sequences evenly spread, are one with as many times the speed,
        slots and half batch: each of b sequences runs at R / (b / copies + h).
        """
        speed, lengths = self.setup.profile.rollout, self.setup.profile.response_tokens
        self.world.rollouters[device] = Rollouter(
            device=device,
            devices=copies * self.setup.rollout_replica_size,
            block=self.world.block_of(device),
            lease=lease,
            version=self.world.published,
            rate=copies * self.speeds.rate(device, self.world.published),
            half=copies * speed.half_batch,
            resume_tokens=speed.resume_tokens,
            start_tokens=speed.start_tokens,
            slots=copies * speed.slots,
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
        self.woken(replica)
        self.changed.pop(replica, None)
        del self.world.rollouters[replica.device]

    def remove_trainer(self, trainer: Trainer) -> None:
        """The replica leaves its role."""
        trainer.stamp += 1
        if trainer.busy == "chunk":
            self.account(trainer, "train", self.now - trainer.busy_since)
        self.woken(trainer)
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
        self.give_back_waiting(trainer)
        groups = trainer.chunks.popleft()
        kept = next(place for place, end in enumerate(trainer.boundaries) if end >= self.now) + 1
        self.world.requeue(list(groups[kept:]))
        trainer.chunks.appendleft(groups[:kept])
        trainer.stamp += 1
        trainer.changed()
        self.push(trainer.boundaries[kept - 1], CHUNK, trainer, trainer.stamp)

    def give_back_waiting(self, trainer: Trainer) -> None:
        """Chunks that it has not begun go back to the queue."""
        while len(trainer.chunks) > 1:
            self.world.requeue(list(trainer.chunks.pop()))
            trainer.changed()

    # -- work ----------------------------------------------------------------------------------------------------------

    def announce(self, replica: Rollouter) -> None:
        """Announce the replica's next end; what was announced before does not hold any more."""
        replica.stamp += 1
        if replica.active:
            if replica.idle_since is not None:
                self.woken(replica)
                replica.idle_since, replica.busy_since = None, self.now
            self._count += 1
            heappush(self.events, (replica.next_end(), self._count, SEQUENCE, replica, replica.stamp))
        elif replica.idle_since is None:
            self.account(replica, "rollout", self.now - replica.busy_since)
            replica.idle_since = self.now

    def train(self, trainer: Trainer, group_ids: tuple[int, ...]) -> None:
        """The replica takes a chunk of groups of the step; it begins at once, or when the one before it ends."""
        world = self.world
        ahead = self.setup.chunks_ahead > 1 and trainer.busy == "chunk"
        assert trainer.busy is None or ahead, f"trainer {trainer.device} is on {trainer.busy}"
        if world.step.queue and world.step.queue[0] == group_ids[0]:
            for _ in group_ids:
                world.step.queue.popleft()
        else:
            for group_id in group_ids:
                world.step.queue.remove(group_id)
        trainer.chunks.append(group_ids)
        if trainer.busy is None:
            self.begin_chunk(trainer)
        else:
            trainer.changed()

    def begin_chunk(self, trainer: Trainer) -> None:
        """The first of its chunks runs now."""
        groups = [self.world.groups[group_id] for group_id in trainer.chunks[0]]
        trainer.boundaries = self.speeds.boundaries(self.now, groups[0].place, [group.tokens for group in groups])
        trainer.stamp += 1
        self.woken(trainer)
        trainer.changed(busy="chunk", busy_since=self.now, idle_since=None)
        self.push(trainer.boundaries[-1], CHUNK, trainer, trainer.stamp)

    # -- time ----------------------------------------------------------------------------------------------------------

    def account(self, replica: Rollouter | Trainer, kind: str, seconds: float) -> None:
        """The replica's devices did something for so long."""
        self.trace.account.add(kind, seconds * replica.devices, auxiliary=replica.lease is not None)

    def woken(self, replica: Rollouter | Trainer) -> None:
        """The replica is idle no more; what it fell idle for since the last decision nobody has seen a cause of."""
        if replica.idle_since is not None:
            self.trace.account.woken(replica.device, replica.devices, replica.idle_since, self.now)

    def account_idle(self, state: State) -> None:
        """After a decision: which replicas are idle, and why."""
        world = self.world
        everybody: list[Rollouter | Trainer] = [*world.rollouters.values(), *world.trainers.values()]
        idle = [(replica, replica.idle_since) for replica in everybody if replica.idle_since is not None]
        causes = idle_causes(state) if idle else {}
        self.trace.account.idle_causes(
            {r.device: (causes.get(r.device, "no_work"), r.devices, since) for r, since in idle}, self.now
        )
