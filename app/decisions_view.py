"""Draws the Decisions table: why devices were lent or not, and what it brought. It reads nothing.

A table of its own and not a data frame, because reasons are sentences: they wrap instead of being cut.
"""

from __future__ import annotations

from html import escape

import streamlit as st

from app.clock import PageClock
from app.decision_rows import DecisionLine, decision_lines, nothing_decided, summaries
from app.lending import SHOWN_DECISIONS
from app.live_frame import Frame
from app.modelled import REAL, Pace
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

HEAD = """<thead>
<tr><th colspan="5"></th><th class="first" colspan="2"><span>predicted{unit}</span></th>
<th class="first" colspan="2"><span>lease</span></th><th colspan="3"><span>measured{unit}</span></th><th></th></tr>
<tr><th>time</th><th class="n">step</th><th title="with the number of the lease">what</th>
<th>direction</th><th title="devices that were lent">devices</th>
<th class="n first" title="seconds that the lease was expected to win, costs not deducted">gain, s</th>
<th class="n" title="seconds that the change of role was expected to cost">cost, s</th>
<th class="first">state</th><th title="what the lease brought so far">delivered</th>
<th class="n" title="C_in + C_out + C_grad, seconds">cost, s</th>
<th class="n" title="seconds won, costs deducted">gain, s</th>
<th class="n" title="seconds lost against the better of lending and not lending">regret, s</th>
<th>reason</th></tr></thead>"""

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
    else:
        st.caption(nothing_decided(run.arm, lends=run.arm in BORROWING_ARMS, live=frame.live))


def table(lines: list[DecisionLine], pace: Pace = REAL) -> str:
    """HTML in which every word from elsewhere is escaped."""
    body = "".join(_row(line) for line in lines)
    return (
        f'<div class="decisions" tabindex="0" role="region" aria-label="Decisions"><table>{HEAD.format(unit=pace.unit)}'
        f"<tbody>{body}</tbody></table></div>"
    )


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
