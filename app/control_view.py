"""Buttons that steer a run: pause, resume, checkpoint, stop and undo, each a row in the mailbox; and what became of it.

Nothing here says that something happened before the engine wrote `applied`. Viewers see the buttons closed, with the
reason; `session.send` refuses them again.
"""

from __future__ import annotations

from collections.abc import Sequence

import streamlit as st

from app.access import NotAllowed
from app.command_words import History, Made, began_with, change, history, told
from app.markup import literal
from app.modelled import KEEPS_NOTHING, is_emulated
from app.runs_table import can_resume
from app.session import LAUNCH_PAGE, RUN_KEY, data_dir, may_command, now, send
from app.status import COMMAND_STATUS, OPEN_COMMANDS, symbol
from storage.database import StorageError
from storage.mailbox import Mailbox
from storage.records import Command, EngineRow, RunRow
from storage.words import CHANGE_KINDS, TERMINAL

CONTROL_PAGE = "app_pages/control.py"

MOST_COMMANDS = 500
"""Commands of a run that pages read: more than people send, and a few milliseconds."""

NEWS_S = 60.0
"""Seconds for which a page says that a command was applied: long enough to be read after looking elsewhere."""

GOES_ON = ("starting", "warming_up", "running", "pausing", "paused")
"""States in which an engine takes changes of a run."""

ENABLED = {
    "pause": ("warming_up", "running"),
    "resume": ("pausing", "paused"),
    "checkpoint": ("running", "pausing", "paused"),
    "stop": ("queued", *GOES_ON),
    "undo": GOES_ON,
    "change": GOES_ON,
}
"""Command -> states of a run in which it makes sense; the engine checks again."""

EFFECTS = {
    "pause": "running groups and chunks finish, nothing new is started",
    "resume": "rollout and training go on",
    "checkpoint": "weights and optimizer are saved at the end of the step",
}

STOP_MODES = {"drain": "after the step in hand", "now": "at once"}
"""Mode of a stop -> when it stops; the first is the gentler one."""

STOPS = {
    "drain": "The step in hand is made first.",
    "now": "Groups in flight come back and the step in hand is given up.",
}


def commands_of(run_id: str, limit: int = MOST_COMMANDS) -> list[Command]:
    """Newest first. Raises DatabaseBroken or SchemaTooNew; an absent mailbox is an empty one."""
    path = data_dir().control_db
    if not path.exists():
        return []
    with Mailbox(path) as mailbox:
        return mailbox.list(run_id, limit=limit)


def history_of(run: RunRow, commands: Sequence[Command]) -> History:
    """What the commands changed; where only the newest are known, not from what."""
    return history(commands, began_with(run) if len(commands) < MOST_COMMANDS else {})


def steerable(run: RunRow, state: str, engine: EngineRow | None, *, silent: bool) -> str:
    """The stored state while the run's own engine is merely silent: commands wait for it. Else the effective one."""
    own = engine is not None and engine.engine_id == run.engine_id
    return run.state if own and silent else state


def control_panel(run: RunRow, state: str, commands: list[Command]) -> None:
    """What the Live page has: the buttons, the way to everything else, and what became of the last command."""
    st.markdown("**Control**")
    if state in TERMINAL:
        st.caption("The run is over; there is nothing left to steer.")
        go_on(run, state)
    else:
        buttons(run, state, commands)
        told_why()
    st.page_link(
        CONTROL_PAGE,
        label="What the run was asked for and what became of it"
        if state in TERMINAL
        else "Change staleness, partition, arm or directions",
        icon=symbol("tune"),
        query_params={RUN_KEY: run.run_id},
    )
    if commands and worth_telling(commands[0], now()):
        with st.container(key="last_command"):
            outcome(history_of(run, commands).by_id()[commands[0].id])


def told_why() -> None:
    """Why buttons are closed, to a viewer."""
    allowed, lacks = may_command()
    if not allowed:
        st.caption(f"{symbol('visibility_lock')} {literal(lacks)}")


def buttons(run: RunRow, state: str, commands: list[Command], found: History | None = None) -> None:
    """Pause, resume, checkpoint and stop; with `found` also the undo of its last change."""
    allowed, _ = may_command()
    stopping = open_of(commands, "stop")
    with st.container(horizontal=True, gap="small"):
        for kind, label, icon, keys in (
            ("pause", "Pause", "pause", "Alt+P"),
            ("resume", "Resume", "play_arrow", "Alt+P"),
            ("checkpoint", "Checkpoint", "save", "Alt+K"),
        ):
            if kind == "checkpoint" and is_emulated(run):
                continue
            closed = not allowed or state not in ENABLED[kind] or bool(open_of(commands, kind))
            if st.button(
                label,
                icon=symbol(icon),
                key=f"control_{kind}",
                disabled=closed or (bool(stopping) and kind != "resume"),
                help=EFFECTS[kind],
                # of the two that share a key only one is open at a time
                shortcut=keys,
            ):
                send_one(kind, {}, run, EFFECTS[kind])
        _stop(run, state, stopping, allowed=allowed)
        if found is not None:
            _undo(run, state, commands, found, allowed=allowed)
    if is_emulated(run):
        st.caption(KEEPS_NOTHING)


