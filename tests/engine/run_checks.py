"""What a run must never do, checked at every action, after every tick and over its whole history.

The checks do their own arithmetic on what was handed out, trained and excluded; they trust none of the run's counts.
"""

from __future__ import annotations

import math
from collections import Counter
from itertools import pairwise
from typing import TYPE_CHECKING

from engine.run.book import StepEntry
from planner.policy import actions as act
from planner.policy.leases import TRANSITIONS as LEASE_TRANSITIONS
from planner.policy.leases import LeaseState
from planner.policy.staleness import step_violations
from storage import words
from storage.records import LeaseRow

if TYPE_CHECKING:
    from tests.engine.simulated_run import SimulatedRun

TRANSITIONS = {
    "starting": {"warming_up"},
    "warming_up": {"running"},
    "running": {"pausing", "paused", "stopping"},
    "pausing": {"paused", "running", "stopping"},
    "paused": {"running", "pausing", "stopping"},
    "stopping": set(),
}
"""States of a run as its loop writes them; the end is written by the service."""


class Checks:
    """Of one run."""

    def __init__(self, sim: SimulatedRun) -> None:
        self._sim = sim
        self._taken: Counter[int] = Counter()

    def action(self, action: act.Action) -> None:
        """It is allowed now."""
        sim, book = self._sim, self._sim.run.book
        job = book.job  # as operators have changed it
        at_rest = book.paused or book.stopping
        assert action.reason, f"{action} has no reason"
        assert not sim.run.closing, f"{action} after the workers were told to end"
        if not isinstance(action, act.EndLease | act.Checkpoint | act.LoadWeights | act.SwitchRole | act.Move):
            assert not at_rest, f"{action} while paused or stopping"
        match action:
            case act.StartGroups(device=device, count=count):
                version = self._room(device, count, action)
                allowed = (version + 1) * book.B + math.floor(book.bound.staleness * book.B + 1e-9)
                assert book.started + count - book.excluded <= allowed, f"{action}: {sim.describe()}"
            case act.ResumeGroups(device=device, group_ids=ids):
                self._room(device, len(ids), action)
            case act.TakeGroups(group_ids=ids):
                self._taken.update(ids)
            case act.TrainChunk(device=device, group_ids=ids):
                trainer = book.train[device]
                assert trainer.ready
                assert not trainer.leaving
                assert trainer.busy in (None, "chunk"), f"{action} to a device that is on {trainer.busy}"
                assert len(trainer.chunks) < 2, f"{action} to a device that holds {len(trainer.chunks)} chunks"
                assert 0 < len(ids) <= job.schedule.max_chunk_groups
                whole = book.job.schedule.consume_resolved == "whole_batch"
                if whole and job.schedule.arm != "colocated":
                    assert len(book.step.taken) == book.B, "a whole-batch trainer began on a partial batch"
            case act.Evaluate(device=device) | act.ShipGradient(device=device) | act.Checkpoint(device=device):
                assert book.train[device].busy is None, f"{action} to a device that is on {book.train[device].busy}"
            case act.FinishStep(devices=devices):
                assert devices == tuple(device for device, trainer in book.train.items() if trainer.lease is None)
                assert all(trainer.busy is None for trainer in book.train.values())
                assert book.step.trained == len(book.step.taken) == book.B
            case act.Lend(block=device):
                self._lend(action, device)

    def _room(self, device: int, count: int, action: act.Action) -> int:
        book = self._sim.run.book
        assert count > 0
        slots = book.job.devices.rollout_slots // book.job.algorithm.group_size
        assert len(book.groups.in_flight.get(device, ())) + count <= slots, f"{action}: there is no room"
        version = book.rollout[device].version
        assert version is not None
        return version

    def _lend(self, action: act.Lend, device: int) -> None:
        sim = self._sim
        schedule = sim.run.book.job.schedule
        if schedule.arm in words.DIRECTIONS:
            assert action.direction == schedule.arm
        assert getattr(schedule.borrow, action.direction), f"{action} in a direction that is off"
        out = sum(len(e.layout.devices) for e in sim.run.lending.entries.values() if e.lease is not None)
        cap = schedule.borrow.lend_cap
        assert cap is None or out < cap, f"{action} beyond the cap of {cap}"
        assert device not in sim.run.homes.leaving, f"{action} of a block that is to leave its pool"
        home = "rollout" if action.direction == "train_on_rollout" else "train"
        assert sim.run.specs[device].home == home
        assert device not in sim.run.recovery.dead, f"{action} of a device that is dead"
        lent = {row.direction for row in self._latest().values() if row.state != "released"}
        opposed = action.direction not in lent and bool(lent)
        assert not opposed, f"{action} while the other direction is lent"

    def _latest(self) -> dict[int, LeaseRow]:
        return {row.lease: row for row in self._sim.recorder.leases}

    # -- after every tick ---------------------------------------------------------------------------------------------

    def idle(self) -> None:
        """A cause is a legal word and names only devices without work; a device at rest has one."""
        run, workers = self._sim.run, self._sim.workers
        if run.closing or run.state in ("starting", "warming_up"):
            return
        now, book = workers.clock.now, run.book
        for device, cause in self._sim.recorder.causes.items():
            worker = workers.devices[device]
            if cause is None:
                told_and_heard = worker.arrival < now and worker.delivery < now and not worker.lost
                at_rest = worker.idle and told_and_heard
                assert not at_rest, f"device {device} is at rest and nobody says why: {self._sim.describe()}"
                continue
            assert cause in words.IDLE_CAUSES
            assert (cause == "failure") == (device in run.recovery.dead), f"device {device}: {cause}"
            assert not worker.active, f"device {device} generates and is called idle ({cause})"
            trainer, replica = book.train.get(device), book.rollout.get(device)
            if trainer is not None and book.role.get(device) != "rollout":
                assert trainer.busy is None
            if replica is not None and book.role.get(device) != "train":
                assert not book.groups.in_flight.get(device)

    # -- when it is over ----------------------------------------------------------------------------------------------

    def history(self) -> None:
        """States, steps, leases and decisions of the whole run."""
        sim, recorder = self._sim, self._sim.recorder
        states = recorder.run_states
        assert all(after in TRANSITIONS[before] for before, after in pairwise(states)), states
        assert sim.run.state in words.TERMINAL
        for step, row in recorder.steps:
            self._step(step)
            assert row.step == step.version + 1
            assert row.groups == sim.book.B
            assert sorted(sim.workers.trained[row.step]) == sorted(group.group_id for group in step.taken)
        first = sim.start.version + 1
        assert [row.step for _, row in recorder.steps] == list(range(first, first + len(recorder.steps)))
        assert max(self._taken.values(), default=1) == 1, "a group was taken twice"
        assert all(row.reason and row.inputs for row in recorder.decided)
        assert [row.id for row in recorder.decided] == list(range(len(recorder.decided)))
        self._leases()

    def _step(self, step: StepEntry) -> None:
        consumed = [(group.version, group.bound) for group in step.taken]
        assert step_violations(consumed, step.version) == []
        slipped: Counter[float] = Counter()
        for group in step.taken:
            s, lag = group.bound.staleness, step.version - group.version
            assert group.finished is not None
            assert group.finished.version == group.version
            assert 0 <= lag <= math.ceil(s), f"lag {lag} under staleness {s} in step {step.version + 1}"
            slipped[s] += lag == math.floor(s) + 1
            assert slipped[s] <= math.floor(s * self._sim.book.B + 1e-9) - math.floor(s) * self._sim.book.B

    def _leases(self) -> None:
        lives: dict[int, list[LeaseRow]] = {}
        for row in self._sim.recorder.leases:
            lives.setdefault(row.lease, []).append(row)
        granted = [row.lease for row in self._sim.recorder.decided if row.action == "lend"]
        assert sorted(lives) == granted == list(range(len(granted)))
        for rows in lives.values():
            self._lease(rows)

    def _lease(self, rows: list[LeaseRow]) -> None:
        states = [LeaseState(row.state) for row in rows]
        # once more after its end: when the step closed that it was granted for
        legal = LEASE_TRANSITIONS | {LeaseState.RELEASED: (LeaseState.RELEASED,)}
        assert states[0] is LeaseState.PREPARING
        assert states[-1] is LeaseState.RELEASED, f"lease {rows[-1].lease} ends {states}"
        assert all(after in legal[before] for before, after in pairwise(states)), states
        last = rows[-1]
        assert last.ended_by in words.LEASE_ENDS
        assert last.end_reason
        assert last.ended_at is not None
        assert last.released_at is not None
        times = [last.granted_at, last.ready_at, last.working_at, last.released_at]
        known = [time for time in times if time is not None]
        assert known == sorted(known), f"lease {last.lease}: {times}"
        assert last.granted_at <= last.ended_at <= last.released_at
        assert last.working_at is None or last.ready_at is not None
        for name, seconds in [("in", last.in_s), ("out", last.out_s), ("grad", last.grad_s), *last.phases.items()]:
            assert seconds is None or seconds >= 0, f"{name} of lease {last.lease} took {seconds} s"
        if last.groups or last.chunks:
            assert last.working_at is not None
