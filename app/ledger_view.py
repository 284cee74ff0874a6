"""The check of the ledger at the end of a run, and the log of its workers."""

from __future__ import annotations

import streamlit as st

from app.attention import DISTRUST, ledger_problems, ledger_told
from app.clock import PageClock
from app.glossary import helps_of
from app.live_frame import Frame
from app.markup import literal
from app.session import data_dir
from app.status import symbol
from storage.database import StorageError
from storage.reader import TelemetryReader
from storage.records import RunRow

LOG_LINES = 200
"""Newest lines shown; the file in the data folder has all of them."""

LEVEL_MARKS = {"debug": "·", "info": "·", "warning": "!", "error": "✗"}


def distrusted(run: RunRow, *, named: bool = False) -> None:
    """That the shares of time below are those of a run whose check failed; nothing for any other run. named: which run
    it is, where several are shown."""
    if told := ledger_told(run.ledger):
        st.warning(f"{f'{literal(run.run_id)} · ' if named else ''}{told}", icon=symbol("rule"))


def ledger(frame: Frame | None, clock: PageClock) -> None:
    """Whether the spans of a run that is over add up, with the figures; nothing while it runs."""
    if frame is None or frame.live:
        return
    with st.container(border=True, key="ledger"):
        checked, mark = frame.run.ledger, frame.pace.badge
        if checked is None:
            st.markdown(f"**Ledger** · not checked, because the run did not end by itself{mark}")
            return
        if checked.get("ok") and checked.get("max_gap_fraction") is None:
            st.markdown(f"**Ledger** · nothing to check: no device had begun{mark}")
            return
        problems = ledger_problems(checked)
        if problems:
            st.error(
                f"**Ledger check failed** · {'; '.join(map(literal, problems))}. {DISTRUST}.{mark}", icon=symbol("rule")
            )
        elif not frame.run.steps:
            # true, and no success: there is no share of time that it could vouch for
            st.markdown(f"**Ledger check passed**, of a run that made no step · {_figures(checked)}{mark}")
        else:
            st.success(f"**Ledger check passed** · {_figures(checked)}{mark}", icon=symbol("fact_check"))
        st.caption("What is checked", help=helps_of("ledger_gap", "cpu_over_busy", "cpu_over_idle"))


def _figures(checked: dict[str, object]) -> str:
    gap, cpu = checked.get("max_gap_fraction"), checked.get("cpu_over_busy")
    told = []
    if isinstance(gap, int | float):
        told.append(f"largest gap {gap:.3%} of a device's time")
    if isinstance(cpu, int | float):
        told.append(f"CPU seconds over busy seconds {cpu:.3f}")
    idle = checked.get("cpu_over_idle")
    if isinstance(idle, int | float):
        told.append(f"over idle seconds {idle:.3f}")
    return "; ".join(told) or "the spans of every device add up to its time"


def logs(run_id: str, clock: PageClock) -> None:
    """Newest line first, as plain text."""
    try:
        with TelemetryReader(data_dir().telemetry_db) as reader:
            lines = reader.logs(run_id, limit=LOG_LINES)
    except StorageError as error:
        st.error(str(error), icon=symbol("database_off"))
        return
    if not lines:
        st.caption("Nothing was logged yet.")
        return
    text = "\n".join(
        f"{clock.time(line.at)} {LEVEL_MARKS[line.level]} "
        f"{'engine' if line.device is None else f'device {line.device}':9} {line.text}"
        for line in reversed(lines)
    )
    st.code(text, language=None, height=260, wrap_lines=True)
    st.caption(f"The whole log: `{data_dir().engine_log}`")
