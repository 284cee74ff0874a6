"""Operator commands on one run: checked again, accepted, and answered when they have really taken effect.

| command    | accepted                             | applied                                                       |
| ---------- | ------------------------------------ | ------------------------------------------------------------- |
| staleness  | governs starts at once               | at the first step made only of groups started under it        |
| partition  | its devices finish what they hold    | when each of them works in its new pool                       |
| policy     | governs decisions at once            | at once; a device may be lent when it has its other role      |
| undo       | as the change that it takes back     | as that                                                       |
| pause      | nothing new starts                   | when running groups and chunks have ended                     |
| resume     | work starts again                    | at once                                                       |
| checkpoint | due at the next gap of the trainer   | when the folder is complete                                   |
| stop       | groups in flight come back, or with  | when the checkpoint is written and the ledgers are closed     |
|            | `drain` the step in hand is made     |                                                               |

What changes a setting is in `changes.py`. An answer that says `applied` carries what was changed, so that a run that
goes on from a checkpoint of this one begins with the same settings.
"""

from __future__ import annotations

from engine.config import Refused
from engine.run.changes import Changes
from engine.run.run import Run
from storage.mailbox import Mailbox
from storage.records import Command
from storage.words import CHANGE_KINDS

STOP_MODES = ("now", "drain")
"""Now: groups in flight come back and the step in hand is given up. Drain: that step is made first."""


class RunCommands:
    """The mailbox of one run."""

    def __init__(self, run: Run, mailbox: Mailbox) -> None:
        self._run = run
        self._mailbox = mailbox
        self._changes = Changes(run, mailbox)
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
                case kind if kind in CHANGE_KINDS:
                    self._changes.change(command)
                    self._changed()
                case "undo":
                    self._changes.undo(command)
                    self._changed()
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
        self._changes.settle()

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
        if self._stop is not None and command.kind not in ("stop", "resume"):
            raise Refused("the run stops after this step and takes no more commands but another stop")
        expected = command.expected_config_version
        if expected is not None and expected != self.config_version:
            raise Refused(
                f"the run was changed since this was prepared (its configuration is version {self.config_version}, the "
                f"command was made for version {expected}); look again and send it anew"
            )

    def _changed(self) -> None:
        self.config_version += 1
        self._run.recorder.run(config_version=self.config_version)

    def _step_made(self, number: int, group_ids: tuple[int, ...]) -> None:
        self._changes.step_made(number, group_ids)
        if self._stop is not None:
            self._run.request_stop()

    # -- each command -------------------------------------------------------------------------------------------------

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
        run = self._run
        mode = command.payload.get("mode", "now")
        if mode not in STOP_MODES:
            raise Refused(f"the mode of a stop must be {' or '.join(STOP_MODES)}, got {mode!r}")
        drain = mode == "drain" and run.state == "running"
        if drain and self._stop is not None:
            raise Refused(f"the run stops after step {self._step_number} already; stop it now instead")
        if self._stop is not None:
            self._mailbox.supersede(self._stop, "A later command stops the run at once.")
        self._stop = command.id
        if drain:
            self._mailbox.accept(command.id, f"Stopping when step {self._step_number} is made.")
            run.book.last_step = self._step_number
            return
        why = "" if mode == "now" else f" A run that is {run.state} has no step to end."
        self._mailbox.accept(command.id, f"Stopping in step {self._step_number}.{why}")
        run.request_stop()
