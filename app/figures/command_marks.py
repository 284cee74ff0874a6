"""Marks of applied commands in charts: a thin dashed line each, with a short label above it. Pure.

Labels stand in lanes so that none covers another; where more commands come together than there is room for, they share
one label, and pointing at it tells of each. What was refused, or waits, is not marked: it changed nothing.
"""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

from app.clock import PageClock
from app.command_words import History, Made, mark, told
from app.modelled import REAL, Pace

LINE, CASING = "#22262E", "rgba(255,255,255,0.7)"
"""A dark line in a light casing: seen on every colour of a raster."""

PLAIN_LINE = "#8A909C"
"""On a chart without a raster, on either page."""

LABEL_PX, CHARACTER_PX, GAP_PX = 11, 6.1, 12
"""Size of a label's text, mean width of one of its characters, and room between two labels."""

LANE_PX = 15
"""Height of a lane of labels."""

LANES, MOST_LANES = 2, 3
"""Two lanes hold what one person does in a window that moves on; three, where they are needed, what was done in a whole
run. More would push the chart down."""

TOGETHER_PX = 6
"""Lines nearer than this are one line to the eye, and have one label."""

JOINED_CHARACTERS, JOINED_SHARE = 44, 0.4
"""A shared label names its commands up to this length and this part of the chart's width, and counts those beyond."""

MAX_COMMANDS = 60
"""More commands than this hide what their lines stand on; the newest are kept."""

HOVER_COMMANDS = 8
HOVER_COLUMNS, ANSWER_CHARACTERS = 52, 150
"""A hover text is a glance; the log has the whole answers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """An applied command on an axis."""

    x: float
    """Where the axis has it."""
    label: str
    """In few characters."""
    hover: str
    """Who, when and what; HTML."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Flag:
    """A label at its line."""

    x: float
    """The line that it stands at."""
    text: str
    """HTML."""
    hover: str
    """HTML."""
    lane: int
    """0 is the one next to the chart."""
    leftward: bool = False
    """Whether it ends at its line, which is near the right edge, instead of beginning there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandMarks:
    """What a chart adds for commands."""

    lines: tuple[float, ...] = ()
    """Positions on the axis, one for commands that fall on each other."""
    flags: tuple[Flag, ...] = ()
    """Labels; fewer than lines where commands come together."""
    lanes: int = 0
    """Lanes to keep room for; as many in an empty window as in a full one, so that the chart keeps its height."""
    cut: bool = False
    """Whether only the newest commands are drawn."""

    @property
    def height_px(self) -> int:
        """Height of the lanes."""
        return self.lanes * LANE_PX


def applied(found: History) -> list[Made]:
    """Commands with an effect that can be looked for."""
    return [made for made in found.made if made.command.state == "applied" and made.command.applied_at is not None]


def stamp(found: History) -> tuple[int, ...]:
    """The same as long as the marks are the same."""
    return tuple(made.command.id for made in applied(found))


def on_time(found: History, clock: PageClock, pace: Pace = REAL) -> list[Point]:
    """On a date axis: where each was applied."""
    return [
        Point(x=clock.axis(made.command.applied_at or 0.0), label=mark(made), hover=_hover(made, clock, pace))
        for made in applied(found)
    ]


def on_steps(found: History, clock: PageClock, pace: Pace = REAL) -> list[Point]:
    """On an axis of steps: the first step that each governs, or after which it was done."""
    return [
        Point(x=float(step), label=mark(made), hover=_hover(made, clock, pace))
        for made in applied(found)
        if (step := made.command.effective_step) is not None
    ]


def command_marks(
    points: Sequence[Point], *, span: tuple[float, float], width_px: float, lanes: int = LANES
) -> CommandMarks:
    """Marks of those points that lie inside `span`, which the chart shows on about `width_px` pixels.

    A run without any point has no lanes; one whose points lie elsewhere keeps them. Raises ValueError for a span that
    does not end after its start.
    """
    return _marks(points, span, width_px, lanes)[0]


def fewest_lanes(points: Sequence[Point], *, span: tuple[float, float], width_px: float) -> CommandMarks:
    """The same, with as many lanes as every line needs to have a label of its own; for a chart of a whole run, whose
    commands only become more."""
    for lanes in range(1, MOST_LANES):
        marks, merged = _marks(points, span, width_px, lanes)
        if not merged:
            return marks
    return _marks(points, span, width_px, MOST_LANES)[0]


def _marks(
    points: Sequence[Point], span: tuple[float, float], width_px: float, lanes: int
) -> tuple[CommandMarks, bool]:
    """The marks, and whether lines that stand apart had to share a label."""
    low, high = span
    if not high > low:
        raise ValueError(f"the span of an axis must end after its start {low!r}, got {high!r}")
    inside = sorted((p for p in points if low <= p.x <= high), key=lambda p: p.x)
    kept = inside[-MAX_COMMANDS:]
    scale = width_px / (high - low)
    groups = _together([_Shown(px=(p.x - low) * scale, point=p) for p in kept])
    lines = tuple(group[0].point.x for group in groups)
    longest = min(JOINED_CHARACTERS, int(width_px * JOINED_SHARE / CHARACTER_PX))
    placed = _placed(groups, width_px, lanes, longest)
    while isinstance(placed, int):
        # the nearest two lines from there on: what stands alone keeps its own label
        one = min(range(placed, len(groups) - 1), key=lambda i: groups[i + 1][0].px - groups[i][-1].px)
        groups[one : one + 2] = [groups[one] + groups[one + 1]]
        placed = _placed(groups, width_px, lanes, longest)
    marks = CommandMarks(
        lines=lines,
        flags=tuple(_flag(group, spot, longest) for group, spot in zip(groups, placed, strict=True)),
        lanes=lanes if points else 0,
        cut=len(kept) < len(inside),
    )
    return marks, len(groups) < len(lines)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Shown:
    px: float
    """Pixels from the left edge."""
    point: Point


_Group = list[_Shown]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Spot:
    """Where a label stands, in pixels."""

    line: float
    begin: float
    end: float
    lane: int


def _together(shown: Sequence[_Shown]) -> list[_Group]:
    """Groups of neighbours whose lines fall on each other."""
    groups: list[_Group] = []
    for each in shown:
        if groups and each.px - groups[-1][0].px <= TOGETHER_PX:
            groups[-1].append(each)
        else:
            groups.append([each])
    return groups


def _placed(groups: Sequence[_Group], width_px: float, lanes: int, longest: int) -> list[_Spot] | int:
    """A spot for each group, or the number of one that finds none.

    From right to left, so that a label stands over the lines of those after it and no line runs through a label.
    """
    spots: list[_Spot] = []
    for number in range(len(groups) - 1, -1, -1):
        line, width = groups[number][0].px, _width(groups[number], longest)
        options: list[_Spot] = []
        if line + width <= width_px:
            options += [_Spot(line=line, begin=line, end=line + width, lane=lane) for lane in range(lanes)]
        if line - width >= 0 or not options:
            # the topmost lane first: lines to the left end below it
            options += [_Spot(line=line, begin=line - width, end=line, lane=lane) for lane in range(lanes - 1, -1, -1)]
        free = next((spot for spot in options if all(_apart(spot, other) for other in spots)), None)
        if free is None:
            return number
        spots.append(free)
    return spots[::-1]


def _apart(one: _Spot, other: _Spot) -> bool:
    """Neither covers the other, and neither's line, which ends in its own lane, runs through the other."""
    if one.lane == other.lane:
        return one.end <= other.begin or other.end <= one.begin
    low, high = sorted((one, other), key=lambda spot: spot.lane)
    return not low.begin < high.line < low.end


