"""Steers a run: pause, resume, checkpoint, stop and staleness, each a row in the mailbox; and the log of those rows.

Nothing here says that something happened before the engine wrote `applied`.
"""

from __future__ import annotations

import math

import streamlit as st

from app.clock import PageClock, duration
from app.markup import literal
from app.modelled import KEEPS_NOTHING, is_emulated
from app.runs_table import can_resume
from app.session import LAUNCH_PAGE, data_dir, send
from app.status import COMMAND_STATUS, OPEN_COMMANDS, symbol
from engine.config.job import MAX_STALENESS
from planner.policy.bound import Bound
from storage.database import StorageError
from storage.mailbox import Mailbox
from storage.records import Command, RunRow
from storage.words import TERMINAL

LOG_ROWS = 12
"""Commands that fit beside the controls; the rest is one click away in `bidirl runs show`."""

ENABLED = {
    "pause": ("warming_up", "running"),
    "resume": ("pausing", "paused"),
    "checkpoint": ("running", "pausing", "paused"),
    "stop": ("queued", "starting", "warming_up", "running", "pausing", "paused"),
    "staleness": ("queued", "starting", "warming_up", "running", "pausing", "paused"),
}
"""Command -> states of a run in which it makes sense; the engine checks again."""

EFFECTS = {
    "pause": "running groups and chunks finish, nothing new is started",
    "resume": "rollout and training go on",
    "checkpoint": "weights and optimizer are saved at the end of the step",
    "stop": "the run ends at its next safe point; it can be resumed from its last checkpoint",
}


STOP_EMULATED = "the run ends at its next safe point; emulated devices keep no checkpoint"


def commands_of(run_id: str, limit: int = 200) -> list[Command]:
    """Newest first. Raises DatabaseBroken or SchemaTooNew; an absent mailbox is an empty one."""
    path = data_dir().control_db
    if not path.exists():
        return []
    with Mailbox(path) as mailbox:
        return mailbox.list(run_id, limit=limit)


def control_panel(run: RunRow, state: str, prompts_per_step: int | None, commands: list[Command]) -> None:
    """Buttons and the staleness of a live run."""
    st.markdown("**Control**")
    if state in TERMINAL:
        st.caption("The run is over; there is nothing left to steer.")
        _go_on(run, state)
        return
    stop = EFFECTS["stop"] if not is_emulated(run) else STOP_EMULATED
    with st.container(horizontal=True, gap="small"):
        for kind, label, icon in (
            ("pause", "Pause", "pause"),
            ("resume", "Resume", "play_arrow"),
            ("checkpoint", "Checkpoint", "save"),
        ):
            if kind == "checkpoint" and is_emulated(run):
                continue
            if st.button(
                label,
                icon=symbol(icon),
                key=f"control_{kind}",
                disabled=state not in ENABLED[kind] or _waiting(commands, kind),
                help=EFFECTS[kind],
            ):
                _send(kind, {}, run, EFFECTS[kind])
        with st.popover("Stop", icon=symbol("stop"), key="control_stop", disabled=state not in ENABLED["stop"]):
            st.markdown(f"Stop **{run.name}**: {stop}.")
            if st.button(
                "Stop this run", key="control_stop_confirm", type="primary", disabled=_waiting(commands, "stop")
            ):
                _send("stop", {}, run, stop)
    if is_emulated(run):
        st.caption(KEEPS_NOTHING)
    _staleness(run, state, prompts_per_step, commands)
    if commands:
        with st.container(key="last_command"):
            _last(commands[0])


def _go_on(run: RunRow, state: str) -> None:
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


