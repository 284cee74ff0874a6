"""Changes of a run's settings, from the command that asks for one to the answer that it governs; and taking them back.

    change --checked--> the run's job is another one --> staleness: groups that start from now on
                                                         partition: the policy moves blocks (homes.py)
                                                         policy: the next decision

Owned by the run loop; what a setting may be is said by `engine.config.steering`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from engine.config import Job, Refused, changed, settings_of
from engine.run.run import Run
from planner.policy.bound import Bound
from planner.policy.staleness_change import Outcome, StalenessChanges, predict_effective_step
from planner.policy.wording import POOLS
from storage.mailbox import Mailbox
from storage.records import Command


@dataclass(frozen=True, slots=True, kw_only=True)
class _Made:
    """A change that was accepted."""

    command: int
    kind: str
    before: Mapping[str, Any]
    """The settings that it changed, as they were."""
    after: Mapping[str, Any]


class Changes:
    """Of one run."""

    def __init__(self, run: Run, mailbox: Mailbox) -> None:
        self._run = run
        self._mailbox = mailbox
        self._staleness = StalenessChanges()
        self._waiting: dict[int, Mapping[str, Any]] = {}
        """Change of staleness that is not effective yet -> what it set."""
        self._partition: tuple[int, Mapping[str, Any]] | None = None
        """Command whose devices are still on their way, and what it set."""
        self._history: list[_Made] = []

    @property
    def waiting(self) -> tuple[int, ...]:
        """Commands that were accepted and are not applied."""
        return (*self._staleness.waiting, *([] if self._partition is None else [self._partition[0]]))

    def change(self, command: Command) -> None:
        """Carry a change out. Raises Refused with the reason why not."""
        made = self._carry_out(command.id, command.kind, command.payload, prefix="")
        self._history.append(made)

    def undo(self, command: Command) -> None:
        """Take the last change back that was not taken back yet. Raises Refused where there is none."""
        if not self._history:
            raise Refused("nothing was changed since this run began: there is nothing to undo")
        last = self._history[-1]
        what = ", ".join(f"{name} {_said(value)}" for name, value in last.before.items())
        self._carry_out(command.id, last.kind, last.before, prefix=f"Command {last.command} is taken back ({what}). ")
        self._history.pop()

    def _carry_out(self, command_id: int, kind: str, payload: Mapping[str, Any], *, prefix: str) -> _Made:
        run = self._run
        before = settings_of(run.book.job)
        job = changed(run.book.job, kind, payload)
        after = settings_of(job)
        values = {name: after[name] for name in payload}
        run.book.job = job
        match kind:
            case "staleness":
                self._set_staleness(command_id, values, prefix)
            case "partition":
                self._set_partition(command_id, job, values, prefix)
            case _:
                self._set_policy(command_id, job, values, prefix)
        run.recorder.run(settings=after, arm=after["arm"], consume=job.schedule.consume_resolved)
        return _Made(command=command_id, kind=kind, before={name: before[name] for name in payload}, after=values)

    # -- staleness ----------------------------------------------------------------------------------------------------

    def _set_staleness(self, command_id: int, values: Mapping[str, Any], prefix: str) -> None:
        run, book, value = self._run, self._run.book, float(values["staleness"])
        effect = predict_effective_step(
            version=book.step.version,
            slots_left=book.B - len(book.step.taken),
            prompts_per_step=book.B,
            unconsumed=book.groups.unconsumed,
        )
        self._mailbox.accept(
            command_id,
            f"{prefix}Staleness {value:g} governs starts from now on; groups already started keep their bound. "
            f"It is expected to be effective at step {effect.expected + 1}, at step {effect.latest + 1} at the latest"
            f"{', once the run is resumed' if book.paused else ''}.",
        )
        self._waiting[command_id] = values
        self._settle_staleness(self._staleness.applied(change_id=command_id, first_group_id=book.started))
        book.bound = Bound(staleness=value, prompts_per_step=book.B)
        run.recorder.run(staleness=value, staleness_effective_step=None)

    def step_made(self, number: int, group_ids: tuple[int, ...]) -> None:
        """A step was made of these groups."""
        self._settle_staleness(self._staleness.step_done(step=number, group_ids=group_ids))

    def _settle_staleness(self, outcomes: list[Outcome]) -> None:
        for outcome in outcomes:
            values = self._waiting.pop(outcome.change_id)
            if outcome.step is None:
                self._mailbox.supersede(outcome.change_id, "A later change of staleness took effect before this one.")
                continue
            self._mailbox.apply(
                outcome.change_id,
                f"Effective at step {outcome.step}, the first one made only of groups started under it.",
                effective_step=outcome.step,
                effective_version=outcome.step - 1,
                result=self._result(values),
            )
            self._run.recorder.run(staleness_effective_step=outcome.step)

    # -- partition ----------------------------------------------------------------------------------------------------

    def _set_partition(self, command_id: int, job: Job, values: Mapping[str, Any], prefix: str) -> None:
        run, partition = self._run, job.partition
        assert partition is not None, "a run without pools has no partition to change"
        if self._partition is not None:
            self._mailbox.supersede(self._partition[0], "A later change of the partition took its place.")
        devices = run.homes.want(partition.rollout)
        to = {run.specs[device].home for device in devices}
        ways = " and ".join(_way(home) for home in sorted(to, key=str) if home)
        what = f"Devices {', '.join(map(str, devices))} change their pool: {ways}" if devices else "No device moves"
        self._mailbox.accept(
            command_id, f"{prefix}{what}. Expected in step {self._step}; a lease of theirs ends before."
        )
        self._partition = command_id, values
        run.recorder.run(partition=str(partition))

    def settle(self) -> None:
        """Answer a change of the partition when every device has come to its new pool."""
        run = self._run
        if self._partition is None or not run.homes.settled or run.state not in ("running", "pausing", "paused"):
            return
        if any(device in run.book.joining for block in run.homes.arrivals for device in block.devices):
            return  # a new trainer is not at the present version yet
        command_id, values = self._partition
        self._partition, run.homes.wanted = None, None
        arrivals = run.homes.arrivals
        seconds = max((each.seconds for each in arrivals), default=0.0)
        device_s = sum(each.seconds * len(each.devices) for each in arrivals)
        went = {pool: sorted(d for each in arrivals if each.to == pool for d in each.devices) for pool in POOLS}
        said = "; ".join(f"{', '.join(map(str, found))} to the {POOLS[pool]}" for pool, found in went.items() if found)
        cost = f" Moving took {seconds:.3g} s, {device_s:.3g} device-seconds in all." if arrivals else ""
        self._mailbox.apply(
            command_id,
            f"Partition {values['partition']} since step {self._step}: {f'devices {said}' if said else 'as before'}."
            + cost,
            effective_step=self._step,
            effective_version=run.book.step.version,
            result=self._result(values)
            | {
                "moved": sorted(device for each in arrivals for device in each.devices),
                "seconds": seconds,
                "device_s": device_s,
            },
        )

    # -- policy -------------------------------------------------------------------------------------------------------

    def _set_policy(self, command_id: int, job: Job, values: Mapping[str, Any], prefix: str) -> None:
        run = self._run
        run.lending.govern(job.schedule)
        if run.lending.directions:
            run.applier.prepare_all()
        unprepared = sum(not entry.prepared for entry in run.lending.entries.values())
        said = ", ".join(f"{name} {_said(value)}" for name, value in values.items())
        self._mailbox.accept(command_id, f"{prefix}{said} governs from now on.")
        back = len(run.lending.recalled)
        notes = [
            f"{unprepared} devices take their other role into memory before they can be lent" if unprepared else "",
            f"{back} leases in a direction that is off end now" if back else "",
        ]
        self._mailbox.apply(
            command_id,
            ". ".join([f"{prefix}{said}, decided by since step {self._step}", *filter(None, notes)]) + ".",
            effective_step=self._step,
            effective_version=run.book.step.version,
            result=self._result(values),
        )

    # -- inside -------------------------------------------------------------------------------------------------------

    def _result(self, values: Mapping[str, Any]) -> dict[str, Any]:
        return {"changes": dict(values), "settings": settings_of(self._run.book.job)}

    @property
    def _step(self) -> int:
        return self._run.book.step.version + 1


def _said(value: Any) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    return "no limit" if value is None else f"{value:g}" if isinstance(value, float) else str(value)


def _way(home: str) -> str:
    """How devices of this home leave it."""
    if home == "train":
        return "trainers ship their gradient when their chunk has ended"
    return "rollouters give their groups back at once"
