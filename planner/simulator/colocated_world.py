"""The books of a simulated run without pools: which device has which role and how far its share of the step is.

The pictures are those of the live engine: every device is seen in both roles, and in one of them it can do nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from planner.policy.colocated import share_of
from planner.policy.state import ColocatedDevice, Estimates, RolloutReplica, State, TrainReplica
from planner.simulator.replicas import Group, Rollouter
from planner.simulator.setup import Setup
from planner.simulator.workload import Workload
from planner.simulator.world import World


@dataclass(slots=True)
class Share:
    """One device's part of the step being made."""

    device: int
    groups: int
    """groups of a step that are its own"""
    role: str
    started: int = 0
    finished: list[int] = field(default_factory=list)
    queue: list[int] = field(default_factory=list)
    handed: int = 0
    """groups handed to its trainer"""


class ColocatedWorld(World):
    """All counts of a run without pools; a device here is `train_replica_size` devices."""

    def __init__(self, setup: Setup, estimates: Estimates, workload: Workload) -> None:
        super().__init__(setup, estimates, workload)
        size = setup.train_replica_size
        count = setup.devices // size
        shares = [share_of(index, count, setup.prompts_per_step) for index in range(count)]
        self.shares = {
            index * size: Share(index * size, groups, "rollout" if groups else "train")
            for index, groups in enumerate(shares)
        }
        self._home: dict[int, Share] = {}

    def state(self, now: float) -> State:
        """The frozen picture, with each device in both roles."""
        return replace(
            super().state(now),
            rollout=tuple([self._rollouter(device) for device in self.shares]),
            train=tuple([self._trainer(device) for device in self.shares]),
            colocated=tuple(
                ColocatedDevice(
                    device=share.device,
                    role=share.role,
                    share=share.groups,
                    started=share.started,
                    finished=tuple(share.finished),
                    queue=tuple(share.queue),
                    trained=share.handed,
                )
                for share in self.shares.values()
            ),
        )

    def _rollouter(self, device: int) -> RolloutReplica:
        replica = self.rollouters.get(device)
        if replica is not None:
            return replica.view or replica.picture()
        return RolloutReplica(
            device=device,
            version=self.published,
            loading=True,
            in_flight=0,
            may_update_in_flight=False,
            free_groups=0,
        )

    def _trainer(self, device: int) -> TrainReplica:
        trainer = self.trainers.get(device)
        if trainer is not None:
            return trainer.view or trainer.picture()
        return TrainReplica(device=device, ready=False, busy=None, chunks=0, shipped=False)

    # -- groups -------------------------------------------------------------------------------------------------------

    def start(self, replica: Rollouter, place: int) -> None:
        """The device begins a group of its share."""
        group_id = self.started
        super().start(replica, place)
        share = self._home[group_id] = self.shares[replica.device]
        share.started += 1

    def finish(self, group: Group, excluded: bool) -> None:
        """A group's last response has ended: an excluded one is no part of the share."""
        super().finish(group, excluded)
        if excluded:
            self._home.pop(group.group_id).started -= 1
        else:
            self._home[group.group_id].finished.append(group.group_id)

    def take(self, group_ids: tuple[int, ...]) -> None:
        """The step consumes these groups of one device."""
        super().take(group_ids)
        for group_id in group_ids:
            share = self._home[group_id]
            share.finished.remove(group_id)
            share.queue.append(group_id)

    def hand(self, device: int, group_ids: tuple[int, ...]) -> None:
        """The device's trainer begins a chunk."""
        share = self.shares[device]
        for group_id in group_ids:
            share.queue.remove(group_id)
        share.handed += len(group_ids)

    def begin_step(self) -> None:
        """The step is made: every group of every share was consumed with it."""
        self._home.clear()
        for share in self.shares.values():
            share.started = share.handed = 0
            assert not share.finished, f"device {share.device} has groups that no step took: {share.finished}"
            assert not share.queue, f"device {share.device} has groups that nobody trained: {share.queue}"