def _label(group: _Group, longest: int) -> str:
    """ "s 1 → 0.5 · no_borrow", or "s 1 → 0.5 +3" where there are too many to name."""
    joined = " · ".join(each.point.label for each in group)
    return joined if len(group) == 1 or len(joined) <= longest else f"{group[0].point.label} +{len(group) - 1}"


def _width(group: _Group, longest: int) -> float:
    return len(_label(group, longest)) * CHARACTER_PX + GAP_PX


def _flag(group: _Group, spot: _Spot, longest: int) -> Flag:
    told_of = [each.point.hover for each in group[-HOVER_COMMANDS:]]
    more = [f"{len(group) - len(told_of)} before these"] if len(told_of) < len(group) else []
    return Flag(
        x=group[0].point.x,
        text=escape(_label(group, longest)),
        hover="<br><br>".join([*more, *told_of]),
        lane=spot.lane,
        leftward=spot.begin < spot.line,
    )


def _hover(made: Made, clock: PageClock, pace: Pace) -> str:
    command = made.command
    at = command.applied_at or command.created_at
    answer = textwrap.shorten(command.answer or "", ANSWER_CHARACTERS, placeholder=" …")
    lines = [
        f"<b>{escape(told(made))}</b>",
        f"{escape(command.who)} · sent {clock.time(command.created_at)}, applied {clock.time(at)}",
        *map(escape, textwrap.wrap(answer, HOVER_COLUMNS)),
    ]
    return "<br>".join(lines) + pace.hover


def drawn(
    marks: CommandMarks, *, x: str, y: str, y0: float, y1: Callable[[int], float], edge: float, cased: bool = False
) -> dict[str, list[dict[str, Any]]]:
    """Shapes and annotations of a layout.

    x: the axis of the lines, such as "x2"; y: what heights refer to, such as "paper"; y0: where a line begins; y1: the
    middle of a lane's labels, where the line of one of them ends; edge: where lines without a label of their own end.
    cased: on a raster, which needs a casing to be seen.
    """
    top = {flag.x: y1(flag.lane) for flag in marks.flags}
    shapes = []
    for at in marks.lines:
        where = {"type": "line", "xref": x, "x0": at, "x1": at, "yref": y, "y0": y0, "y1": top.get(at, edge)}
        if cased:
            shapes.append({**where, "line": {"color": CASING, "width": 3}})
        line = {"color": LINE if cased else PLAIN_LINE, "width": 1.2, "dash": "4px,3px"}
        shapes.append({**where, "line": line, "name": "command"})
    annotations = [
        {
            "text": flag.text, "hovertext": flag.hover, "xref": x, "x": flag.x, "yref": y, "y": y1(flag.lane),
            "xanchor": "right" if flag.leftward else "left", "yanchor": "middle", "xshift": -2 if flag.leftward else 2,
            "showarrow": False, "align": "left", "borderpad": 0, "font": {"size": LABEL_PX}, "name": "command",
        }
        for flag in marks.flags
    ]  # fmt: skip
    return {"shapes": shapes, "annotations": annotations}
