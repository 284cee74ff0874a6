"""Keeps what a command points to alive until its worker has answered: weights, snapshots, gradients.

A worker may be busy for seconds before it fetches what it was sent, and the engine has newer versions by then. The
arrays belong to the engine, so they are gone when it lets go of the last handle.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from engine.worker import messages as msg

ANSWERS: dict[type[Any], Callable[[Any, Any], bool]] = {
    msg.LoadWeights: lambda command, event: isinstance(event, msg.WeightsLoaded) and event.version == command.version,
    msg.Restore: lambda command, event: isinstance(event, msg.Restored) and event.version == command.snapshot.version,
    msg.FinishStep: lambda command, event: isinstance(event, msg.StepDone) and event.step == command.step,
    msg.BeginLease: lambda command, event: (
        isinstance(event, msg.LeaseReady | msg.LeaseReleased) and event.lease == command.lease
    ),
    msg.EndLease: lambda command, event: isinstance(event, msg.LeaseReleased) and event.lease == command.lease,
    msg.Move: lambda command, event: isinstance(event, msg.Moved),
    msg.Prepare: lambda command, event: isinstance(event, msg.Prepared),
}
"""Command that points to arrays -> is this event its answer?"""


class Held:
    """Commands of one run that were not answered."""

    def __init__(self) -> None:
        self._of: dict[int, list[msg.Command]] = {}

    def send(self, device: int, command: msg.Command) -> None:
        """A command goes out."""
        if type(command) in ANSWERS:
            self._of.setdefault(device, []).append(command)

    def hear(self, device: int, event: msg.Event) -> None:
        """A device reports."""
        waiting = self._of.get(device)
        if waiting:
            self._of[device] = [command for command in waiting if not ANSWERS[type(command)](command, event)]

    def lose(self, device: int) -> None:
        """A device's process is gone."""
        self._of.pop(device, None)

    def of(self, device: int) -> tuple[msg.Command, ...]:
        """What it was sent and has not answered."""
        return tuple(self._of.get(device, ()))
