"""One click launches 16 emulated devices through the mailbox, as the Launch page would, and then shows them.

They take no core, so that what runs on real devices goes on. While an emulated run goes on there is no second one: the
button leads there instead.
"""

from __future__ import annotations

import uuid

import streamlit as st

from app import job_form, session
from app.access import NotAllowed
from app.markup import literal
from app.modelled import EMULATED, is_emulated
from app.presets import preset
from app.runs_table import state_of
from app.status import COMMAND_STATUS, OPEN_COMMANDS, symbol
from storage.database import StorageError
from storage.mailbox import Mailbox
from storage.reader import TelemetryReader
from storage.records import Command, RunRow
from storage.words import TERMINAL

PRESET = "emulated_16"
STEPS = 300
"""Some twelve minutes at the job's time scale: enough to change settings several times and to see what each did. The
job file itself ends after a minute and a half, which is enough to measure it."""
LABEL = "Run 16 emulated devices"
HELP = (
    "The engine, the policy and these pages as they are, with devices that wait out modelled times. They take no core, "
    "so that what runs now goes on, and they learn nothing. Some twelve minutes, unless it is stopped."
)

SENT, IDEM, REFUSED = "_one_click_sent", "_one_click_idem", "_one_click_refused"

POLL_S, QUIET_S = 0.5, 5.0
"""Seconds between two looks while a launch is on its way, and otherwise, for runs that others start."""

SHOWN_RUNS = 4
"""More buttons than this are a list, which the run picker is already."""


def interval_s() -> float:
    """Seconds between two looks of a part that offers this."""
    return POLL_S if waits() else QUIET_S


def waits() -> bool:
    """Whether a launch is on its way."""
    return SENT in st.session_state


def going_on() -> list[RunRow]:
    """Runs that are not over, newest first; none when they cannot be read, which the page says elsewhere."""
    try:
        with TelemetryReader(session.data_dir().telemetry_db) as reader:
            engine = reader.engine()
            return [run for run in reader.runs() if state_of(run, engine, session.now()) not in TERMINAL]
    except StorageError:
        return []


def others(shown: str | None) -> tuple[str, ...]:
    """What `switch` offers: the other runs that go on, and whether one of all is emulated; compared, to notice when
    that changes."""
    runs = going_on()
    return (str(any(map(is_emulated, runs))), *(run.run_id for run in runs if run.run_id != shown))


def switch(shown: str | None) -> None:
    """A button for every other run that goes on, and the one click; `shown` is the run that the page shows."""
    runs = going_on()
    others = [run for run in runs if run.run_id != shown]
    with st.container(
        horizontal=True, horizontal_alignment="right", vertical_alignment="center", gap="small", key="switch_runs"
    ):
        if others:
            st.caption("Also running", width="content")
        for run in others[:SHOWN_RUNS]:
            mark = f"{EMULATED} · " if is_emulated(run) else ""
            label, icon = f"{mark}{literal(run.name)}", symbol("science" if mark else "play_circle")
            if st.button(label, icon=icon, key=f"switch_{run.run_id}", help=f"Switch to {literal(run.run_id)}"):
                show(run.run_id)
        if not any(map(is_emulated, runs)):
            button()
    outcome()


def offer() -> None:
    """The one click by itself, for pages that show no run."""
    running = next(filter(is_emulated, going_on()), None)
    if running is None:
        button()
    elif st.button(f"Show {EMULATED} · {literal(running.name)}", icon=symbol("science"), key="one_click_show"):
        show(running.run_id)
    outcome()


def button() -> None:
    """Launch, once for each click."""
    allowed, lacks = session.may_command()
    told = HELP if allowed else literal(lacks)
    disabled = not allowed or SENT in st.session_state
    if st.button(LABEL, icon=symbol("science"), key="one_click", help=told, disabled=disabled):
        _launch()


def _launch() -> None:
    source = preset(PRESET)
    st.session_state.pop(REFUSED, None)
    if source is None:
        st.session_state[REFUSED] = f"the job file {PRESET}.yaml is not in the checkout"
        return
    # kept until it is sent: a click whose command could not be written may be tried again and is still one launch
    key = st.session_state.setdefault(IDEM, f"app-{uuid.uuid4().hex}")
    job = job_form.set_field(source.text, "algorithm.steps", str(STEPS))
    payload: dict[str, object] = {"job": job, "base_dir": source.base_dir, "resume": None}
    try:
        st.session_state[SENT] = session.send("launch", payload, idem_key=key, expires_in_s=None)
    except (StorageError, NotAllowed) as error:
        st.session_state[REFUSED] = f"the command was not sent: {error}"
        return
    del st.session_state[IDEM]
    st.rerun()


def outcome() -> None:
    """What became of the click: shows the run as soon as the engine names it, or says why there is none."""
    command = _sent()
    if command is not None and command.state in OPEN_COMMANDS:
        waits = "waits for the engine" if command.state == "pending" else "is being prepared by the engine"
        st.info(f"The launch of 16 emulated devices {waits}.", icon=symbol(COMMAND_STATUS[command.state].icon))
    elif command is not None:
        del st.session_state[SENT]
        run_id = (command.result or {}).get("run_id")
        if command.state == "applied" and isinstance(run_id, str):
            show(run_id)
        st.session_state[REFUSED] = (
            f"it was {COMMAND_STATUS[command.state].word}: {command.answer or 'without a reason'}"
        )
        st.rerun()
    if told := st.session_state.get(REFUSED):
        st.error(f"16 emulated devices were not launched: {literal(told)}", icon=symbol("error"))


def _sent() -> Command | None:
    """The launch that is on its way; None without one, and while the mailbox cannot be read."""
    command_id = st.session_state.get(SENT)
    if command_id is None:
        return None
    try:
        with Mailbox(session.data_dir().control_db) as mailbox:
            return mailbox.get(command_id)
    except StorageError:
        return None
    except ValueError:
        # the mailbox was emptied: nobody will answer any more
        del st.session_state[SENT]
        return None


def show(run_id: str) -> None:
    """Make it the run of this session and of the page."""
    session.remember(run_id)
    st.switch_page(session.LIVE_PAGE, query_params={session.RUN_KEY: run_id})
