"""The rows of the timeline and of the heatmap: room between them, which have a label, where a pool begins. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from app.detail import Row

LABEL_PX = 13
"""Labels nearer than this touch each other."""

POOL_LINE = "rgba(128,132,142,0.9)"
"""Between two pools; seen on either page."""

GROUND = "#FFFFFF"
"""Of paper; a page puts its own in its place."""

MARGIN_PX = 130
"""Left of the rows: the longest label of a group of devices, or a pool's name and a device's."""

AXIS_CHARACTERS = 19
"""Of a label that fit into that margin."""


def gap_px(row_px: int) -> int:
    """Room between two rows: thin ones have none to spare."""
    return 2 if row_px > 12 else 1 if row_px > 4 else 0


def gap_lines(rows: int, row_px: int, span: tuple[float, float]) -> list[dict[str, Any]]:
    """That room as a trace of lines in the page's own colour, for which the chart host looks. A raster without gaps of
    its own is one small picture that the browser stretches; with them each of its cells is painted by itself.

    span: ends of the raster, as the axis writes them.
    """
    gap, between = gap_px(row_px), range(1, rows)
    if not gap or not between:
        return []
    return [
        {
            "type": "scatter",
            "mode": "lines",
            "name": "",
            "x": [edge for _ in between for edge in (*span, None)],
            "y": [edge for row in between for edge in (row - 0.5, row - 0.5, None)],
            "line": {"color": GROUND, "width": gap, "simplify": False},
            "hoverinfo": "skip",
            "meta": {"ground": True},
        }
    ]


def labelled(rows: Sequence[Row], row_px: int) -> list[int]:
    """Rows with a label: the first of each pool and every n-th after it, so that no two touch."""
    apart = max(1, -(-LABEL_PX // row_px))
    # numbers that one can count on from: every second, fourth, eighth ... device
    apart = 1 << (apart - 1).bit_length()
    chosen: list[int] = []
    first = 0
    for index, row in enumerate(rows):
        if index and row.pool != rows[index - 1].pool:
            first = index
            while chosen and chosen[-1] > index - apart:
                chosen.pop()
        if (index - first) % apart == 0:
            chosen.append(index)
    return chosen


def row_axis(rows: Sequence[Row], row_px: int) -> dict[str, Any]:
    """The y axis: the first row on top, its labels, and no zoom."""
    ticks = labelled(rows, row_px)
    return {
        "range": [len(rows) - 0.5, -0.5],
        "tickvals": ticks, "ticktext": [cut(rows[i].tick or rows[i].label) for i in ticks],
        "showgrid": False, "zeroline": False, "fixedrange": True,
    }  # fmt: skip


def cut(name: str, room: int = AXIS_CHARACTERS) -> str:
    """For the axis; the whole name is in the hover text. What tells nodes apart is their end more often than their
    beginning."""
    if len(name) <= room:
        return name
    ahead = room // 2 - 2
    return f"{name[:ahead]}…{name[ahead - room + 1 :]}"


def pool_names(rows: Sequence[Row]) -> dict[str, list[dict[str, Any]]]:
    """Annotations and shapes of a layout: each pool's name left of its rows, a line where the next one begins."""
    starts = [i for i, row in enumerate(rows) if row.pool and (i == 0 or rows[i - 1].pool != row.pool)]
    ends = [*starts[1:], len(rows)][: len(starts)]
    names = [
        {
            "text": f"<b>{rows[start].pool}</b>", "xref": "paper", "x": 0, "xshift": 6 - MARGIN_PX, "xanchor": "left",
            "yref": "y", "y": (start + end - 1) / 2, "yanchor": "middle", "showarrow": False,
        }
        for start, end in zip(starts, ends, strict=True)
    ]  # fmt: skip
    lines = [
        {
            "type": "line", "xref": "paper", "x0": 0, "x1": 1, "yref": "y", "y0": start - 0.5, "y1": start - 0.5,
            "line": {"color": POOL_LINE, "width": 1.5},
        }
        for start in starts[1:]
    ]  # fmt: skip
    return {"annotations": names, "shapes": lines}
