"""The word, icon and colour of each state, so that no state is shown by colour alone. Pure constants."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Colour = Literal["red", "orange", "yellow", "blue", "green", "violet", "gray"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Status:
    """How a state is shown."""

    word: str
    """For people."""
    icon: str
    """A Material symbol."""
    colour: Colour
    """Of the badge."""


RUN_STATUS = {
    "queued": Status(word="Queued", icon="hourglass_empty", colour="gray"),
    "starting": Status(word="Starting", icon="rocket_launch", colour="blue"),
    "warming_up": Status(word="Warming up", icon="local_fire_department", colour="orange"),
    "running": Status(word="Running · live", icon="play_circle", colour="green"),
    "pausing": Status(word="Pausing", icon="pause_circle", colour="orange"),
    "paused": Status(word="Paused", icon="pause_circle", colour="orange"),
    "stopping": Status(word="Stopping", icon="stop_circle", colour="orange"),
    "finished": Status(word="Finished", icon="check_circle", colour="blue"),
    "stopped": Status(word="Stopped", icon="stop_circle", colour="gray"),
    "failed": Status(word="Failed", icon="error", colour="red"),
    "interrupted": Status(word="Interrupted", icon="link_off", colour="red"),
}

COMMAND_STATUS = {
    "pending": Status(word="pending", icon="schedule", colour="gray"),
    "accepted": Status(word="accepted", icon="pending", colour="blue"),
    "applied": Status(word="applied", icon="check_circle", colour="green"),
    "rejected": Status(word="rejected", icon="block", colour="red"),
    "superseded": Status(word="superseded", icon="redo", colour="gray"),
    "expired": Status(word="expired", icon="timer_off", colour="orange"),
}

OPEN_COMMANDS = ("pending", "accepted")
"""States of a command that will still change."""


def symbol(icon: str) -> str:
    """Streamlit's name of a Material symbol."""
    return f":material/{icon}:"
