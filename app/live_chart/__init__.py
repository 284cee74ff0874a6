"""Streamlit components that update in place: `live_chart` keeps any Plotly figure alive, `number_cards` a few numbers.

`st.plotly_chart` rebuilds a chart whose data changed, losing zoom and flashing blank; this host redraws in place.
Figures stay plain Plotly, built elsewhere.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import plotly.graph_objects as go
import streamlit as st

from app.live_chart.assets import AssetsUnavailable, publish

__all__ = ["AssetsUnavailable", "Chart", "ChartEvents", "chart", "kept_chart", "live_chart", "number_cards", "publish"]

# the module itself is a served file: inline code would travel with every refresh of every chart
_LOADER = """
export default async function(component) {
  const module = await import(new URL(component.data.module, window.location.origin).href);
  return module.default(component);
}
"""

_chart_host = st.components.v2.component("bidirl_live_chart", js=_LOADER, isolate_styles=False)
_cards_host = st.components.v2.component("bidirl_number_cards", js=_LOADER, isolate_styles=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Chart:
    """A figure and everything that is shown around it."""

    fig: str
    """Plotly JSON."""
    height: int
    """Pixels."""
    label: str
    """What a screen reader says."""
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


def chart(figure: go.Figure, *, label: str, **around: Any) -> Chart:
    """A chart of `figure`, whose layout.height must be set."""
    return Chart(fig=figure.to_json(), height=int(figure.layout.height), label=label, **around)


def kept_chart(key: str, stamp: object, build: Callable[[], Chart]) -> Chart:
    """The chart made last under `key`, unless `stamp` says that it would be another: building is most of its cost."""
    slot = f"_chart:{key}"
    kept: tuple[object, Chart] | None = st.session_state.get(slot)
    if kept is None or kept[0] != stamp:
        kept = (stamp, build())
        st.session_state[slot] = kept
    return kept[1]


def live_chart(shown: Chart, *, key: str) -> ChartEvents:
    """Draw a chart and return what the reader did. key: stable over refreshes, another one for another run."""
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


def _payload(key: str, shown: Chart) -> dict[str, Any]:
    """The last payload itself while nothing is new: the server then sends a reference, the browser draws nothing."""
    slot = f"_payload:{key}"
    last: tuple[Chart, dict[str, Any]] | None = st.session_state.get(slot)
    if last is not None and last[0] == shown:
        return last[1]
    payload = {**asdict(shown), "module": _address("host"), "plotly": _address("plotly"), "sent_at": time.time()}
    st.session_state[slot] = (shown, payload)
    return payload


def _address(name: str) -> str:
    base = str(st.get_option("server.baseUrlPath") or "").strip("/")
    return (f"/{base}/" if base else "/") + _assets()[name]


@st.cache_resource
def _assets() -> dict[str, str]:
    return publish()


def _nothing() -> None:
    """State is read from the component's result; Streamlit wants a callback for each state that exists."""
