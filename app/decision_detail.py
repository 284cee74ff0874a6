"""Draws one decision: a sentence, its reason, predicted against measured, its lease's life, and what it was made on.

It reads nothing and decides nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

import streamlit as st

from app import decision_story, session
from app.clock import PageClock
from app.decision_rows import ACTION_WORDS
from app.glossary import help_of
from app.markup import literal
from app.modelled import Pace
from app.status import symbol
from storage.records import DecisionRow, LeaseRow

STYLE = """
.facts table { border-collapse: collapse; width: 100%; font-size: .82rem; line-height: 1.35; }
.facts th { font-weight: 600; }
.facts th, .facts td { padding: .26rem .5rem .26rem 0; text-align: left; vertical-align: top; border: 0;
  border-bottom: 1px solid color-mix(in srgb, currentColor 14%, transparent); overflow-wrap: anywhere; }
.facts .n { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; padding-right: 0;
  padding-left: .6rem; }
.facts .quiet { opacity: .68; }
.facts .bad { color: color-mix(in srgb, #E5482A 82%, currentColor); font-weight: 600; }
.reason { border-left: 3px solid color-mix(in srgb, currentColor 25%, transparent); padding: .1rem 0 .1rem .8rem;
  font-size: .9rem; overflow-wrap: anywhere; }
"""
"""Put into the page once; the colours follow the theme's text colour."""


def title(decision: DecisionRow) -> str:
    """Markdown of its heading."""
    number = "" if decision.lease is None else f" · lease {decision.lease}"
    return f"**Decision {decision.id:,}** · {ACTION_WORDS[decision.action]}{number}"


def drawn(decision: DecisionRow, lease: LeaseRow | None, run_id: str, clock: PageClock, pace: Pace) -> None:
    """Everything about a decision, top to bottom. Gains and costs are modelled already."""
    st.markdown(literal(decision_story.told(decision, lease, pace, clock)))
    st.html(f'<div class="reason">{escape(decision.reason)}</div>')
    if pace.emulated:
        st.caption(f"The reason is the policy's own words, which reckon in the seconds of this machine: {pace.second}.")
    begin, end = decision_story.around(decision, lease, pace)
    st.page_link(
        session.TIMELINE_PAGE,
        label="Timeline at that moment",
        icon=symbol("timeline"),
        query_params={session.RUN_KEY: run_id, "t0": f"{begin:.3f}", "t1": f"{end:.3f}"},
    )
    st.markdown(f"Predicted and measured{pace.badge}", help=help_of("predicted_net_gain"))
    st.html(_compared(decision_story.compared(lease, decision)))
    if lease is not None:
        st.markdown("The lease's life", help=help_of("lease_phases"))
        st.html(_table(decision_story.life(lease, clock, pace), label="Life of the lease"))
        if spent := decision_story.phases(lease, pace):
            st.html(_table(spent, label="Phases of the lease", quiet=True))
        if ended := decision_story.ending(lease):
            st.caption(literal(ended))
    rows = decision_story.inputs(decision, pace)
    st.markdown("What it was made on", help=help_of("decision_inputs"))
    if rows:
        st.html(_table([(what, "", value) for _, what, value in rows], label="Inputs of the decision"))
    else:
        st.caption("The policy told no numbers with it.")


def _compared(lines: Sequence[decision_story.Compared]) -> str:
    body = "".join(
        f'<tr><td>{escape(line.name)}</td><td class="n">{escape(line.predicted)}</td>'
        f'<td class="n{" bad" if line.bad else ""}">{escape(line.measured)}</td></tr>'
        for line in lines
    )
    head = '<tr><th></th><th class="n">predicted</th><th class="n">measured</th></tr>'
    return _region(f"<thead>{head}</thead><tbody>{body}</tbody>", "Predicted and measured")


def _table(rows: Sequence[tuple[str, str, str]], *, label: str, quiet: bool = False) -> str:
    """A line a row: what, beside it something short, and a number on the right."""
    body = "".join(
        f"<tr><td{' class=quiet' if quiet else ''}>{escape(first)}</td><td>{escape(second)}</td>"
        f'<td class="n">{escape(third)}</td></tr>'
        for first, second, third in rows
    )
    return _region(f"<tbody>{body}</tbody>", label)


def _region(table: str, label: str) -> str:
    return f'<div class="facts" role="region" aria-label="{label}"><table>{table}</table></div>'
