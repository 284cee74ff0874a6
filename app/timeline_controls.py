"""The Timeline's controls. The URL is what holds every choice: a widget shows what it says and writes into it.

Moving the window gives the chart another key, since the chart keeps a zoom for as long as it lives.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import streamlit as st

from app import session
from app.clock import PageClock, duration
from app.export_view import exports
from app.glossary import help_of
from app.markup import literal
from app.price import Price
from app.price_settings import price_popover
from app.status import symbol
from app.timeline_url import COLOURS, ROWS, SHORTEST_S, WINDOWS, View, params_of, read_view, window_problem
from storage.records import RunRow

WINDOW_NAMES = {"1m": "1 min", "5m": "5 min", "30m": "30 min", "all": "All"}
ROW_NAMES = {"device": "Device", "node": "Node", "role": "Role"}
COLOUR_NAMES = {
    "phase": "Phase",
    "cause": "Idle cause",
    "version": "Version",
    "role": "Primary / aux",
}

SHIFT = 0.5
"""Part of its length by which a window moves earlier or later: what was at its edge is in its middle then."""

SAME_LENGTH = 0.01
"""An exact window this near to a named length is that length to the eye."""

WRITTEN = "_timeline_written"
"""Where a session notes that a view was written."""

TIME_FORMATS = ("%Y-%m-%d %H:%M:%S.%f", "%Y-%m-%d %H:%M:%S", "%Y-%m-%d %H:%M")
SUCH_AS = "2026-05-01 12:00:00.25"


def chart_key(run_id: str) -> str:
    """Key of the timeline; another one as soon as anything but a zoom moves its window."""
    return f"timeline_{st.session_state.get(_generation(run_id), 0)}:{run_id}"


def put(run_id: str, view: View, *, moved: bool = False) -> None:
    """Write a view into the URL. moved: whether the chart has to leave its zoom for the view's window."""
    if moved:
        st.session_state[_generation(run_id)] = st.session_state.get(_generation(run_id), 0) + 1
    st.query_params.from_dict({session.RUN_KEY: run_id, **params_of(view)})
    st.session_state[WRITTEN] = True


def written_since() -> bool:
    """Whether a view was written since this was asked: a callback of a part of the page runs that part alone, while
    another view is another page."""
    return bool(st.session_state.pop(WRITTEN, False))


def of_url(default_window: str) -> tuple[View, list[str]]:
    """The view that the URL asks for, and what is wrong with it."""
    return read_view(st.query_params.to_dict(), default_window)


def controls(
    run: RunRow, view: View, default_window: str, *, live: bool, whole: tuple[float, float], price: Price | None
) -> None:
    """whole: begin and end of the run, unix seconds."""
    run_id, clock = run.run_id, session.page_clock()
    window = view.bounds(*whole)
    with st.container(horizontal=True, vertical_alignment="bottom", gap="small", key="timeline_controls"):
        _segments(run_id, "window", "Window", WINDOW_NAMES, _named(view), default_window, whole)
        _segments(run_id, "rows", "Rows", ROW_NAMES, view.rows, default_window, whole)
        _segments(run_id, "colour", "Colour", COLOUR_NAMES, view.colour, default_window, whole)
        if live:
            key = f"timeline_follow:{run_id}"
            st.session_state[key] = view.exact is None
            st.toggle(
                "Follow live",
                key=key,
                on_change=_followed,
                args=(run_id, key, default_window, whole),
                help="Off: the window stays where it is while the run goes on.",
            )
        with st.container(horizontal=True, gap="small", vertical_alignment="bottom", width="content"):
            for direction, label, icon in ((-1, "Earlier", "chevron_left"), (1, "Later", "chevron_right")):
                at_end = direction > 0 and (view.exact is None or window[1] > whole[1] - SHORTEST_S)
                at_begin = direction < 0 and (view.shows_all or window[0] < whole[0] + SHORTEST_S)
                st.button(
                    label,
                    icon=symbol(icon),
                    key=f"timeline_shift:{direction}",
                    disabled=at_end or at_begin,
                    on_click=_shifted,
                    args=(run_id, direction, default_window, whole),
                )
            _exact_popover(run_id, view, window, default_window, clock)
            price_popover(price)
            exports(run, window, key="timeline_export")


def _named(view: View) -> str | None:
    """The length that is highlighted: none for an exact window of another length."""
    if view.exact is None:
        return view.window
    length = view.exact[1] - view.exact[0]
    return next((name for name, s in WINDOWS.items() if s is not None and abs(length - s) <= SAME_LENGTH * s), None)


