"""Streamlit components that update in place: `live_chart` keeps any Plotly figure alive, `number_cards` a few numbers,
`status_line` the line under a page's title, and `board` all of these as one element.

`st.plotly_chart` rebuilds a chart whose data changed, losing zoom and flashing blank; this host redraws in place.
Figures stay plain Plotly, built elsewhere.
"""

from __future__ import annotations

import base64
import json
import time
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

import plotly.graph_objects as go
import streamlit as st

from app.live_chart.assets import AssetsUnavailable, publish
from app.modelled import EMULATED

__all__ = [
    "SIMULATED",
    "AssetsUnavailable",
    "BoardEvents",
    "Chart",
    "ChartEvents",
    "board",
    "chart",
    "kept_chart",
    "live_chart",
    "number_cards",
    "publish",
    "status_line",
    "tag_of",
]

PACKED_FROM, PACKED_LEVEL = 4000, 1
"""Characters of a figure that are worth packing, and the quickest way to do it: 2 ms for 150 kB."""

SIMULATED = "SIMULATED"
"""How pages and exports label figures of the simulator, where no device ran."""

# the module itself is a served file: inline code would travel with every refresh of every chart
_LOADER = """
export default async function(component) {
  const module = await import(new URL(component.data.module, window.location.origin).href);
  return module.default(component);
}
"""

