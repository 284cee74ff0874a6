"""Simulated run of the arm without pools: every device rolls out its share of a step, changes its role, and trains it.

    rollouter -> switch -> trainer -> merge and optimizer, all together -> switch -> rollouter

A change of role costs what it costs a lease of the same kind until its first useful work (C_in); that holds the weights
already, so the step itself has no weight sync. Decisions are those of the one `decide`.
"""

from __future__ import annotations

from planner.policy import actions as act
from planner.policy.state import Estimates
from planner.simulator.colocated_world import ColocatedWorld
from planner.simulator.events import SWITCHED
from planner.simulator.replicas import Trainer
from planner.simulator.setup import Setup
from planner.simulator.simulator import Simulator
from planner.simulator.workload import Workload
from planner.simulator.world import World


class ColocatedSimulator(Simulator):
    """One run of the arm `colocated`."""

    world: ColocatedWorld

    def _make_world(self, estimates: Estimates) -> World:
        return ColocatedWorld(self.setup, estimates, Workload.of(self.setup))

    def _add_home_roles(self) -> None:
        for share in self.world.shares.values():
            self._enter(share.device, share.role)

    def _enter(self, device: int, role: str) -> None:
        if role == "rollout":
            copies = self.setup.train_replica_size // self.setup.rollout_replica_size
            self.add_rollouter(device, lease=None, copies=copies)
        else:
            self.add_trainer(device, lease=None)

    def _apply(self, action: act.Action) -> None:
        if not isinstance(action, act.SwitchRole):
            super()._apply(action)
            return
        if self._keep_actions:
            self.trace.actions.append((self.now, action))
        world, profile, device = self.world, self.setup.profile, action.device
        if action.role == "train":
            self.remove_rollouter(world.rollouters[device])
            seconds = profile.train_on_rollout.in_s
        else:
            self.remove_trainer(world.trainers[device])
            seconds = profile.rollout_on_train.in_s
        world.shares[device].role = action.role
        self.trace.switch_s.append(seconds)
        self.push(self.now + seconds, SWITCHED, (device, self.now))

    def _handle(self, kind: int, subject: object, stamp: int) -> bool:
        if kind != SWITCHED:
            return super()._handle(kind, subject, stamp)
        assert isinstance(subject, tuple)
        device, since = subject
        self.trace.account.add("switch_in", (self.now - since) * self.setup.train_replica_size)
        self._enter(device, self.world.shares[device].role)
        return True

    def train(self, trainer: Trainer, group_ids: tuple[int, ...]) -> None:
        """The device begins a chunk of its share."""
        super().train(trainer, group_ids)
        self.world.hand(trainer.device, group_ids)

    def _closing_s(self) -> tuple[float, float, float]:
        profile = self.setup.profile
        grad_s = profile.train_on_rollout.grad_s if len(self.world.shares) > 1 else 0.0
        return grad_s, profile.optimizer_s, 0.0

    def _step_made(self) -> None:
        super()._step_made()
        self.world.begin_step()


def simulator_of(setup: Setup, estimates: Estimates | None = None, *, keep_actions: bool = False) -> Simulator:
    """The simulator that plays this run."""
    kind = ColocatedSimulator if setup.colocated else Simulator
    return kind(setup, estimates, keep_actions=keep_actions)
