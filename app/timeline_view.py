"""Draws a scene of the Timeline: the timeline, the bubble heatmap, lost time by cause. It reads nothing."""

from __future__ import annotations

from app import detail
from app.clock import DASH, PageClock, device_time, duration
from app.command_words import History
from app.figures.bubbles import ROWS_PX as HEAT_PX
from app.figures.bubbles import bubble_heatmap, causes, lost_time, lost_words
from app.figures.command_marks import MAX_COMMANDS, command_marks, fewest_lanes, on_time
from app.figures.event_marks import EVENTS_PX, event_marks
from app.figures.lease_marks import lease_marks
from app.figures.timeline import MARKS_HEIGHT_PX, MAX_MARKS, ROWS_PX, timeline
from app.key_figures import idle_fraction
from app.lending import MAX_LEASE_MARKS
from app.live_chart import Chart, chart
from app.lost_time import coarser, sums
from app.modelled import Pace
from app.palette import label as label_of
from app.price import Price
from app.timeline_block import Chosen
from app.timeline_frame import Scene
from storage.words import COLUMNS, IDLE_COLUMNS

HEATMAP_BINS = 120
"""A cell of the bubble heatmap is wide enough to point at."""

IDLE = slice(COLUMNS.index(IDLE_COLUMNS[0]), len(COLUMNS))
"""The idle columns, which are the last ones."""

OUTLINES = (("#FFFFFF", 4.0), ("#22262E", 2.0))
"""Around the chosen block: dark in white, seen on every colour."""


def period(window: tuple[float, float], clock: PageClock) -> str:
    """ "12:00:00 – 12:05:00", with the date where it is long; tenths of a second where it is short."""
    low, high = window
    if high - low >= 86_400:
        return f"{clock.moment(low)} – {clock.moment(high)}"
    if high - low < 10:
        return " – ".join(f"{clock.local(at):%H:%M:%S.%f}"[:-5] for at in window)
    return f"{clock.time(low)} – {clock.time(high)}"


