"""Leases of a simulated run: blocks that leave their home role and come back, and devices that die.

home -> preparing (C_in) -> working -> [draining: its running chunk ends] -> releasing (C_out) -> home
any of them -> dead -> home
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from planner.policy import actions as act
from planner.policy import leases as policy_leases
from planner.policy.chunks import ChunkEvent, ChunkState, Outcome, after
from planner.policy.guard import observe
from planner.policy.lease_gain import gain_by_use
from planner.policy.leases import LeaseState, advance
from planner.policy.pulls import OURS
from planner.profile import SwitchCosts
from planner.simulator.events import BACK, FAIL, READY, RELEASED, REVOKE
from planner.simulator.setup import Failure
from planner.simulator.trace import Lease
from planner.simulator.world import BlockEntry

if TYPE_CHECKING:
    from planner.simulator.fleet import Fleet


SPANS = {"preparing": "switch_in", "releasing": "switch_out", "dead": "failure"}
"""State of a block without replicas -> kind of span of its devices."""


class Lending:
    """Moves the blocks of a fleet."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet

    # -- actions ------------------------------------------------------------------------------------------------------

    def lend(self, action: act.Lend) -> None:
        """The block's home replicas leave their role and it prepares for the other one."""
        fleet, entry = self._fleet, self._fleet.world.blocks[action.block]
        assert entry.lease is None, f"block {entry.block} is lent already"
        assert entry.dead_until is None, f"block {entry.block} is dead"
        if self._remove_home(entry):
            # a preparation under the optimizer step and the weight sync is hidden; the role begins when they are over
            entry.counted_until = fleet.closing_ends
        ready_at = max(fleet.now + self._costs(entry).in_s, entry.counted_until)
        life = policy_leases.Lease(
            lease_id=len(fleet.trace.leases),
            direction=action.direction,
            block=tuple(range(entry.first_device, entry.first_device + self._size)),
            state=LeaseState.GRANTED,
            granted_at=fleet.now,
            expected_end=None,
            gain_s=action.gain_s,
            cost_s=action.cost_s,
            reason=action.reason,
        )
        lease = Lease(
            life=life,
            lease=len(fleet.trace.leases),
            block=entry.block,
            alone_until=None if action.alone_s is None else fleet.now + action.alone_s,
        )
        fleet.trace.leases.append(lease)
        self._enter(entry, lease, "preparing")
        entry.reserved = action.reserved_groups
        fleet.push(ready_at, READY, entry, lease.lease)

    def end(self, action: act.EndLease) -> None:
        """The auxiliaries stop; unfinished groups come back with their prefixes."""
        fleet, entry = self._fleet, self._fleet.world.blocks[action.block]
        lease = entry.lease
        assert lease is not None, f"block {action.block} is not lent"
        assert lease.lease == action.lease, f"block {action.block} is not lent under lease {action.lease}"
        if entry.lease_state == "releasing":
            return
        busy = [t for t in fleet.world.trainers.values() if t.block == entry.block and t.busy == "chunk"]
        event = ChunkEvent.REVOKED if action.revoke else ChunkEvent.RELEASED
        if after(ChunkState.RUNNING, event, held=False) is Outcome.STOP_AT_GROUP_BOUNDARY:
            for trainer in busy:
                fleet.stop_at_boundary(trainer)
        if entry.lease_state == "draining":
            return
        lease.ended_at, lease.end_reason = fleet.now, action.reason
        for trainer in busy:
            if after(ChunkState.QUEUED, event, held=False) in (Outcome.CANCEL, Outcome.BACK_TO_QUEUE):
                fleet.give_back_waiting(trainer)
        if busy:
            self._enter(entry, lease, "draining")
            for trainer in fleet.world.trainers.values():
                if trainer.block == entry.block:
                    trainer.changed(ready=False)  # the others of the block begin nothing new either
        else:
            self.release(entry.block)

    def release(self, block: int) -> None:
        """Nothing runs on the block any more: it goes home."""
        fleet, entry = self._fleet, self._fleet.world.blocks[block]
        if entry.lease is None or entry.lease_state == "releasing":
            return
        if any(t.block == block and t.busy == "chunk" for t in fleet.world.trainers.values()):
            return
        self._remove_auxiliaries(entry, lost=False)
        lease = entry.lease
        self._enter(entry, lease, "releasing")
        fleet.push(max(fleet.now, entry.counted_until) + self._costs(entry).out_s, RELEASED, entry, lease.lease)

    def delivered(self, block: int, groups: float) -> None:
        """An auxiliary on the block did so much."""
        lease = self._fleet.world.blocks[block].lease
        if lease is not None:
            lease.groups += groups

    def pulled(self, block: int, groups: int) -> None:
        """An auxiliary rollouter on the block started groups, of those reserved for it first."""
        entry = self._fleet.world.blocks[block]
        entry.reserved, entry.picture = max(0, entry.reserved - groups), None

    def is_draining(self, block: int) -> bool:
        """Its running chunks are the last ones."""
        return block in self._fleet.world.blocks and self._fleet.world.blocks[block].lease_state == "draining"

    # -- events -------------------------------------------------------------------------------------------------------

    def handle(self, kind: int, subject: object, stamp: int) -> bool:
        """An event of a lease or of a failure; does it call for a decision?"""
        fleet = self._fleet
        if kind == REVOKE:
            for entry in fleet.world.blocks.values():
                if entry.lease is not None:
                    self.end(
                        act.EndLease(block=entry.block, lease=entry.lease.lease, revoke=True, reason="an operator did")
                    )
            return True
        if kind == FAIL:
            assert isinstance(subject, Failure)
            return self._fail(subject)
        assert isinstance(subject, BlockEntry)
        if kind == BACK:
            subject.dead_until = None
            self._enter(subject, None, "")
            self._add(subject, subject.pool, None)
            return True
        lease = subject.lease
        if lease is None or lease.lease != stamp or subject.dead_until is not None:
            return False
        if kind == READY:
            if subject.lease_state != "preparing":
                return False
            lease.working_at = fleet.now
            self._enter(subject, lease, "working")
            self._add(subject, "rollout" if subject.pool == "train" else "train", lease.lease)
        else:
            lease.released_at = fleet.now
            self._measure(subject, lease)
            self._enter(subject, None, "")
            self._add(subject, subject.pool, None)
        return True

    def _measure(self, entry: BlockEntry, lease: Lease) -> None:
        """What the lease was worth, for the guard.

        A lease for the end of a step is measured by it: when the model saw it without the lease, less when it came.
        Any other by the use that was made of it.
        """
        world, setup, costs = self._fleet.world, self._fleet.setup, self._costs(entry)
        if lease.alone_until is not None:
            ended = lease.step_closed_at if lease.step_closed_at is not None else self._fleet.now
            lease.gain_s = lease.alone_until - ended
        else:
            replica = setup.rollout_replica_size if entry.pool == "train" else setup.train_replica_size
            lease.gain_s = gain_by_use(
                lease.life.direction,
                groups=lease.groups,
                share=replica / self._size,
                estimates=world.estimates,
                costs=costs,
            )
        if setup.arm in OURS:
            world.guards[lease.direction] = observe(world.guards[lease.direction], lease.gain_s, self._fleet.now)

    def step_closes(self) -> None:
        """The step's last group is trained: known leases for its end are measured by this moment."""
        for lease in reversed(self._fleet.trace.leases):
            if lease.granted_at < self._fleet.world.step.began_at:
                break
            lease.step_closed_at = self._fleet.now

    def close(self) -> None:
        """The run is over: what blocks are at ends here."""
        for entry in self._fleet.world.blocks.values():
            self._count(entry)

    def _fail(self, failure: Failure) -> bool:
        fleet, entry = self._fleet, self._fleet.world.blocks[failure.block]
        closing = any(t.block == entry.block and t.busy == "optimizer" for t in fleet.world.trainers.values())
        if closing or entry.counted_until > fleet.now or entry.dead_until is not None:
            # the step that is being made is kept or lost as a whole; the failure is seen when it is over
            fleet.push(fleet.now + 1.0, FAIL, failure)
            return False
        entry.dead_until = fleet.now + failure.back_after_s
        if entry.lease is not None:
            entry.lease.released_at = fleet.now
            entry.lease.end_reason = "its devices died"
        self._remove_auxiliaries(entry, lost=True)
        self._enter(entry, None, "dead")
        fleet.push(entry.dead_until, BACK, entry)
        return True

    # -- replicas of a block ------------------------------------------------------------------------------------------

    @property
    def _size(self) -> int:
        return self._fleet.setup.block_size

    def _costs(self, entry: BlockEntry) -> SwitchCosts:
        profile = self._fleet.setup.profile
        return profile.rollout_on_train if entry.pool == "train" else profile.train_on_rollout

    def _enter(self, entry: BlockEntry, lease: Lease | None, state: str) -> None:
        self._count(entry)
        if lease is not None:
            lease.life = advance(lease.life, LeaseState(state))
        elif entry.lease is not None:
            entry.lease.life = advance(entry.lease.life, LeaseState.RELEASED)
        entry.lease, entry.lease_state, entry.since, entry.picture = lease, state, self._fleet.now, None

    def _count(self, entry: BlockEntry) -> None:
        """The state that the block leaves, where no replica on it accounts for the time."""
        kind, now = SPANS.get(entry.lease_state), self._fleet.now
        if kind is not None and now > entry.counted_until:
            self._fleet.trace.account.add(kind, (now - max(entry.since, entry.counted_until)) * self._size)

    def _remove_home(self, entry: BlockEntry) -> bool:
        """Take the idle home replicas out; are they at the optimizer step?"""
        fleet, closing = self._fleet, False
        self._remove_rollouters(entry, lost=False)
        for trainer in [t for t in fleet.world.trainers.values() if t.block == entry.block]:
            assert trainer.busy in (None, "optimizer"), f"trainer {trainer.device} is lent while on {trainer.busy}"
            closing |= trainer.busy == "optimizer"
            fleet.keep_gradient(trainer)
            fleet.remove_trainer(trainer)
        return closing

    def _remove_auxiliaries(self, entry: BlockEntry, *, lost: bool) -> None:
        fleet, world = self._fleet, self._fleet.world
        self._remove_rollouters(entry, lost=lost)
        for trainer in [t for t in world.trainers.values() if t.block == entry.block]:
            if lost:
                fleet.lose_gradient(trainer)
            else:
                fleet.keep_gradient(trainer)
            fleet.remove_trainer(trainer)

    def _remove_rollouters(self, entry: BlockEntry, *, lost: bool) -> None:
        """Take the block's rollouters out; their unfinished groups come back, with their prefixes unless lost."""
        fleet, world = self._fleet, self._fleet.world
        for rollouter in [r for r in world.rollouters.values() if r.block == entry.block]:
            rollouter.advance(fleet.now)
            for group in rollouter.give_back(tuple(rollouter.groups), lost=lost):
                world.returned[group.group_id] = group
            fleet.remove_rollouter(rollouter)

    def _add(self, entry: BlockEntry, role: str, lease: int | None) -> None:
        """Put replicas of the role on the block's devices."""
        setup = self._fleet.setup
        devices = range(entry.first_device, entry.first_device + setup.block_size)
        if role == "rollout":
            for device in devices[:: setup.rollout_replica_size]:
                self._fleet.add_rollouter(device, lease=lease)
        else:
            for device in devices[:: setup.train_replica_size]:
                self._fleet.add_trainer(device, lease=lease)
