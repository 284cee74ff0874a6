"""The rows of the timeline and of the heatmap: room between them, which have a label, where a pool begins. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from app.detail import Row

LABEL_PX = 13
"""Labels nearer than this touch each other."""

POOL_LINE = "rgba(128,132,142,0.9)"
"""Between two pools; seen on either page."""

MARGIN_PX = 130
"""Left of the rows: the longest label of a group of devices, or a pool's name and a device's."""


def gap_px(row_px: int) -> int:
    """Room between two rows: thin ones have none to spare."""
    return 2 if row_px > 12 else 1 if row_px > 4 else 0


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
        "range": [len(rows) - 0.5, -0.5], "tickvals": ticks, "ticktext": [rows[i].tick or rows[i].label for i in ticks],
        "showgrid": False, "zeroline": False, "fixedrange": True,
    }  # fmt: skip


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
