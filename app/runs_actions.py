"""What can be done with the chosen runs: open, clone, resume, export, tag, note, delete."""

from __future__ import annotations

from collections.abc import Sequence

import streamlit as st

from app import runs_marks, runs_url, session
from app.access import NotAllowed
from app.export_view import exports
from app.markup import literal
from app.modelled import KEEPS_NOTHING, is_emulated, pace_of
from app.runs_table import Listed, can_delete, can_resume, compared
from app.session import RUN_KEY
from app.status import COMMAND_STATUS, OPEN_COMMANDS, symbol
from storage.database import StorageError
from storage.mailbox import Mailbox
from storage.records import Command
from storage.words import TERMINAL

NAMED = 8
"""Runs that a question names before it counts the rest."""

NEWEST_COMMANDS = 500
"""Commands in which a wish to delete is looked for; the engine answers within a second, so it is among the newest."""


def bar(chosen: Sequence[Listed], known_tags: Sequence[str]) -> None:
    """The actions. chosen: the runs that are there, at least one."""
    allowed, lacks = session.may_command()
    if len(chosen) == 1:
        _one(chosen[0])
    else:
        st.markdown(f"**{len(chosen)} runs chosen** · compared below")
    with st.container(horizontal=True, vertical_alignment="center", gap="small"):
        if len(chosen) == 1:
            _one_buttons(chosen[0], allowed=allowed)
        _delete(chosen, allowed=allowed)
        if st.button("Choose none", icon=symbol("deselect"), key="runs_clear", type="tertiary"):
            runs_url.write(runs_url.Chosen())
            st.rerun()
        if not allowed:
            st.caption(literal(lacks))
    left, right = st.columns([2, 3], gap="medium")
    with left:
        runs_marks.tags_box(chosen, known_tags, allowed=allowed)
    with right:
        if len(chosen) == 1:
            runs_marks.note_box(chosen[0], allowed=allowed)
    runs_marks.problem_line(chosen)
    _deleting(chosen)


def _one(listed: Listed) -> None:
    run = listed.run
    badges = pace_of(run).badge + (f" :gray-badge[{literal(compared(run))}]" if run.comparison else "")
    cause = f" · {literal(run.error)}" if run.error else ""
    st.markdown(f"**{literal(run.name)}** · {literal(run.run_id)}{badges}{cause}")


def _one_buttons(listed: Listed, *, allowed: bool) -> None:
    run = listed.run
    if st.button("Open", type="primary", icon=symbol("monitoring"), key="run_open"):
        st.switch_page(session.LIVE_PAGE, query_params={RUN_KEY: run.run_id})
    if st.button("Clone", icon=symbol("content_copy"), key="run_clone"):
        st.switch_page(session.LAUNCH_PAGE, query_params={"clone": run.run_id})
    if st.button(
        "Resume",
        icon=symbol("resume"),
        key="run_resume",
        disabled=not allowed or not can_resume(listed.state) or is_emulated(run),
        help=KEEPS_NOTHING if is_emulated(run) else "Continues from the newest checkpoint, as a new run.",
    ):
        st.switch_page(session.LAUNCH_PAGE, query_params={"resume": run.run_id})
    exports(run, None, key="run_export")


def _delete(chosen: Sequence[Listed], *, allowed: bool) -> None:
    """Asks first. Runs that go on are left out, and said so."""
    over = [each for each in chosen if can_delete(each.state)]
    live = [each for each in chosen if each.state not in TERMINAL]
    several = len(over) > 1
    label = f"Delete {len(over)} runs" if several else "Delete"
    # one key for all that may be chosen: what stood open for other runs closes with them
    with st.popover(label, icon=symbol("delete"), key="run_delete", disabled=not allowed or not over):
        if not over:
            return
        named = ", ".join(f"**{literal(each.run.run_id)}**" for each in over[:NAMED])
        rest = f" and {len(over) - NAMED} more" if len(over) > NAMED else ""
        st.markdown(f"Delete {named}{rest} with telemetry and checkpoints? This cannot be undone.")
        if live:
            st.caption(f"{len(live)} of the chosen runs go on: they stay. Stop them first.")
        confirm = f"Delete these {len(over)} runs" if several else "Delete this run"
        if st.button(confirm, type="primary", key="run_delete_confirm"):
            delete(over)


def delete(runs: Sequence[Listed]) -> None:
    """Ask the engine to delete them: only it writes telemetry."""
    try:
        for each in runs:
            session.send("delete", {}, run=each.run)
    except (StorageError, NotAllowed) as error:
        st.error(f"The command was not sent: {literal(str(error))}", icon=symbol("error"))
        return
    st.rerun()


def _deleting(chosen: Sequence[Listed]) -> None:
    """What became of the wishes to delete them."""
    last = _deletes()
    for each in chosen:
        command = last.get(each.run.run_id)
        if command is None or command.state == "applied":
            continue
        icon, told = symbol(COMMAND_STATUS[command.state].icon), literal(each.run.run_id)
        if command.state in OPEN_COMMANDS:
            st.info(f"Delete is sent and waits for the engine. {told}", icon=icon)
        else:
            word = COMMAND_STATUS[command.state].word
            st.warning(f"Delete of {told} was {word}. {literal(command.answer or '')}", icon=icon)


def gone_by_delete(run_ids: Sequence[str]) -> dict[str, Command]:
    """Those of the runs that are not there any more because somebody deleted them: run id -> the command."""
    last = _deletes() if run_ids else {}
    # its row is the last that goes, so that an accepted one of a run that is gone is done
    return {i: last[i] for i in run_ids if i in last and last[i].state in ("accepted", "applied")}


def _deletes() -> dict[str, Command]:
    """Run id -> the newest wish to delete it, of the newest commands; none when the mailbox cannot be read."""
    mailbox = session.data_dir().control_db
    if not mailbox.exists():
        return {}
    try:
        with Mailbox(mailbox) as opened:
            newest_first = opened.list(limit=NEWEST_COMMANDS)
    except StorageError:
        return {}
    return {c.run_id: c for c in reversed(newest_first) if c.kind == "delete" and c.run_id is not None}