def _staleness(run: RunRow, state: str, prompts_per_step: int | None, commands: list[Command]) -> None:
    if run.arm == "colocated":
        st.caption("Staleness is 0 by construction: a colocated run has no pools to overlap.")
        return
    now = run.staleness if run.staleness is not None else 0.0
    left, right = st.columns([2, 1], vertical_alignment="bottom", gap="small")
    wanted = left.number_input(
        "Staleness, versions a group may be late",
        value=float(now),
        min_value=0.0,
        max_value=MAX_STALENESS,
        step=0.25,
        format="%.4g",
        key=f"control_staleness:{run.run_id}:{run.config_version}",
    )
    changed = wanted is not None and not math.isclose(wanted, now)
    effect = staleness_effect(now, wanted if wanted is not None else now, prompts_per_step)
    if right.button(
        "Change",
        icon=symbol("tune"),
        key="control_staleness_send",
        disabled=not changed or state not in ENABLED["staleness"] or _waiting(commands, "staleness"),
        type="primary" if changed else "secondary",
        width="stretch",
    ):
        _send("staleness", {"staleness": wanted}, run, effect)
    if changed:
        st.caption(effect)
    elif run.staleness_effective_step is not None and run.staleness_effective_step > (run.steps or 0) + (
        run.start_step or 0
    ):
        st.caption(
            f"Staleness {now:g} governs starts now; the first step made only of such groups is "
            f"{run.staleness_effective_step}."
        )


def staleness_effect(now: float, wanted: float, prompts_per_step: int | None) -> str:
    """What a change does, by the rules of design.md section 4."""
    sentence = f"Staleness {now:g} → {wanted:g}: a group may be trained up to {math.ceil(wanted)} versions late"
    if prompts_per_step is None:
        return sentence + "."
    before = Bound(staleness=now, prompts_per_step=prompts_per_step)
    after = Bound(staleness=wanted, prompts_per_step=prompts_per_step)
    some = f", {after.F} of a step's {prompts_per_step} groups by {after.k + 1}" if after.F else ""
    return (
        f"{sentence}{some}; groups that may be started ahead {before.start_allowance} → {after.start_allowance}. "
        "Groups already started keep their bound."
    )


def any_open(commands: list[Command]) -> bool:
    """Whether a command will still change."""
    return any(c.state in OPEN_COMMANDS for c in commands)


def _waiting(commands: list[Command], kind: str) -> bool:
    return any(c.kind == kind and c.state in OPEN_COMMANDS for c in commands)


def _send(kind: str, payload: dict[str, object], run: RunRow, effect: str) -> None:
    try:
        send(kind, payload, run=run, expected_effect=effect)
    except StorageError as error:
        st.error(f"The command was not sent: {literal(str(error))}", icon=symbol("error"))
        return
    st.rerun()


def describe(command: Command) -> str:
    """A command in a few words."""
    if command.kind == "staleness":
        value = command.payload.get("staleness")
        return f"staleness → {value:g}" if isinstance(value, int | float) else "staleness"
    return command.kind


def _last(command: Command) -> None:
    status = COMMAND_STATUS[command.state]
    what = f"**{describe(command)}**"
    if command.state == "pending":
        st.info(f"{what} is sent and waits for the engine.", icon=symbol(status.icon))
    elif command.state == "accepted":
        when = literal(command.answer or "It will be applied at the next safe point.")
        st.info(f"{what} is accepted. {when}", icon=symbol(status.icon))
    elif command.state == "applied":
        st.success(f"{what} was applied. {literal(command.answer or '')}", icon=symbol(status.icon))
    else:
        st.warning(f"{what} was {status.word}. {literal(command.answer or '')}", icon=symbol(status.icon))


def command_log(commands: list[Command], clock: PageClock) -> None:
    """Newest first: who asked for what, what became of it, and what the engine answered."""
    st.markdown("**Commands**")
    if not commands:
        st.caption("None yet. Every command, its sender and its answer is kept here.")
        return
    st.dataframe(
        [
            {
                "id": c.id,
                "sent": clock.time(c.created_at),
                "who": c.who,
                "command": describe(c),
                "state": _state(c),
                "answer": c.answer or "",
            }
            for c in commands[:LOG_ROWS]
        ],
        hide_index=True,
        height="content",
        column_config={
            "id": st.column_config.NumberColumn(width=40),
            "state": st.column_config.TextColumn(width=130),
            "answer": st.column_config.TextColumn(width="large"),
        },
        key="command_log",
    )


def _state(command: Command) -> str:
    if command.state == "applied" and command.applied_at is not None:
        return f"applied in {duration(max(0.0, command.applied_at - command.created_at))}"
    return command.state