_chart_host = st.components.v2.component("bidirl_live_chart", js=_LOADER, isolate_styles=False)
_cards_host = st.components.v2.component("bidirl_number_cards", js=_LOADER, isolate_styles=False)
_status_host = st.components.v2.component("bidirl_status_line", js=_LOADER, isolate_styles=False)
_board_host = st.components.v2.component("bidirl_board", js=_LOADER, isolate_styles=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Chart:
    """A figure and everything that is shown around it."""

    fig: str
    """Plotly JSON."""
    height: int
    """Pixels."""
    label: str
    """What a screen reader says: what is shown, with its main numbers."""
    title: str = ""
    """Heading of the table and of saved pictures; the label when empty."""
    tag: str = ""
    """EMULATED or SIMULATED where no figure is a measurement; stands in every picture, page and row that is saved."""
    as_of: float | None = None
    """Unix seconds of the newest data, for the clock."""
    frozen: str = ""
    """Text instead of the clock."""
    note: str = ""
    """One line below the figure."""
    follow: str = "reset zoom"
    """The button that ends a zoom."""
    table: dict[str, list[Any]] | None = None
    """`{"columns": [...], "rows": [[...]]}`, shown on request; derived from the traces when None."""
    scale: bool = False
    """Whether to say what a pixel of the time axis stands for."""
    viewport: bool = False
    """Whether a zoom is sent back, at the cost of a rerun."""
    clicks: bool = False
    """Whether a click on a point is sent back, at the cost of a rerun."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChartEvents:
    """What the reader did with a chart."""

    viewport: tuple[Any, Any] | None = None
    """Range of the x axis that was zoomed to, as Plotly writes it; None while the chart shows what Python asks for."""
    click: dict[str, Any] | None = None
    """x, y, curve and customdata of a point clicked just now."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BoardEvents(ChartEvents):
    """What the reader did with a board."""

    back: bool = False
    """Whether the way back from an opened group of rows was taken just now."""


def chart(figure: go.Figure, *, label: str, tag: str | None = None, **around: Any) -> Chart:
    """A chart of `figure`, whose layout.height must be set. tag: as in `Chart`, read off label and note when None.

    Raises ValueError for a figure without a table whose traces cannot be made one: every chart has a table twin.
    """
    if around.get("table") is None and not any(_tabular(trace) for trace in figure.data) and figure.data:
        raise ValueError(
            "a chart needs a table, or traces with a name, x and y that one can be read off; got "
            + ", ".join(sorted({trace.type for trace in figure.data}))
        )
    tag = tag_of(label, str(around.get("note", ""))) if tag is None else tag
    return Chart(fig=_json(figure), height=int(figure.layout.height), label=label, tag=tag, **around)


def _json(figure: go.Figure) -> str:
    """One line of JSON, as `figure.to_json` writes it; a figure whose arrays are typed takes a third of the time."""
    try:
        return json.dumps(figure.to_dict(), separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    except (TypeError, ValueError):  # values that only Plotly's own encoder knows, such as a NaN in a list
        return str(figure.to_json())


def tag_of(*texts: str) -> str:
    """The kind of figure that the words around a chart name: EMULATED, SIMULATED, or "" for a measurement."""
    said = " ".join(texts).casefold()
    if "emulated" in said or "modelled" in said:
        return EMULATED
    return SIMULATED if "simulated" in said else ""


def _tabular(trace: Any) -> bool:
    """Whether the page can read a table's column off a trace."""
    return bool(trace.name) and getattr(trace, "y", None) is not None and getattr(trace, "x", None) is not None


def kept_chart(key: str, stamp: object, build: Callable[[], Chart]) -> Chart:
    """The chart made last under `key`, unless `stamp` says that it would be another: building is most of its cost."""
    slot = f"_chart:{key}"
    kept: tuple[object, Chart] | None = st.session_state.get(slot)
    if kept is None or kept[0] != stamp:
        kept = (stamp, build())
        st.session_state[slot] = kept
    return kept[1]


def live_chart(shown: Chart, *, key: str) -> ChartEvents:
    """Draw a chart and return what the reader did. key: stable over refreshes, another one for another run, "CHART" or
    "CHART:RUN": saved files are named by both."""
    result = _chart_host(
        key=key,
        data=_payload(key, shown),
        on_viewport_change=_nothing,
        on_click_change=_nothing,
    )
    zoom = result.get("viewport")
    return ChartEvents(viewport=tuple(zoom) if zoom else None, click=result.get("click"))


def number_cards(cards: Sequence[Mapping[str, Any]], *, key: str) -> None:
    """A row of cards: key, label, value, note, tone (good, bad, off), help, exact (number or None), spark (numbers),
    tag (short, "" for none)."""
    _cards_host(key=key, data={"cards": list(cards), "module": _address("cards")})


def status_line(told: Mapping[str, Any], *, key: str) -> None:
    """told: badges (each text, icon, colour, help), facts (text in which `**` makes strong), beat ("" without one),
    facts_help, beat_help, and said: what a screen reader says when it becomes another."""
    _status_host(key=key, data={**told, "module": _address("status")})


def board(parts: Mapping[str, Any], shown: Chart | None, *, key: str) -> BoardEvents:
    """Status line, numbers, a chart with a choice of windows, and findings, as one element: a page looks at each of its
    elements several times a refresh. The window that was chosen is `window` in the state of `key`.

    parts: tag as in `Chart`; status as in `status_line`; numbers as in `number_cards`; timeline: windows (their names),
    window (the one that is shown), opened (whether there is a way back), help, and none (what is said in place of a
    chart); attention: cards (each key, tone, icon, title, text), quiet, engine, engine_help, help.
    shown: None without a chart.
    """
    result = _board_host(
        key=key,
        data={**parts, "chart": None if shown is None else _payload(key, shown), "module": _address("board")},
        on_viewport_change=_nothing,
        on_click_change=_nothing,
        on_window_change=_nothing,
        on_back_change=_nothing,
    )
    zoom = result.get("viewport")
    return BoardEvents(viewport=tuple(zoom) if zoom else None, click=result.get("click"), back=bool(result.get("back")))


def _payload(key: str, shown: Chart) -> dict[str, Any]:
    """The last payload itself while nothing is new: the server then sends a reference, the browser draws nothing."""
    slot = f"_payload:{key}"
    last: tuple[Chart, dict[str, Any]] | None = st.session_state.get(slot)
    if last is not None and last[0] == shown:
        return last[1]
    addresses = {"module": _address("host"), "plotly": _address("plotly")}
    told = {one.name: getattr(shown, one.name) for one in fields(shown)}
    payload = {**told, **_packed(shown), **addresses, "name": key, "sent_at": time.time()}
    st.session_state[slot] = (shown, payload)
    return payload


def _packed(shown: Chart) -> dict[str, Any]:
    """Figure and table deflated, a quarter of what they are as text: most of what a live page sends."""
    if len(shown.fig) < PACKED_FROM:
        return {}
    text = f"{shown.fig}\n{json.dumps(shown.table, separators=(',', ':'), ensure_ascii=False)}"
    deflated = zlib.compress(text.encode(), PACKED_LEVEL)
    return {"packed": base64.b64encode(deflated).decode("ascii"), "fig": "", "table": None}


def _address(name: str) -> str:
    base = str(st.get_option("server.baseUrlPath") or "").strip("/")
    return (f"/{base}/" if base else "/") + _assets()[name]


@st.cache_resource
def _assets() -> dict[str, str]:
    return publish()


def _nothing() -> None:
    """State is read from the component's result; Streamlit wants a callback for each state that exists."""
