"""Operator commands on one run: checked again, accepted, and answered when they have really taken effect.

| command    | accepted                           | applied                                                       |
| ---------- | ---------------------------------- | ------------------------------------------------------------- |
| staleness  | governs starts at once             | at the first step made only of groups started under it        |
| pause      | nothing new starts                 | when running groups and chunks have ended                      |
| resume     | work starts again                  | at once                                                        |
| checkpoint | due at the next gap of the trainer | when the folder is complete                                    |
| stop       | groups in flight come back         | when the checkpoint is written and the ledgers are closed      |
"""

from __future__ import annotations

import math
from typing import Any

from engine.config import JobError, check_job
from engine.config.job import MAX_STALENESS
from engine.run.run import Run
from planner.policy.bound import Bound
from planner.policy.staleness_change import Outcome, StalenessChanges, predict_effective_step
from storage.mailbox import Mailbox
from storage.records import Command


class Refused(ValueError):
    """The command cannot be done; the text is its answer."""


class RunCommands:
    """The mailbox of one run."""

    def __init__(self, run: Run, mailbox: Mailbox) -> None:
        self._run = run
        self._mailbox = mailbox
        self._changes = StalenessChanges()
        self._pause: int | None = None
        self._stop: int | None = None
        self._checkpoints: list[int] = []
        self.config_version = 0
        run.step_made = self._step_made

    def receive(self, command: Command) -> None:
        """Take a pending command: accept it or say why not."""
        try:
            self._check(command)
            match command.kind:
                case "staleness":
                    self._staleness(command)
                case "pause":
                    self._pause_run(command)
                case "resume":
                    self._resume(command)
                case "checkpoint":
                    self._checkpoint(command)
                case "stop":
                    self._stop_run(command)
                case _:
                    raise Refused(f"a run has no command {command.kind!r}")
        except Refused as refusal:
            self._mailbox.reject(command.id, str(refusal))

    def settle(self) -> None:
        """Answer what has taken effect since the last tick."""
        run = self._run
        if self._pause is not None and run.state == "paused":
            self._mailbox.apply(
                self._pause,
                f"Paused in step {self._step_number}: running groups and chunks have ended.",
                effective_step=self._step_number,
                effective_version=run.book.step.version,
            )
            self._pause = None
        for saved in run.observer.saved:
            for command_id in self._checkpoints:
                self._mailbox.apply(
                    command_id,
                    f"Checkpoint of version {saved.step} is in {saved.folder}.",
                    effective_step=saved.step,
                    effective_version=saved.step,
                    result={"folder": str(saved.folder)},
                )
            self._checkpoints.clear()
        run.observer.saved.clear()

    def end(self) -> None:
        """The run is over: answer everything that still waits."""
        self.settle()
        run = self._run
        if self._stop is not None:
            version = run.book.step.version
            if run.error:
                self._mailbox.reject(self._stop, f"The run failed while it stopped: {run.error}")
            else:
                kept = f"Stopped after step {version}; the checkpoint of that step is kept."
                if run.job.emulated:
                    kept = f"Stopped after step {version}; an emulated run keeps no checkpoint."
                none = "Stopped before a step was made; there is no checkpoint to keep."
                self._mailbox.apply(
                    self._stop,
                    kept if version > run.book.start.version else none,
                    effective_step=version,
                    effective_version=version,
                )
        waiting = [*self._changes.waiting, *self._checkpoints, *([] if self._pause is None else [self._pause])]
        for command_id in waiting:
            self._mailbox.reject(command_id, f"The run ended ({run.state}) before this took effect.")

    @property
    def _step_number(self) -> int:
        return self._run.book.step.version + 1

    def _check(self, command: Command) -> None:
        if self._run.over or self._run.closing:
            raise Refused("the run is ending and takes no more commands")
        if self._run.book.stopping:
            raise Refused("the run is stopping and takes no more commands")
        expected = command.expected_config_version
        if expected is not None and expected != self.config_version:
            raise Refused(
                f"the run was changed since this was prepared (its configuration is version {self.config_version}, the "
                f"command was made for version {expected}); look again and send it anew"
            )

    def _changed(self) -> None:
        self.config_version += 1
        self._run.recorder.run(config_version=self.config_version)

    # -- each command -------------------------------------------------------------------------------------------------

    def _staleness(self, command: Command) -> None:
        run, book = self._run, self._run.book
        value = staleness_value(command.payload)
        refusal = staleness_refusal(run, value)
        if refusal:
            raise Refused(refusal)
        bound = Bound(staleness=value, prompts_per_step=book.B)
        effect = predict_effective_step(
            version=book.step.version,
            slots_left=book.B - len(book.step.taken),
            prompts_per_step=book.B,
            unconsumed=book.groups.unconsumed,
        )
        self._mailbox.accept(
            command.id,
            f"Staleness {value:g} governs starts from now on; groups already started keep their bound. "
            f"It is expected to be effective at step {effect.expected + 1}, at step {effect.latest + 1} at the latest"
            f"{', once the run is resumed' if book.paused else ''}.",
        )
        self._settle_changes(self._changes.applied(change_id=command.id, first_group_id=book.started))
        book.bound = bound
        self._changed()
        run.recorder.run(staleness=value, staleness_effective_step=None)

    def _step_made(self, number: int, group_ids: tuple[int, ...]) -> None:
        self._settle_changes(self._changes.step_done(step=number, group_ids=group_ids))

    def _settle_changes(self, outcomes: list[Outcome]) -> None:
        for outcome in outcomes:
            if outcome.step is None:
                self._mailbox.supersede(outcome.change_id, "A later change of staleness took effect before this one.")
                continue
            self._mailbox.apply(
                outcome.change_id,
                f"Effective at step {outcome.step}, the first one made only of groups started under it.",
                effective_step=outcome.step,
                effective_version=outcome.step - 1,
            )
            self._run.recorder.run(staleness_effective_step=outcome.step)

    def _pause_run(self, command: Command) -> None:
        if self._run.book.paused:
            raise Refused(f"the run is already {self._run.state}")
        self._mailbox.accept(command.id, f"Pausing in step {self._step_number}: running groups and chunks end first.")
        self._pause = command.id
        self._run.book.paused = True
        self._changed()

    def _resume(self, command: Command) -> None:
        if not self._run.book.paused:
            raise Refused(f"the run is {self._run.state}, not paused")
        self._mailbox.accept(command.id)
        if self._pause is not None:
            self._mailbox.supersede(self._pause, "Resumed before the run had come to rest.")
            self._pause = None
        self._run.book.paused = False
        self._changed()
        self._mailbox.apply(
            command.id,
            f"Resumed in step {self._step_number}.",
            effective_step=self._step_number,
            effective_version=self._run.book.step.version,
        )

    def _checkpoint(self, command: Command) -> None:
        if self._run.state in ("starting", "warming_up"):
            raise Refused(f"the run is {self._run.state}: there is nothing to keep yet")
        if self._run.job.emulated:
            raise Refused("an emulated run learns nothing: there is nothing to keep")
        version = self._run.book.step.version
        self._mailbox.accept(command.id, f"Version {version} is written as soon as the trainer has a gap.")
        self._checkpoints.append(command.id)
        if not self._run.book.step.checkpoint_running:
            self._run.book.step.checkpoint_due = True

    def _stop_run(self, command: Command) -> None:
        self._mailbox.accept(command.id, f"Stopping in step {self._step_number}.")
        self._stop = command.id
        self._run.request_stop()


def staleness_value(payload: dict[str, Any]) -> float:
    """The number in a staleness command. Raises Refused for anything else."""
    value = payload.get("staleness")
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise Refused(f"staleness must be a number from 0 to {MAX_STALENESS:g}, got {value!r}")
    if not 0 <= value <= MAX_STALENESS:
        raise Refused(f"staleness must be from 0 to {MAX_STALENESS:g}, got {value!r}")
    return float(value)


def staleness_refusal(run: Run, value: float) -> str | None:
    """Why this run cannot take the bound; the job's own validator decides, so that a file and a command agree."""
    if run.job.schedule.arm == "colocated":
        return "arm 'colocated' is on-policy by construction; its staleness is always 0"
    if value == run.book.bound.staleness:
        return f"staleness is {value:g} already"
    document = run.job.model_dump(mode="json")
    document["schedule"]["staleness"] = value
    try:
        check_job(document)
    except JobError as error:
        return "; ".join(error.problems.values())
    return None
