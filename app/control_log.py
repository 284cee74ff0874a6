"""The log of commands, and the table of what was asked for against what is in effect. It reads nothing.

Tables of their own and not data frames, because answers are sentences: they wrap instead of being cut.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape

import streamlit as st

from app.clock import PageClock, device_time, duration
from app.command_words import History, Made, told
from app.glossary import plain_of
from app.governing import Line
from app.modelled import REAL, Pace
from app.prediction import Measured, neighbours
from app.status import COMMAND_STATUS, OPEN_COMMANDS

LOG_ROWS = 40
"""Newest commands shown; all of them are in `control.db`."""

STYLE = """
.control-table { overflow: auto; }
.control-table.log { max-height: 40rem; }
.control-table table { border-collapse: collapse; width: 100%; font-size: .84rem; line-height: 1.4; }
.control-table.log thead { position: sticky; top: 0; z-index: 1;
  background: color-mix(in srgb, var(--st-background-color, Canvas) 88%, transparent); backdrop-filter: blur(12px); }
.control-table th { font-weight: 600; white-space: nowrap; }
.control-table th, .control-table td { padding: .38rem .6rem; text-align: left; vertical-align: top; border: 0;
  border-bottom: 1px solid color-mix(in srgb, currentColor 14%, transparent); }
.control-table tbody tr:last-child td { border-bottom: 0; }
.control-table .n { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
.control-table .short { white-space: nowrap; }
.control-table .what { font-weight: 600; min-width: 8.5rem; }
.control-table .long { min-width: 14rem; overflow-wrap: anywhere; }
.control-table .did { min-width: 19rem; }
.control-table .quiet { opacity: .68; }
.control-table .state { white-space: nowrap; }
.control-table .state::before { content: ""; display: inline-block; width: .55rem; height: .55rem; border-radius: 50%;
  margin-right: .45rem; background: currentColor; opacity: .45; }
.control-table .applied::before, .control-table .settled::before { background: #2E9E6B; opacity: 1; }
.control-table .accepted::before { background: #5877DD; opacity: 1; }
.control-table .pending::before { background: #8A909C; opacity: 1; }
.control-table .rejected::before, .control-table .expired::before { background: #E5482A; opacity: 1; }
.control-table .open::before { background: #E0912B; opacity: 1; }
.control-table small { display: block; opacity: .72; font-size: .78rem; }
"""
"""Put into the page once; the colours follow the theme's text colour."""

GOVERNS_HEAD = "<tr><th>setting</th><th>asked for</th><th>in effect</th><th>why, or since when</th></tr>"

LOG_HEAD = f"""<tr><th class="n">no.</th><th>sent</th><th>who</th><th>command</th><th>state</th>
<th class="n" title="{escape(plain_of("applied_after"))}">applied after</th><th>answer</th>
<th title="{escape(plain_of("expected_effect"))}">expected effect</th>
<th title="{escape(plain_of("measured_effect"))}">measured effect</th></tr>"""


def governs(lines: Sequence[Line]) -> str:
    """HTML of what was asked for against what is in effect."""
    body = "".join(
        f'<tr><td class="what">{escape(line.name)}</td><td class="short">{escape(line.asked)}</td>'
        f'<td class="state {"settled" if line.settled else "open"}">{escape(line.effect)}</td>'
        f'<td class="quiet">{escape(line.note)}</td></tr>'
        for line in lines
    )
    return _table(GOVERNS_HEAD, body, label="Asked for and in effect")


def command_log(
    found: History, measured: Mapping[int, Measured], clock: PageClock, pace: Pace = REAL, *, live: bool = True
) -> None:
    """Newest first: who asked for what and when, what became of it, what was expected of it and what it did."""
    newest = list(reversed(found.made))[:LOG_ROWS]
    cut = f" · the newest {LOG_ROWS} of {len(found.made)}" if len(found.made) > LOG_ROWS else ""
    st.markdown(f"**Commands**{cut}{pace.badge}")
    if not newest:
        told_none = "None yet." if live else "None was sent to this run."
        st.caption(f"{told_none} Every command, its sender, its answer and what it did are kept here.")
        return
    st.html(log_table(newest, measured, clock, pace))


def log_table(commands: Sequence[Made], measured: Mapping[int, Measured], clock: PageClock, pace: Pace = REAL) -> str:
    """HTML in which every word from elsewhere is escaped."""
    rows, day = [], ""
    for made in commands:
        sent_on = clock.moment(made.command.created_at)[:10]
        rows.append(_row(made, measured.get(made.command.id), clock, pace, day=sent_on if sent_on != day else ""))
        day = sent_on
    body = "".join(rows)
    return _table(LOG_HEAD, body, label="Commands", css="log")


def _row(made: Made, did: Measured | None, clock: PageClock, pace: Pace, *, day: str) -> str:
    """day: said where it is another one than in the row above."""
    command = made.command
    state = COMMAND_STATUS[command.state].word
    step = f"<small>step {command.effective_step}</small>" if command.effective_step is not None else ""
    cells = [
        f'<td class="n">{command.id}</td>',
        f'<td class="short">{clock.time(command.created_at)}{f"<small>{day}</small>" if day else ""}</td>',
        f'<td class="short">{escape(command.who)}</td>',
        f'<td class="what">{escape(told(made))}</td>',
        f'<td class="state {command.state}">{state}{step}</td>',
        f'<td class="n">{escape(took(made))}</td>',
        f'<td class="long">{escape(command.answer or "–")}{_moving(made, pace)}</td>',
        f'<td class="long quiet">{escape(command.expected_effect or "–")}</td>',
        f'<td class="long did">{_did(made, did)}</td>',
    ]
    return f"<tr>{''.join(cells)}</tr>"


def _moving(made: Made, pace: Pace) -> str:
    """What moving emulated devices cost in their own time: the engine's answer reckons in this machine's."""
    result = made.command.result or {}
    seconds, device_s = result.get("seconds"), result.get("device_s")
    if not pace.emulated or not isinstance(seconds, int | float) or not isinstance(device_s, int | float):
        return ""
    cost = f"{duration(pace.seconds(seconds))}, {device_time(pace.seconds(device_s))}{pace.unit}"
    return f"<small>moving took {cost}</small>"


def took(made: Made) -> str:
    """How long it took until it was applied; a dash before."""
    command = made.command
    if command.state != "applied" or command.applied_at is None:
        return "–"
    return duration(max(0.0, command.applied_at - command.created_at))


def _did(made: Made, did: Measured | None) -> str:
    if did is None:
        return "is awaited" if made.command.state in OPEN_COMMANDS and made.after else "–"
    others = neighbours(did)
    return f"{escape(did.text)}{f'<small>{escape(others)}</small>' if others else ''}"


def _table(head: str, body: str, *, label: str, css: str = "") -> str:
    head = head.replace("<th", '<th scope="col"')
    return (
        f'<div class="control-table {css}" tabindex="0" role="region" aria-label="{label}"><table>'
        f"<thead>{head}</thead><tbody>{body}</tbody></table></div>"
    )
