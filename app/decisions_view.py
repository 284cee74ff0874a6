"""Draws the Decisions table: why devices were lent or not, and what it brought. It reads nothing.

A table of its own and not a data frame, because reasons are sentences: they wrap instead of being cut.
"""

from __future__ import annotations

from html import escape

import streamlit as st

from app.clock import PageClock
from app.decision_rows import DecisionLine, decision_lines, nothing_decided, summaries
from app.glossary import plain_of
from app.lending import SHOWN_DECISIONS
from app.live_frame import Frame
from app.modelled import REAL, Pace
from app.session import DECISIONS_PAGE, RUN_KEY
from app.status import symbol
from engine.config import BORROWING_ARMS

STYLE = """
.decisions { max-height: 34rem; overflow: auto; }
.decisions table { border-collapse: collapse; width: 100%; font-size: .82rem; line-height: 1.35; }
.decisions thead { position: sticky; top: 0; z-index: 1; background: color-mix(in srgb, Canvas 78%, transparent);
  backdrop-filter: blur(12px); }
.decisions th { font-weight: 600; }
.decisions th, .decisions td { padding: .3rem .55rem; text-align: left; vertical-align: top; white-space: nowrap;
  border: 0; border-bottom: 1px solid color-mix(in srgb, currentColor 14%, transparent); }
.decisions thead tr:first-child th { border-bottom: 0; padding-bottom: 0; font-weight: 400; text-align: center; }
.decisions thead tr:first-child th span { display: block; opacity: .72;
  border-bottom: 1px solid color-mix(in srgb, currentColor 30%, transparent); }
.decisions .n { text-align: right; font-variant-numeric: tabular-nums; }
.decisions .first { padding-left: 1.1rem; }
.decisions .lent { font-weight: 600; }
.decisions .refused { opacity: .72; }
.decisions .bad { color: color-mix(in srgb, #E5482A 82%, currentColor); font-weight: 600; }
.decisions .reason { white-space: normal; min-width: 20rem; overflow-wrap: anywhere; }
.decisions .reason div { display: -webkit-box; -webkit-box-orient: vertical; -webkit-line-clamp: 4; overflow: hidden; }
@media (max-width: 1250px) {
  .decisions td { white-space: normal; }
  .decisions td:first-child, .decisions td.n, .decisions td.what { white-space: nowrap; }
  .decisions .reason { min-width: 15rem; }
}
"""
"""Put into the page once; the colours follow the theme's text colour."""

COLUMNS = (
    ("time", "", ""),
    ("step", "n", "decision_step"),
    ("what", "", ""),
    ("direction", "", ""),
    ("devices", "", "lent_devices"),
    ("gain, s", "n first", "predicted_gain"),
    ("cost, s", "n", "predicted_cost"),
    ("state", "first", ""),
    ("delivered", "", "delivered"),
    ("cost, s", "n", "measured_cost"),
    ("gain, s", "n", "measured_gain"),
    ("regret, s", "n", "regret"),
    ("reason", "", ""),
)
"""Head, CSS class and term of each column."""

GROUPS = (
    '<tr><th colspan="5"></th><th class="first" colspan="2" scope="colgroup"><span>predicted{unit}</span></th>'
    '<th class="first" colspan="2" scope="colgroup"><span>lease</span></th>'
    '<th colspan="3" scope="colgroup"><span>measured{unit}</span></th><th></th></tr>'
)
"""What columns have in common."""

SPOKEN = (
    "Costs and gains are modelled; reasons are the policy's own words, which reckon in the seconds of this machine:"
)
"""Under the table of emulated devices: the policy decides on what it measures here."""


def decisions(frame: Frame, clock: PageClock) -> None:
    """The line per direction, and the newest decisions or why there are none."""
    lending, run = frame.lending, frame.run
    lines = decision_lines(lending, clock)
    newest = f" · the newest {SHOWN_DECISIONS}" if len(lines) == SHOWN_DECISIONS else ""
    st.markdown(f"**Decisions**{newest}{frame.pace.badge}")
    told = summaries(lending, run.guards, frame.pace)
    if told:
        st.markdown("  \n".join(told))
    if lines:
        st.html(table(lines, frame.pace))
        if frame.pace.emulated:
            st.caption(f"{SPOKEN} {frame.pace.second}.")
        st.page_link(
            DECISIONS_PAGE,
            label="Every decision, with what it was made on",
            icon=symbol("rule"),
            query_params={RUN_KEY: run.run_id},
        )
    else:
        st.caption(nothing_decided(run.arm, lends=run.arm in BORROWING_ARMS, live=frame.live))


def table(lines: list[DecisionLine], pace: Pace = REAL) -> str:
    """HTML in which every word from elsewhere is escaped."""
    body = "".join(_row(line) for line in lines)
    return (
        f'<div class="decisions" tabindex="0" role="region" aria-label="Decisions"><table>'
        f"<thead>{GROUPS.format(unit=pace.unit)}{_head()}</thead><tbody>{body}</tbody></table></div>"
    )


def _head() -> str:
    cells = []
    for name, css, term in COLUMNS:
        title = f' title="{escape(plain_of(term))}"' if term else ""
        cells.append(f'<th scope="col" class="{css}"{title}>{escape(name)}</th>')
    return f"<tr>{''.join(cells)}</tr>"


def _row(line: DecisionLine) -> str:
    css = {"lend": "what lent", "refuse": "what refused"}.get(line.action, "what")
    cells = [
        _cell(line.time),
        _cell(line.step, "n"),
        _cell(line.what, css),
        _cell(line.direction),
        _cell(line.devices),
        _cell(line.gain, "n first"),
        _cell(line.cost, "n"),
        _cell(line.state, "first"),
        _cell(line.delivered),
        _cell(line.measured_cost, "n", title=line.cost_parts),
        _cell(line.measured_gain, "n bad" if line.lost_time else "n"),
        _cell(line.regret, "n"),
        f'<td class="reason"><div title="{escape(line.reason)}">{escape(line.reason)}</div></td>',
    ]
    return f"<tr>{''.join(cells)}</tr>"


def _cell(text: str, css: str = "", title: str = "") -> str:
    attributes = (f' class="{css}"' if css else "") + (f' title="{escape(title)}"' if title else "")
    return f"<td{attributes}>{escape(text)}</td>"