def timeline_chart(scene: Scene, commands: History, chosen: Chosen | None, clock: PageClock) -> Chart:
    """The timeline with its marks, its note and its table."""
    pace, plan = scene.pace, scene.plan
    leases = lease_marks(scene.leases, scene.rows, (plan.t0, plan.t1), clock, pace)
    span = (clock.axis(plan.t0), clock.axis(plan.t1))
    marks = command_marks(on_time(commands, clock, pace), span=span, width_px=ROWS_PX)
    inside = [step for step in scene.steps if plan.t0 <= step.t_end <= plan.t1]
    every = -(-len(inside) // MAX_MARKS) or 1
    steps = inside[::every]
    middle = (MARKS_HEIGHT_PX + EVENTS_PX / 2) / (MARKS_HEIGHT_PX + EVENTS_PX)
    figure = timeline(
        scene.codes,
        scene.rows,
        plan,
        window=scene.window,
        clock=clock,
        steps=steps,
        commands=marks,
        leases=leases,
        events=event_marks(scene.events, clock, middle, pace),
        pace=pace,
        scheme=scene.scheme,
    )
    figure.update_xaxes(**_ends(scene, plan, clock))
    for low, high, row in _outlined(scene, chosen):
        for colour, width in OUTLINES:
            figure.add_shape(
                type="rect",
                xref="x",
                yref="y",
                x0=clock.axis(low),
                x1=clock.axis(high),
                y0=row - 0.5,
                y1=row + 0.5,
                line={"color": colour, "width": width},
                name="chosen",
            )
    cut = f" · only the newest {MAX_LEASE_MARKS} marks of leases are drawn" if leases.cut else ""
    cut += f" · only the newest {MAX_COMMANDS} commands are marked" if marks.cut else ""
    cut += f" · one step in {every} is marked" if every > 1 else ""
    share = idle_fraction(scene.lost)
    return chart(
        figure,
        label=f"{'Emulated timeline' if pace.emulated else 'Timeline'} of {len(scene.rows)} rows, "
        f"{period(scene.window, clock)}, coloured by {scene.scheme.name}: idle {_percent(share)}",
        title="Timeline",
        as_of=scene.as_of if scene.as_of is not None else scene.end,
        frozen="" if scene.live else f"ended {clock.time(scene.end)}",
        note=f"a column is {duration(plan.bin_s)}, in the colour of what took most of it · drag to zoom, double-click "
        f"to go back, click a block for what it was{cut}{pace.wall_time and f' · {pace.wall_time}'}",
        follow="back to live" if scene.live else "back",
        table=_table(scene, clock),
        scale=True,
        viewport=True,
        clicks=True,
    )


def _ends(scene: Scene, plan: detail.Plan, clock: PageClock) -> dict[str, object]:
    """How far an axis of time can be dragged: there is nothing before a run and after it."""
    return {
        "minallowed": clock.axis(min(scene.begin, plan.t0)),
        "maxallowed": clock.axis(max(scene.end, plan.t1)),
    }


def _outlined(scene: Scene, chosen: Chosen | None) -> list[tuple[float, float, int]]:
    """Begin, end and row of what is chosen, where it is shown."""
    if chosen is None:
        return []
    low = high = chosen.at
    if chosen.work is not None:
        low, high = chosen.work.t0, chosen.work.t1
    elif chosen.lease is not None:
        low, high = chosen.lease.granted_at, chosen.lease.released_at or scene.end
    elif chosen.bin_s:
        low = chosen.at // chosen.bin_s * chosen.bin_s
        high = low + chosen.bin_s
    if high <= low:
        return []
    return [(low, high, index) for index, row in enumerate(scene.rows) if set(row.devices) <= set(chosen.devices)]


def _percent(share: float | None) -> str:
    return DASH if share is None else f"{share:.1%}"


def _table(scene: Scene, clock: PageClock) -> dict[str, list[object]]:
    """Exact device-seconds of each kind and row in the window."""
    known = scene.known.sum(axis=1)
    used = [i for i in range(len(COLUMNS)) if known[:, i].sum() > 0]
    counted = scene.counted
    over = f"{period((counted.t0, counted.t1), clock)}{', wall time' if scene.pace.emulated else ''}"
    rows: list[object] = [
        [row.label, *(f"{known[index, column]:.1f} s" for column in used)] for index, row in enumerate(scene.rows)
    ]
    return {"columns": [over, *(label_of(COLUMNS[column]) for column in used)], "rows": rows}


def heatmap_chart(scene: Scene, commands: History, clock: PageClock) -> Chart:
    """Exact idle share of each row over the window."""
    known, plan = coarser(scene.known, scene.counted, HEATMAP_BINS)
    span = (clock.axis(plan.t0), clock.axis(plan.t1))
    marks = fewest_lanes(on_time(commands, clock, scene.pace), span=span, width_px=HEAT_PX)
    rows: list[object] = []
    for index, row in enumerate(scene.rows):
        mine = sums(known[index : index + 1])
        rows.append([row.label, _percent(idle_fraction(mine)), f"{sum(mine.values()):.1f} s"])
    return chart(
        bubble_heatmap(detail.idle_share(known, IDLE), scene.rows, plan, clock=clock, commands=marks),
        label=f"Idle share of {len(scene.rows)} {'emulated ' if scene.pace.emulated else ''}rows, "
        f"{period((plan.t0, plan.t1), clock)}, on average {_percent(idle_fraction(scene.lost))}",
        title="Bubble heatmap",
        as_of=scene.as_of if scene.as_of is not None else scene.end,
        frozen="" if scene.live else period((scene.counted.t0, scene.counted.t1), clock),
        scale=True,
        clicks=True,
        note=" · ".join(filter(None, ["click a cell to see it in the timeline", scene.pace.wall_time])),
        table={
            "columns": ["row", "idle", f"known {'wall ' if scene.pace.emulated else ''}time"],
            "rows": rows,
        },
    )


def heatmap_bin_s(scene: Scene) -> float:
    """Length of a cell of the heatmap, seconds."""
    return coarser(scene.known, scene.counted, HEATMAP_BINS)[1].bin_s


def lost_chart(
    seconds: dict[str, float], over: str, pace: Pace, price: Price | None, *, live: bool, as_of: float
) -> Chart:
    """Lost time by cause. seconds: column -> device-seconds, of emulated devices modelled ones; over: of what."""
    items = lost_time(seconds)
    known = sum(seconds.values())
    return chart(
        causes(seconds, pace, price),
        label=f"Lost time by cause{pace.unit}, {over}: "
        + ", ".join(f"{name} {device_time(value)}" for name, _, value in items),
        title="Lost time by cause",
        as_of=as_of,
        frozen="" if live else over,
        note=f"grey: overhead, not idle{' · times are modelled' if pace.emulated else ''}",
        table={
            "columns": ["cause", "share", f"device time{pace.unit}", *([] if price is None else ["money"]),
                        f"device-seconds{pace.unit}"],
            "rows": [[name, *lost_words(value, known, price), f"{value:.2f}"] for name, _, value in items],
        },
    )  # fmt: skip
