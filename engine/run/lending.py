"""The leases of a run: which device is lent, how far its lease is, and what it turned out to be worth.

    home -> preparing -> working -> [draining: its chunk ends] -> releasing -> home
    any of them -> dead -> home

Decides nothing: the policy grants and ends leases, workers say how far they are. Measured gains go to the never-slower
guards; a lease that has ended is handed on as a row.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence, Set
from dataclasses import dataclass

from engine.config import BORROWING_ARMS, ScheduleConfig
from engine.layout import BlockLayout
from engine.run.forecasts import Forecasts
from engine.run.live_lease import LiveLease, foretold_gain_of, gain_of, row_of
from engine.worker import messages as msg
from planner.policy import actions as act
from planner.policy.guard import Guard, is_off, observe
from planner.policy.leases import DIRECTIONS, Lease, LeaseState, advance
from planner.policy.pulls import OURS
from planner.policy.state import Block, Estimates
from storage.records import LeaseRow


@dataclass(slots=True)
class BlockEntry:
    """Devices that may be lent together."""

    layout: BlockLayout
    since: float
    """When its lease was granted, or when it came home, unix seconds."""
    lease: LiveLease | None = None
    reserved: int = 0
    dead: bool = False
    prepared: bool = True
    """Its devices have the other role in memory too."""
    moving: bool = False
    """It is on its way to another home."""

    @property
    def device(self) -> int:
        """Its first one, whose number is the block's."""
        return self.layout.block

    @property
    def pool(self) -> str:
        """Its home."""
        return self.layout.pool