def _stop(run: RunRow, state: str, stopping: list[Command], *, allowed: bool) -> None:
    """A stop asks how and to be confirmed; one that waits for its step can still be made at once."""
    modes = list(STOP_MODES) if state == "running" and not stopping else ["now"]
    closed = not allowed or state not in ENABLED["stop"] or any(c.payload.get("mode") != "drain" for c in stopping)
    with st.popover("Stop", icon=symbol("stop"), key="control_stop", disabled=closed):
        st.markdown(f"Stop **{literal(run.name)}** · {literal(run.run_id)}")
        mode = st.radio(
            "When",
            modes,
            format_func=STOP_MODES.__getitem__,
            key=f"control_stop_mode:{run.run_id}:{'+'.join(modes)}",
            horizontal=True,
            label_visibility="collapsed" if len(modes) == 1 else "visible",
        )
        kept = KEEPS_NOTHING if is_emulated(run) else "The run can be resumed from its last checkpoint."
        st.caption(f"{STOPS[mode]} {kept}")
        if st.button("Stop this run", key="control_stop_confirm", type="primary", disabled=closed):
            send_one("stop", {"mode": mode}, run, f"the run ends {STOP_MODES[mode]}")


def _undo(run: RunRow, state: str, commands: list[Command], found: History, *, allowed: bool) -> None:
    """Says which command is taken back, and to what, before it does."""
    last = found.undoable
    waits = [c for c in commands if c.state == "pending" and c.kind in (*CHANGE_KINDS, "undo")]
    closed = (
        not allowed or state not in ENABLED["undo"] or last is None or bool(waits) or bool(open_of(commands, "stop"))
    )
    why = "Nothing was changed since this run began." if last is None else "A change is on its way." if waits else None
    with st.popover("Undo", icon=symbol("undo"), key="control_undo", disabled=closed, help=why):
        if last is None:
            return
        back = "; ".join(change(name, last.after[name], value) for name, value in last.before.items())
        st.markdown(f"Takes back **command {last.command.id}** of {literal(last.command.who)}: {literal(told(last))}.")
        st.markdown(f"From then on: **{literal(back)}**")
        if st.button("Take it back", key="control_undo_confirm", type="primary", disabled=closed):
            effect = f"command {last.command.id} is taken back: {back}"
            send_one("undo", {}, run, effect, expected_config_version=run.config_version or 0)


def go_on(run: RunRow, state: str) -> None:
    """What can be made of a run that is over."""
    with st.container(horizontal=True, gap="small"):
        if st.button(
            "Clone", icon=symbol("content_copy"), key="control_clone", help="The same job, to edit and launch."
        ):
            st.switch_page(LAUNCH_PAGE, query_params={"clone": run.run_id})
        if (
            can_resume(state)
            and not is_emulated(run)
            and st.button(
                "Resume from checkpoint",
                icon=symbol("resume"),
                key="control_resume_run",
                help="A new run that goes on.",
            )
        ):
            st.switch_page(LAUNCH_PAGE, query_params={"resume": run.run_id})
    if can_resume(state) and is_emulated(run):
        st.caption(KEEPS_NOTHING)


def worth_telling(command: Command, now: float) -> bool:
    """What became of it is news: it waits, was not done, or was applied a moment ago. The log has all of them."""
    return command.state != "applied" or command.applied_at is None or now - command.applied_at < NEWS_S


def any_open(commands: Sequence[Command]) -> bool:
    """Whether a command will still change."""
    return any(c.state in OPEN_COMMANDS for c in commands)


def open_of(commands: Sequence[Command], *kinds: str) -> list[Command]:
    """Commands of these kinds that will still change."""
    return [c for c in commands if c.kind in kinds and c.state in OPEN_COMMANDS]


def send_one(
    kind: str, payload: dict[str, object], run: RunRow, effect: str, *, expected_config_version: int | None = None
) -> None:
    """Send a command and draw the page again, or say why it was not sent."""
    try:
        send(kind, payload, run=run, expected_effect=effect, expected_config_version=expected_config_version)
    except (StorageError, NotAllowed) as error:
        st.error(f"The command was not sent: {literal(str(error))}", icon=symbol("error"))
        return
    st.rerun()


def outcome(made: Made) -> None:
    """What became of a command so far."""
    command = made.command
    status = COMMAND_STATUS[command.state]
    what = f"**{literal(told(made))}**"
    if command.state == "pending":
        st.info(f"{what} is sent and waits for the engine.", icon=symbol(status.icon))
    elif command.state == "accepted":
        when = literal(command.answer or "It will be applied at the next safe point.")
        st.info(f"{what} is accepted. {when}", icon=symbol(status.icon))
    elif command.state == "applied":
        st.success(f"{what} was applied. {literal(command.answer or '')}", icon=symbol(status.icon))
    else:
        st.warning(f"{what} was {status.word}. {literal(command.answer or '')}", icon=symbol(status.icon))
