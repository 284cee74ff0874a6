"""Devices that are lent by hand, and the rows that their leases write."""

from __future__ import annotations

from typing import Any

from engine.config import ScheduleConfig, check_job
from engine.layout import Layout
from engine.run.lending import Lending, LiveLease
from engine.worker import messages as msg
from planner.policy import actions as act
from planner.policy.leases import Direction
from planner.policy.state import Estimates
from planner.profile import SwitchCosts
from planner.stage_model import StageModel
from storage.records import LeaseRow

ESTIMATES = Estimates(
    rollout=StageModel(a=1.0, b=0.5),
    train=StageModel(a=0.2, b=0.25),
    rollout_on_train=SwitchCosts(in_s=1.0, out_s=1.0),
    train_on_rollout=SwitchCosts(in_s=1.0, out_s=1.0, grad_s=0.1),
    full_load_group_s=2.0,
    group_latency_s=4.0,
    slot_groups=4,
    half_groups=1.0,
    optimizer_s=0.3,
    sync_s=0.2,
)


class Lent:
    """Devices 0 and 1 of the RollPool, 2 and 3 of the TrainPool, and the rows that their leases write."""

    def __init__(self, arm: str = "bidirectional") -> None:
        self.rows: list[LeaseRow] = []
        self.lending = Lending(
            run_id="run",
            schedule=ScheduleConfig(arm=arm),
            blocks=Layout.of(check_job({"devices": {"partition": "2:2"}, "schedule": {"arm": "bidirectional"}})).blocks,
            now=0.0,
            write=self.rows.append,
        )

    def grant(self, device: int, now: float, *, hidden: bool = False, **overrides: Any) -> LiveLease:
        direction: Direction = "train_on_rollout" if device < 2 else "rollout_on_train"
        values: dict[str, Any] = {"gain_s": 5.0, "cost_s": 2.0, "reason": "it pays"} | overrides
        return self.lending.grant(act.Lend(block=device, direction=direction, **values), now, hidden=hidden)

    def ready(self, device: int, began_at: float, at: float) -> bool:
        lease = self.lending.lease_on(device)
        assert lease is not None
        event = msg.LeaseReady(lease=lease.life.lease_id, version=1, began_at=began_at, at=at, phases={"load": 0.25})
        return self.lending.ready(device, event)

    def work(self, device: int, at: float) -> None:
        lease = self.lending.lease_on(device)
        assert lease is not None
        self.lending.working(device, lease.life.lease_id, at)

    def end(self, device: int, now: float, *, revoke: bool = False, draining: bool = False) -> LiveLease:
        lease = self.lending.lease_on(device)
        assert lease is not None
        action = act.EndLease(block=device, lease=lease.life.lease_id, revoke=revoke, reason="it is over")
        return self.lending.end(action, now, draining=draining)

    def release(self, device: int, began_at: float, at: float, estimates: Estimates | None = ESTIMATES) -> LeaseRow:
        lease = self.lending.lease_on(device)
        assert lease is not None
        event = msg.LeaseReleased(lease=lease.life.lease_id, version=1, began_at=began_at, at=at, phases={"load": 0.5})
        self.lending.released(device, event, estimates)
        return self.rows[-1]

    def whole(self, device: int, *, start: float, groups: float, length: float = 10.0) -> LeaseRow:
        """A lease of so many groups, C_in and C_out 1 s each."""
        self.grant(device, start)
        self.ready(device, start + 0.5, start + 0.75)
        self.work(device, start + 1.0)
        if device < 2:
            self.lending.chunk_done(device, int(groups), 100)
        else:
            lease = self.lending.lease_on(device)
            assert lease is not None
            self.lending.generated(device, lease.life.lease_id, 100, groups)
        self.end(device, start + length)
        return self.release(device, start + length + 0.25, start + length + 1.0)

    def states(self) -> list[str]:
        return [row.state for row in self.rows]
