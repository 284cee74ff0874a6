"""What a page shows of a run at one moment, and how it is kept: the last good one stays while there is no newer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

import streamlit as st

from app import session
from app.modelled import Pace, pace_of
from app.runs_table import engine_silent
from storage.database import StorageError
from storage.reader import TelemetryReader
from storage.records import EngineRow, RunRow
from storage.words import TERMINAL


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Picture:
    """What every page knows of the run that it shows."""

    run: RunRow
    """As stored."""
    engine: EngineRow | None
    """The current engine life."""
    state: str
    """What the stored state means now."""
    now: float
    """Unix seconds."""

    @property
    def live(self) -> bool:
        """Whether more is coming."""
        return self.state not in TERMINAL

    @property
    def pace(self) -> Pace:
        """How the seconds of its devices relate to those that are stored."""
        return pace_of(self.run)

    @property
    def engine_silent(self) -> bool:
        """Whether the engine of a run that goes on is not heard."""
        return engine_silent(self.run, self.engine, self.now)


Kept = TypeVar("Kept", bound=Picture)


def read_kept(slot: str, look: Callable[[TelemetryReader], Kept | None]) -> tuple[Kept | None, StorageError | None]:
    """What `look` reads now, or the last good picture in the session's `slot` and why it is not newer: the database
    cannot be read, or the run is gone, where `look` finds nothing."""
    last: Kept | None = st.session_state.get(slot)
    try:
        with TelemetryReader(session.data_dir().telemetry_db) as reader:
            found = look(reader)
    except StorageError as error:
        return last, error
    if found is None:
        return last, None
    st.session_state[slot] = found
    return found, None