def _segments(
    run_id: str,
    name: str,
    label: str,
    names: dict[str, str],
    value: str | None,
    default_window: str,
    whole: tuple[float, float],
) -> None:
    key = f"timeline_{name}:{run_id}"
    st.session_state[key] = value
    st.segmented_control(
        label,
        list(names),
        format_func=names.__getitem__,
        key=key,
        on_change=_chosen,
        args=(run_id, name, key, default_window, whole),
        help=help_of(f"timeline_{name}"),
    )


def _chosen(run_id: str, name: str, key: str, default_window: str, whole: tuple[float, float]) -> None:
    """A segment was clicked; clicking the one that is chosen changes nothing."""
    value = st.session_state.get(key)
    view, _ = of_url(default_window)
    if value is None:
        return
    if name != "window":
        allowed = ROWS if name == "rows" else COLOURS
        assert value in allowed
        # an opened group is left when other rows are asked for
        changes: dict[str, Any] = {name: value, **({"opened": None} if name == "rows" else {})}
        put(run_id, replace(view, **changes))
        return
    length = WINDOWS[value]
    if view.exact is None or length is None:
        put(run_id, replace(view.following(), window=value), moved=True)
        return
    low, high = view.exact
    middle = (low + high) / 2
    put(run_id, view.showing(middle - length / 2, middle + length / 2), moved=True)


def _followed(run_id: str, key: str, default_window: str, whole: tuple[float, float]) -> None:
    view, _ = of_url(default_window)
    held = view.bounds(whole[0], session.now())
    put(run_id, view.following() if st.session_state.get(key) else view.showing(*held), moved=True)


def _shifted(run_id: str, direction: int, default_window: str, whole: tuple[float, float]) -> None:
    view, _ = of_url(default_window)
    low, high = view.bounds(*whole)
    by = direction * SHIFT * (high - low)
    # no further than the run goes
    by = min(by, whole[1] - high) if direction > 0 else max(by, whole[0] - low)
    put(run_id, view.showing(low + by, high + by), moved=True)


def _exact_popover(run_id: str, view: View, window: tuple[float, float], default_window: str, clock: PageClock) -> None:
    with (
        st.popover("Exact", icon=symbol("date_range"), key="timeline_exact", help="A window from one time to another."),
        st.form(f"timeline_exact_form:{run_id}", border=False),
    ):
        # keys hold the window, so that the fields show it as soon as it moves; while following they keep what is typed
        stamp = f"{run_id}:{'follow' if view.exact is None else window}"
        texts = [
            st.text_input(label, value=written(at, clock), key=f"timeline_{label}:{stamp}")
            for label, at in zip(("From", "To"), window, strict=True)
        ]
        st.caption(f"Your local time, such as {SUCH_AS}. Now shown: {duration(window[1] - window[0])}.")
        if st.form_submit_button("Show this window", type="primary", key="timeline_exact_apply"):
            try:
                low, high = (read_local(text, clock) for text in texts)
                wrong = window_problem(low, high)
            except ValueError as error:
                wrong = str(error)
            if wrong:
                st.error(literal(wrong), icon=symbol("error"))
            else:
                put(run_id, view.showing(low, high), moved=True)
                st.rerun()


def written(at: float, clock: PageClock) -> str:
    """A time as the fields write it, to the hundredth of a second."""
    return f"{clock.local(round(at, 2)):%Y-%m-%d %H:%M:%S.%f}"[:-4]


def read_local(text: str, clock: PageClock) -> float:
    """Unix seconds of a local time. Raises ValueError that names the text and what is allowed."""
    for form in TIME_FORMATS:
        try:
            parsed = datetime.strptime(text.strip(), form).replace(tzinfo=UTC)
        except ValueError:
            continue
        return round(parsed.timestamp() - clock.offset_s, 3)
    raise ValueError(f"a time must be written such as {SUCH_AS}, got {text!r}")


def zoomed(run_id: str, view: View) -> View | None:
    """The view that the reader's last zoom asks for; None when there was none since it was looked at."""
    key = chart_key(run_id)
    viewport = (st.session_state.get(key) or {}).get("viewport")
    slot = f"_zoom:{key}"
    if viewport == st.session_state.get(slot):
        return None
    st.session_state[slot] = viewport
    if viewport is None:
        return view.following()
    clock = session.page_clock()
    try:
        low, high = (clock.from_axis(edge) for edge in viewport)
    except ValueError:
        return None
    return view.showing(low, high) if high - low >= SHORTEST_S else None


def _generation(run_id: str) -> str:
    return f"_timeline_generation:{run_id}"
