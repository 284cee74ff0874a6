"""How a time axis writes its moments: as finely as the part of it that is shown asks for. Pure."""

from __future__ import annotations

from typing import Any

SECOND_MS, HOUR_MS, DAY_MS = 1000.0, 3_600_000.0, 86_400_000.0

STOPS: list[dict[str, Any]] = [
    {"dtickrange": [None, 9.0], "value": "%H:%M:%S.%3f"},
    {"dtickrange": [9.0, SECOND_MS - 1], "value": "%H:%M:%S.%2f"},
    {"dtickrange": [SECOND_MS - 1, HOUR_MS - 1], "value": "%H:%M:%S"},
    {"dtickrange": [HOUR_MS - 1, DAY_MS - 1], "value": "%H:%M<br>%b %d"},
    {"dtickrange": [DAY_MS - 1, "M12"], "value": "%b %d"},
]
"""Plotly takes the first whose range holds the distance of two ticks, milliseconds."""


def hover_format(bin_s: float) -> str:
    """Of a bin's moment: seconds are enough for bins of a second and more."""
    return "%H:%M:%S" if bin_s >= 1 else "%H:%M:%S.%2f"
