"""What commands changed, from what to what, in words: for the log, the marks in charts and undo. Pure.

It reckons with what the engine did with each command: one that was refused changed nothing, and an undo takes back the
last change that was not taken back yet.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from app.run_job import job_of
from engine.config import Refused, change_of, settings_of
from storage.records import Command, RunRow
from storage.words import CHANGE_KINDS, DIRECTIONS

NAMES = {
    "staleness": "staleness",
    "partition": "partition",
    "arm": "arm",
    "rollout_on_train": "trainer's devices generate",
    "train_on_rollout": "rollouter's devices train",
    "lend_cap": "lend cap",
    "min_lease_s": "minimum lease",
}
"""Setting -> what a reader calls it."""

DONE = {"pause": "paused", "resume": "resumed", "checkpoint": "checkpoint", "stop": "stopped"}
"""Kind of a command that changes no setting -> what a chart says where it was applied."""

ASKED = {
    "pause": "pause",
    "resume": "resume",
    "checkpoint": "checkpoint",
    "delete": "delete",
    "launch": "launch",
    "import": "import",
}
"""Kind -> what was asked for."""

STOPS = {"drain": "stop after the step in hand", "now": "stop at once"}
"""Mode of a stop -> what was asked for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Made:
    """A command and the settings that it changes."""

    command: Command
    """As stored."""
    before: Mapping[str, Any]
    """The settings that it names, as they were; one that is not known is missing."""
    after: Mapping[str, Any]
    """The settings that it names, as it sets them; empty for a pause and the like."""
    takes_back: int | None = None
    """Command that an undo takes back; None for everything else, and where nothing was left to take back."""

    @property
    def accepted(self) -> bool:
        """Whether the engine took it: its settings govern, though they may not have taken effect."""
        return self.command.accepted_at is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """Commands of a run, oldest first, with what they changed."""

    made: tuple[Made, ...] = ()
    """In the order of sending."""
    undoable: Made | None = None
    """The last change that was not taken back: what an undo sent now would take back."""

    def by_id(self) -> dict[int, Made]:
        """Command -> what it changed."""
        return {made.command.id: made for made in self.made}


def began_with(run: RunRow) -> dict[str, Any]:
    """The settings that the run's job began with; empty when the job cannot be read."""
    job = job_of(run.job)
    return settings_of(job) if job is not None else {}


def history(commands: Sequence[Command], began: Mapping[str, Any]) -> History:
    """commands: of one run, in any order. began: the settings before the first of them; empty when not known."""
    settings, stack, found = dict(began), list[Made](), list[Made]()
    for command in sorted(commands, key=lambda c: c.id):
        after, takes_back = _sets(command), None
        if command.kind == "undo" and stack:
            after, takes_back = dict(stack[-1].before), stack[-1].command.id
        before = {name: settings[name] for name in after if name in settings}
        made = Made(command=command, before=before, after=after, takes_back=takes_back)
        found.append(made)
        if not made.accepted:
            continue
        settings |= after
        if command.kind in CHANGE_KINDS:
            stack.append(made)
        elif command.kind == "undo" and stack:
            stack.pop()
    return History(made=tuple(found), undoable=stack[-1] if stack else None)


def _sets(command: Command) -> dict[str, Any]:
    """The settings that a command asks for, as the engine writes them."""
    if command.kind not in CHANGE_KINDS:
        return {}
    values = (command.result or {}).get("changes") if command.state == "applied" else None
    return dict(values) if values else {name: _written(name, value) for name, value in command.payload.items()}


def _written(name: str, value: Any) -> Any:
    try:
        return change_of(name, value)[1][name]
    except Refused:
        return value  # the engine refuses it too; the log shows what was sent


def said(name: str, value: Any) -> str:
    """A setting's value: "0.5", "12:4", "on", "none", "2 s"."""
    if isinstance(value, bool):
        return "on" if value else "off"
    if value is None:
        return "none"
    number = f"{value:g}" if isinstance(value, int | float) else str(value)
    return f"{number} s" if name == "min_lease_s" else number


def told(made: Made) -> str:
    """A command in a line: "staleness 1 → 0.5", "undo of 14: partition 8:8 → 12:4", "pause"."""
    command = made.command
    if command.kind == "stop":
        return STOPS.get(str(command.payload.get("mode", "now")), "stop")
    changes = ", ".join(change(name, made.before.get(name), value, known=name in made.before)
                        for name, value in made.after.items())  # fmt: skip
    if command.kind == "undo":
        return f"undo of {made.takes_back}: {changes}" if made.takes_back is not None else "undo"
    return changes or ASKED.get(command.kind, command.kind)


def change(name: str, before: Any, after: Any, *, known: bool = True) -> str:
    """One setting: "staleness 1 → 0.5"; without what it was where that is not known."""
    was = f"{said(name, before)} " if known else ""
    colon = ":" if name in DIRECTIONS else ""
    return f"{NAMES.get(name, name)}{colon} {was}→ {said(name, after)}"


def mark(made: Made) -> str:
    """A command in few characters, for a chart: "s 1 → 0.5", "12:4 → 8:8", "no_borrow", "paused"."""
    return " · ".join(_mark(name, made) for name in made.after) or DONE.get(made.command.kind, made.command.kind)


def _mark(name: str, made: Made) -> str:
    value = said(name, made.after[name])
    was = f"{said(name, made.before[name])} → " if name in made.before else ""
    match name:
        case "staleness":
            return f"s {was}{value}"
        case "partition":
            return f"{was}{value}"
        case "arm":
            return value
        case "lend_cap":
            return "no cap" if made.after[name] is None else f"cap {value}"
        case "min_lease_s":
            return f"lease ≥ {value}"
        case _:
            return f"{name} {value}"
