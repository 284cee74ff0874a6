"""Colours and labels of what devices do, by rollup column. Pure constants; nothing else may name a colour of a state.

The first eight colours and the heatmap scale are the measured set of the dashboard; the other kinds were chosen so that
the smallest CIEDE2000 distance of any two, also as seen with each kind of colour blindness, is about 10.
"""

from __future__ import annotations

from storage.words import COLUMNS, IDLE_COLUMNS

IDLE_COLOUR = "#C8330C"

_BUSY_COLOURS = {
    "rollout": "#2F4B9B",
    "rollout_aux": "#75C0FC",
    "train": "#FDAF16",
    "train_aux": "#F6EFA6",
    "scoring": "#6BA86E",
    "evaluate": "#0C6B72",
    "optimizer": "#603305",
    "weight_sync": "#C04BE8",
    "switch_in": "#3D3A3A",
    "switch_out": "#968F87",
    "grad_merge": "#401437",
    "checkpoint": "#787CA9",
    "startup": "#D4E2EA",
}
COLOURS = {column: _BUSY_COLOURS.get(column, IDLE_COLOUR) for column in COLUMNS}
"""Column -> colour; every cause of idle time has the one colour of idle."""

CAUSE_COLOURS = {
    "failure": "#22262E",
    "paused": "#968F87",
    "draining": "#B9A68A",
    "weights_pending": "#C04BE8",
    "waiting_for_rewards": "#6BA86E",
    "staleness_cap": "#7A1F00",
    "waiting_for_groups": "#C8330C",
    "step_barrier": "#E4742A",
    "no_work": "#D9C9A3",
}
"""Cause -> colour where causes are compared; each also has its label beside it."""

HEAT_LIGHT = ("#F4F6FB", "#FDE3B0", "#E4742A", "#7A1F00")
HEAT_DARK = ("#232936", "#7A1F00", "#E4742A", "#FDE3B0")
"""Idle share 0 to 1; on a dark page the scale runs the other way, so that more idle always stands out more."""

NO_DATA_LINE = "rgba(128,132,142,0.55)"
NO_DATA_FILL = "rgba(128,132,142,0.08)"
"""Missing telemetry: a grey hatch, which no state of a device uses."""

SERIES = {"reward": "#2F4B9B", "loss": "#C8330C", "accuracy": "#0C6B72", "control": "#C04BE8", "length": "#B5741A"}
SERIES_DARK = {"reward": "#8FA8F0", "loss": "#F0764F", "accuracy": "#4FC3B8", "control": "#D58CF2", "length": "#FDAF16"}
"""Lines of the learning charts on a light and on a dark page."""

CAUSE_LABELS = {
    "failure": "failure",
    "paused": "paused",
    "draining": "draining",
    "weights_pending": "weights pending",
    "waiting_for_rewards": "waiting for rewards",
    "staleness_cap": "staleness cap",
    "waiting_for_groups": "waiting for groups",
    "step_barrier": "step barrier",
    "no_work": "no work",
}

KIND_LABELS = {
    "rollout_aux": "aux rollout",
    "train_aux": "aux train",
    "weight_sync": "weight sync",
    "switch_in": "switch in",
    "switch_out": "switch out",
    "grad_merge": "gradient merge",
}


def label(column: str) -> str:
    """What a reader calls a column: "aux rollout", "idle · staleness cap"."""
    if column in IDLE_COLUMNS:
        return f"idle · {CAUSE_LABELS[column.removeprefix('idle_')]}"
    return KIND_LABELS.get(column, column)


LABELS = tuple(label(column) for column in COLUMNS)
"""Labels in the order of `COLUMNS`."""
