"""Draws what a window or a run lost: by cause, structural against residual, and the worst bubbles. It reads nothing."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from html import escape

import streamlit as st

from app.clock import DASH, PageClock, device_time, duration
from app.command_words import History
from app.figures.bubbles import lost_time
from app.figures.command_marks import applied
from app.glossary import help_of
from app.key_figures import idle_fraction, idle_seconds, total
from app.lending import device_list
from app.live_chart import kept_chart, live_chart
from app.lost_time import Structure, stored_structure, structure
from app.palette import CAUSE_COLOURS, CAUSE_LABELS
from app.price import Price
from app.status import symbol
from app.timeline_controls import put
from app.timeline_frame import Scene
from app.timeline_url import Block, View
from app.timeline_view import lost_chart, period
from app.timeline_worst import SHOWN, Bubble, Worst

SUM_NAMES = {"window": "This window", "run": "Whole run"}

ROOM = 1.0
"""Of the window around a chosen bubble, on either side, in lengths of the bubble."""

LEAST_ROOM_S = 1.0
"""The same at least, seconds: what led to a short bubble lies before it."""

ROW_WIDTHS = (9, 1.1)
"""Of the texts of a bubble and of its button."""


def lost_card(
    scene: Scene, commands: History, price: Price | None, clock: PageClock, chose: Callable[[], None]
) -> None:
    """Lost time of the window or of the whole run."""
    run_id, view, pace = scene.run.run_id, scene.view, scene.pace
    whole = scene.whole_counts
    with st.container(horizontal=True, vertical_alignment="center", horizontal_alignment="distribute"):
        st.markdown(f"**Lost time by cause**{pace.badge}", width="content", help=help_of("lost_in_window"))
        if not view.shows_all:
            key = f"timeline_sums:{run_id}"
            st.session_state[key] = view.sums
            st.segmented_control(
                "Counted over",
                list(SUM_NAMES),
                format_func=SUM_NAMES.__getitem__,
                key=key,
                required=True,
                on_change=chose,
                label_visibility="collapsed",
            )
    if whole and scene.whole is None:
        st.caption("Counted from the first rollout on.")
        return
    raw, window = _counted(scene, whole)
    seconds = pace.sums(raw)
    share = idle_fraction(seconds)
    over = f"{'whole run, ' if whole else ''}{period(window, clock)}"
    if share is None:
        st.caption(f"No device time is known here: {over}.")
        return
    money = "" if price is None else f" · **{price.told(idle_seconds(seconds))}**".replace("$", "\\$")
    st.markdown(f"**{device_time(idle_seconds(seconds))}** idle{pace.unit}, **{share:.1%}**{money} · {over}")
    if lost_time(seconds):
        key = f"lost:{run_id}"
        stamp = (scene.read_at, whole, scene.live, price)
        live_chart(
            kept_chart(
                key,
                stamp,
                lambda: lost_chart(seconds, over, pace, price, live=scene.live, as_of=scene.read_at),
            ),
            key=key,
        )
    else:
        st.caption("Nothing was lost here.")
    _parts(_structure(scene, commands, whole, window), sum(seconds.values()), price, pace.unit)


def _counted(scene: Scene, whole: bool) -> tuple[dict[str, float], tuple[float, float]]:
    """Column -> wall device-seconds, and over what, unix seconds."""
    if whole and scene.whole is not None:
        return total(scene.whole.devices), scene.whole.window
    return scene.lost, (scene.counted.t0, scene.counted.t1)


def _structure(scene: Scene, commands: History, whole: bool, window: tuple[float, float]) -> Structure:
    moved = [made.command.applied_at for made in applied(commands) if "partition" in made.after]
    moved_at = max((at for at in moved if at is not None), default=None)
    stored = stored_structure(scene.run, moved_at) if whole else None
    if stored is not None:
        return stored
    devices: Mapping[int, Mapping[str, float]] | None = scene.pools
    if whole and scene.whole is not None:
        devices = scene.whole.devices
    if devices is None:
        return Structure(told="Cannot be told of a part of the devices: show all rows.")
    pools = {device.device: device.pool for device in scene.devices}
    return structure(devices, pools, scene.steps, window, moved_at)


def _parts(found: Structure, known_s: float, price: Price | None, unit: str) -> None:
    with st.container(key="timeline_structure", gap="small"):
        for name, share, told in (
            ("structural_bubble", found.structural, "the pools' speeds differ"),
            ("residual_bubble", found.residual, "tails, drift and waits beyond that"),
        ):
            title = name.removesuffix("_bubble")
            if share is None:
                st.markdown(f"{title} **{DASH}**", help=help_of(name))
                continue
            money = "" if price is None else f" · {price.told(share * known_s)}".replace("$", "\\$")
            st.markdown(
                f"{title} **{share:.1%}** · {device_time(share * known_s)}{unit}{money} · {told}", help=help_of(name)
            )
        if found.told:
            st.caption(found.told)


def worst_card(scene: Scene, worst: Worst, price: Price | None, clock: PageClock) -> None:
    """The worst bubbles, each with a button that shows it."""
    pace, run_id, view = scene.pace, scene.run.run_id, scene.view
    with st.container(horizontal=True, vertical_alignment="center", horizontal_alignment="distribute"):
        st.markdown(
            f"**Worst bubbles** · {period(worst.window, clock)}{pace.badge}",
            width="content",
            help=help_of("worst_bubbles"),
        )
        if view.listed is not None:
            st.button(
                "Back to that window",
                icon=symbol("arrow_back"),
                key="timeline_back",
                on_click=lambda: put(
                    run_id, replace(view.showing(*(view.listed or worst.window)), block=None, lease=None), moved=True
                ),
            )
    if worst.gone is not None:
        first, last = worst.gone
        st.caption(
            f"{symbol('info')} Raw spans of {period((first, last), clock)} were deleted, or dropped when the disk was "
            "slow: only sums are left of that time, and no bubble of it is listed."
        )
    if not worst.bubbles:
        if worst.gone is None:
            st.caption("No device waited here.")
        return
    heads = ["device", "cause", "from", f"length{pace.unit}", f"device time{pace.unit}"]
    heads += [] if price is None else ["money"]
    st.columns(ROW_WIDTHS, gap="small")[0].html(cells_html(heads, head=True))
    for number, bubble in enumerate(worst.bubbles[:SHOWN]):
        _bubble(number, bubble, scene, worst, price, clock)


def cells_html(texts: Sequence[str], *, head: bool = False, colour: str = "") -> str:
    """The texts of a row side by side: one element, for a page of elements by the hundred opens late. colour: of the
    dot before the second text."""
    dot = f'<i class="cause-dot" style="background:{colour}"></i>'
    shown = [f"<span>{dot if colour and index == 1 else ''}{escape(text)}</span>" for index, text in enumerate(texts)]
    return f'<div class="worst-row{" worst-head" if head else ""}">{"".join(shown)}</div>'


def _bubble(number: int, bubble: Bubble, scene: Scene, worst: Worst, price: Price | None, clock: PageClock) -> None:
    pace, cause = scene.pace, CAUSE_LABELS[bubble.cause]
    texts = [
        _devices(bubble),
        cause,
        clock.time(bubble.t0),
        duration(pace.seconds(bubble.t1 - bubble.t0)),
        device_time(pace.seconds(bubble.device_s)),
        *([] if price is None else [price.told(pace.seconds(bubble.device_s))]),
    ]
    cells, action = st.columns(ROW_WIDTHS, gap="small", vertical_alignment="center")
    cells.html(cells_html(texts, colour=CAUSE_COLOURS[bubble.cause]))
    action.button(
        "Show",
        key=f"timeline_worst:{number}",
        help=f"Device {device_list(bubble.devices)}, {cause}: this time in the timeline, and the decisions around it.",
        on_click=show_bubble,
        args=(scene.run.run_id, scene.view, worst.window, bubble),
    )


def _devices(bubble: Bubble) -> str:
    listed = device_list(bubble.devices)
    return listed if len(listed) <= 18 else f"{len(bubble.devices)} devices"


def show_bubble(run_id: str, view: View, listed: tuple[float, float], bubble: Bubble) -> None:
    """Move the window to a bubble and choose it; the list stays the one that it was chosen from."""
    length = bubble.t1 - bubble.t0
    room = max(ROOM * length, LEAST_ROOM_S)
    shown = view.showing(bubble.t0 - room, bubble.t1 + room)
    block = Block(row=f"device:{bubble.devices[0]}", at=round(bubble.t0 + length / 2, 3))
    put(run_id, replace(shown, block=block, lease=None, listed=(round(listed[0], 3), round(listed[1], 3))), moved=True)
