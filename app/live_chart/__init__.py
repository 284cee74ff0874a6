"""One Streamlit component that keeps any Plotly figure alive: `live_chart`. Figures stay plain Plotly, built elsewhere.

`st.plotly_chart` rebuilds a chart whose data changed, losing zoom and flashing blank; this host redraws in place.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import plotly.graph_objects as go
import streamlit as st

from app.live_chart.assets import AssetsUnavailable, publish

__all__ = ["AssetsUnavailable", "ChartEvents", "live_chart", "publish"]

# the module itself is a served file: inline code would travel with every refresh of every chart
_LOADER = """
export default async function(component) {
  const module = await import(new URL(component.data.host, window.location.origin).href);
  return module.default(component);
}
"""

_host = st.components.v2.component("bidirl_live_chart", js=_LOADER, isolate_styles=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class ChartEvents:
    """What the reader did with a chart."""

    viewport: tuple[Any, Any] | None = None
    """Range of the x axis that was zoomed to, as Plotly writes it; None while the chart shows what Python asks for."""
    click: dict[str, Any] | None = None
    """x, y, curve and customdata of a point clicked just now."""


def live_chart(
    figure: go.Figure,
    *,
    key: str,
    label: str,
    as_of: float | None = None,
    frozen: str = "",
    note: str = "",
    follow: str = "reset zoom",
    table: dict[str, list[Any]] | None = None,
    scale: bool = False,
    viewport: bool = False,
    clicks: bool = False,
) -> ChartEvents:
    """Draw `figure`, whose layout.height must be set, and return what the reader did.

    key: stable over refreshes, new for another run. label: what a screen reader says. as_of: unix seconds of the newest
    data. frozen: text instead of the clock. follow: what the button that ends a zoom says. table: `{"columns": [...],
    "rows": [[...]]}` shown on request, derived from the traces when None. scale: whether to say what a pixel of a time
    axis stands for. viewport, clicks: whether these are sent back (each costs a rerun).
    """
    fresh = {
        "fig": figure.to_json(),
        "label": label,
        "height": figure.layout.height,
        "as_of": as_of,
        "frozen": frozen,
        "note": note,
        "follow": follow,
        "table": table,
        "scale": scale,
        "viewport": viewport,
        "clicks": clicks,
    }
    result = _host(
        key=key,
        data=_payload(key, fresh),
        on_viewport_change=_nothing,
        on_click_change=_nothing,
    )
    zoom = result.get("viewport")
    return ChartEvents(viewport=tuple(zoom) if zoom else None, click=result.get("click"))


def _payload(key: str, fresh: dict[str, Any]) -> dict[str, Any]:
    """The last payload itself while nothing is new: the server then sends a reference, the browser draws nothing."""
    slot = f"_payload:{key}"
    last: dict[str, Any] | None = st.session_state.get(slot)
    if last is not None and all(last[name] == value for name, value in fresh.items()):
        return last
    base = str(st.get_option("server.baseUrlPath") or "").strip("/")
    prefix = f"/{base}/" if base else "/"
    assets = _assets()
    payload = {**fresh, "host": prefix + assets.host, "plotly": prefix + assets.plotly, "sent_at": time.time()}
    st.session_state[slot] = payload
    return payload


@st.cache_resource
def _assets() -> Any:
    return publish()


def _nothing() -> None:
    """State is read from the component's result; Streamlit wants a callback for each state that exists."""