class Lending:
    """All blocks and leases of a run."""

    def __init__(
        self,
        *,
        run_id: str,
        schedule: ScheduleConfig,
        blocks: Sequence[BlockLayout],
        now: float,
        write: Callable[[LeaseRow], None],
        prepared: bool = True,
    ) -> None:
        """`blocks`: empty without pools; `write` takes a lease's row at each change; `prepared`: see `BlockEntry`."""
        self.refused: set[str] = set()
        """Directions whose gate was asked in the present idle window of the pool that would be lent."""
        self.directions: frozenset[str] = frozenset()
        """Directions that the settings lend in."""
        self.guards: dict[str, Guard] = {name: Guard() for name in sorted(DIRECTIONS)}
        self.entries = {block.block: BlockEntry(block, now, prepared=prepared) for block in blocks}
        """Number of a block, which is that of its first device -> the block."""
        self._block_of = {device: block.block for block in blocks for device in block.devices}
        self.count = 0
        self.over = False
        """The run is over, and what workers say of their leases comes too late."""
        self._run_id = run_id
        self._ours = False
        self.govern(schedule)
        self._write = write
        self._forecasts = Forecasts()
        self._recent: list[LiveLease] = []
        self._merging: list[LiveLease] = []
        """Leases whose gradient the present step has to merge."""

    def govern(self, schedule: ScheduleConfig) -> None:
        """From now on these settings say what may be lent."""
        arm, borrow = schedule.arm, schedule.borrow
        allowed = {"rollout_on_train": borrow.rollout_on_train, "train_on_rollout": borrow.train_on_rollout}
        of_arm = () if arm not in BORROWING_ARMS else (arm,) if arm in DIRECTIONS else DIRECTIONS
        self.directions = frozenset(name for name in of_arm if allowed[name])
        self._ours = arm in OURS

    def move(self, layout: BlockLayout, now: float) -> None:
        """The block has another home."""
        entry = self.entries[layout.block]
        assert entry.lease is None, f"block {layout.block} changes its pool while it is lent"
        entry.layout, entry.since, entry.moving = layout, now, True

    def arrived(self, device: int, now: float) -> None:
        """The block of the device works at its new home, or its next worker will begin there."""
        entry = self.entry_of(device)
        if entry is not None:
            entry.since, entry.moving = now, False

    @property
    def recalled(self) -> frozenset[int]:
        """Lent blocks whose direction the settings no longer lend in."""
        return frozenset(
            entry.device
            for entry in self.entries.values()
            if entry.lease is not None and entry.lease.life.direction not in self.directions
        )

    @property
    def lends(self) -> bool:
        """The settings lend, or something is still lent."""
        return bool(self.directions) or self.out

    def youngest_end(self, min_lease_s: float, now: float) -> float:
        """When the next lease may end that must still last, unix seconds; infinite without one."""
        if not min_lease_s:
            return math.inf
        ends = (entry.since + min_lease_s for entry in self.entries.values() if entry.lease is not None)
        return min((at for at in ends if at > now), default=math.inf)

    # -- pictures -----------------------------------------------------------------------------------------------------

    def block_of(self, device: int) -> int:
        """The block's number is that of its first device; -1 where nothing can be lent or moved."""
        return self._block_of.get(device, -1)

    def entry_of(self, device: int) -> BlockEntry | None:
        """The block with this device."""
        return self.entries.get(self.block_of(device))

    def blocks(self, awaited: Set[int] = frozenset()) -> tuple[Block, ...]:
        """Those that can be lent, as the policy sees them; the home role of those awaited has an evaluation or a
        checkpoint to do."""
        if not self.lends:
            return ()
        return tuple(
            Block(
                block=entry.device,
                pool=entry.pool,
                primaries=len(entry.layout.home),
                auxiliaries=len(entry.layout.away),
                lease=entry.lease.life.lease_id if entry.lease else None,
                lease_state="dead" if entry.dead else str(entry.lease.life.state) if entry.lease else "",
                since=entry.since,
                reserved=entry.reserved,
                devices=len(entry.layout.devices),
                awaited=bool(awaited) and not awaited.isdisjoint(entry.layout.home),
            )
            for entry in self.entries.values()
            if entry.prepared and not entry.moving
        )

    def open_directions(self, now: float) -> frozenset[str]:
        """Directions that the arm has and no guard holds off."""
        return frozenset(name for name in self.directions if not is_off(self.guards[name], now))

    def held_off(self, now: float) -> dict[str, str]:
        """Directions that a guard holds off, each with why."""
        guards = {name: self.guards[name] for name in sorted(self.directions)}
        return {name: guard.reason for name, guard in guards.items() if is_off(guard, now)}

    def lease_on(self, device: int) -> LiveLease | None:
        """The lease under which the device is lent."""
        entry = self.entry_of(device)
        return entry.lease if entry else None

    @property
    def out(self) -> bool:
        """Some device is not home."""
        return any(entry.lease is not None for entry in self.entries.values())

    # -- the life of a lease ------------------------------------------------------------------------------------------

    def grant(self, action: act.Lend, now: float, *, hidden: bool) -> LiveLease:
        """The policy lends a block, which is told in the same breath. `hidden`: it is still at the optimizer."""
        entry = self.entries[action.block]
        assert entry.lease is None, f"device {action.block} is lent already"
        assert not entry.dead, f"device {action.block} is dead"
        life = Lease(
            lease_id=self.count,
            direction=action.direction,
            block=entry.layout.devices,
            state=LeaseState.GRANTED,
            granted_at=now,
            expected_end=None,
            gain_s=action.gain_s,
            cost_s=action.cost_s,
            reason=action.reason,
        )
        lease = LiveLease(
            life=life,
            device=entry.device,
            share=1 / len(entry.layout.away),
            alone_s=action.alone_s if action.alone_s is not None and math.isfinite(action.alone_s) else None,
            hidden=hidden,
            primaries=self._at_home("train" if action.direction == "train_on_rollout" else "rollout"),
        )
        self.count += 1
        entry.lease, entry.since, entry.reserved = lease, now, action.reserved_groups
        self._recent.append(lease)
        self._forecasts.decided(action, now)
        self._to(lease, LeaseState.PREPARING)
        return lease

    def refuse(self, action: act.Refuse, now: float) -> None:
        """The policy lends nothing in this direction."""
        self.refused.add(action.direction)
        self._forecasts.decided(action, now)

    def ready(self, device: int, event: msg.LeaseReady) -> bool:
        """The device's other role can begin; False when its lease has been ended meanwhile."""
        lease = self._known(device, event.lease)
        lease.began_at, lease.ready_at = event.began_at, event.at
        lease.phases["in_told"] = event.began_at - lease.life.granted_at
        lease.phases |= {f"in_{name}": seconds for name, seconds in event.phases.items()}
        if lease.life.state is not LeaseState.PREPARING:
            return False
        self._to(lease, LeaseState.WORKING)
        return True

    def working(self, device: int, lease_id: int, at: float) -> None:
        """Its first useful work begins."""
        self._known(device, lease_id).working_at = at

    def end(self, action: act.EndLease, now: float, *, draining: bool) -> LiveLease:
        """The policy ends a lease. `draining`: a chunk is still to end."""
        entry = self.entries[action.block]
        lease = entry.lease
        assert lease is not None, f"device {action.block} is not lent"
        assert lease.life.lease_id == action.lease, f"device {action.block} is not lent under lease {action.lease}"
        if lease.ended_at is None:
            lease.ended_at, lease.end_reason = now, action.reason
            lease.ended_by = "revoked" if action.revoke else "policy"
            self._to(lease, LeaseState.DRAINING if draining else LeaseState.RELEASING)
        entry.reserved = 0
        return lease

    def pulled(self, device: int, count: int) -> None:
        """Its rollouter started groups, of those reserved for it first."""
        entry = self.entry_of(device)
        if entry is not None and entry.lease is not None:
            entry.reserved = max(0, entry.reserved - count)

    def chunk_done(self, device: int, groups: int, tokens: int) -> None:
        """Its trainer finished a chunk."""
        lease = self.lease_on(device)
        if lease is not None and groups:
            lease.chunks, lease.groups, lease.tokens = lease.chunks + 1, lease.groups + groups, lease.tokens + tokens
            if lease not in self._merging:
                self._merging.append(lease)

    def generated(self, device: int, lease_id: int, tokens: int, groups: float) -> None:
        """Its rollouter generated tokens, worth so many groups."""
        lease = self.lease_on(device)
        if lease is not None and lease.life.lease_id == lease_id:
            lease.tokens, lease.groups = lease.tokens + tokens, lease.groups + groups

    def worked(self, device: int, seconds: float, cpu_s: float) -> None:
        """Auxiliary work on the device took so long."""
        lease = self.lease_on(device)
        if lease is not None:
            lease.busy_s, lease.cpu_s = lease.busy_s + seconds, lease.cpu_s + cpu_s

    def merged(self, seconds: float) -> bool:
        """The step was made, and merging the gradients of other replicas took so long; was one of them a lease's?"""
        merged, self._merging = self._merging, []
        for lease in merged:
            lease.grad_s = (lease.grad_s or lease.phases.get("out_ship", 0.0)) + seconds / len(merged)
            if lease.released_at is not None:
                self._write(row_of(self._run_id, lease))
        return bool(merged)

    def step_closes(self, now: float) -> None:
        """The step's last group is trained: leases for its end are measured by this moment."""
        self._forecasts.step_closes(now, lent=bool(self._recent) or self.out)
        for lease in self._recent:
            if lease.step_closed_at is None:
                lease.step_closed_at, lease.foretold_groups = now, lease.groups
                lease.partners = sum(other.life.granted_at == lease.life.granted_at for other in self._recent)
                if lease.released_at is not None and lease.alone_s is not None:
                    self._judge(lease, None)
        self._recent = [lease for lease in self._recent if lease.released_at is None]

    def released(self, device: int, event: msg.LeaseReleased, estimates: Estimates | None) -> LiveLease:
        """The device is home again."""
        lease = self._known(device, event.lease)
        waited = "out_told"
        if lease.life.state is LeaseState.DRAINING:
            waited = "out_chunk"
            self._to(lease, LeaseState.RELEASING, write=False)
        lease.phases[waited] = event.began_at - (lease.ended_at or event.began_at)
        lease.phases |= {f"out_{name}": seconds for name, seconds in event.phases.items()}
        if lease.ended_by == "policy" and not lease.tokens:
            lease.ended_by = "unused"
        self._close(lease, event.at)
        self._judge(lease, estimates)
        return lease

    def die(self, device: int, now: float, *, lost_groups: int = 0) -> None:
        """The device's process is gone, and a lease with it; of what it had trained so many groups are lost."""
        entry = self.entry_of(device)
        if entry is None:
            return
        entry.dead, entry.moving = True, False
        for other in self._recent:
            other.spoiled = True
        lease = entry.lease
        if lease is not None:
            if lost_groups:
                lease.groups = max(0.0, lease.groups - lost_groups)
                self._merging = [other for other in self._merging if other is not lease]
                if not lease.groups:
                    lease.chunks = lease.tokens = 0
            self._cut(lease, now, "died", "its process died")
        entry.reserved = 0

    def back(self, device: int, now: float) -> None:
        """The block of the device lives again, in its home role."""
        entry = self.entry_of(device)
        if entry is not None:
            entry.dead, entry.since = False, now

    def close(self, now: float) -> None:
        """The run is over: leases end with it."""
        self.over = True
        for entry in self.entries.values():
            if entry.lease is not None:
                self._cut(entry.lease, now, "run_ended", "the run ended")

    def _judge(self, lease: LiveLease, estimates: Estimates | None) -> None:
        """What it was worth, as soon as that can be told: for the guard, and for its row."""
        lease.gain_s = gain_of(lease, estimates, error=self._forecasts.error)
        lease.foretold_gain_s = foretold_gain_of(lease, estimates, error=self._forecasts.error)
        # what an operator or a death cut short says nothing of its worth
        counts = self._ours and lease.ended_by != "revoked" and not lease.spoiled
        if lease.gain_s is not None and counts:
            name = lease.life.direction
            self.guards[name] = observe(self.guards[name], lease.gain_s, lease.released_at or lease.life.granted_at)
        self._write(row_of(self._run_id, lease))

    def _at_home(self, pool: str) -> int:
        """Replicas that work in the role of their own pool."""
        there = (e for e in self.entries.values() if e.pool == pool and e.lease is None and not e.dead)
        return max(1, sum(len(entry.layout.home) for entry in there))

    # -- inside -------------------------------------------------------------------------------------------------------

    def _known(self, device: int, lease_id: int) -> LiveLease:
        lease = self.lease_on(device)
        assert lease is not None, f"device {device} reports lease {lease_id} and is not lent"
        assert lease.life.lease_id == lease_id, f"device {device} reports lease {lease_id}, not {lease.life.lease_id}"
        return lease

    def _to(self, lease: LiveLease, state: LeaseState, *, write: bool = True) -> None:
        lease.life = advance(lease.life, state)
        if write:
            self._write(row_of(self._run_id, lease))

    def _cut(self, lease: LiveLease, now: float, by: str, reason: str) -> None:
        lease.ended_at, lease.ended_by, lease.end_reason = lease.ended_at or now, by, reason
        self._close(lease, now)
        self._write(row_of(self._run_id, lease))

    def _close(self, lease: LiveLease, at: float) -> None:
        lease.released_at = at
        lease.life = advance(lease.life, LeaseState.RELEASED)
        entry = self.entries[lease.device]
        entry.lease, entry.since, entry.reserved = None, at, 0
