"""Terms of the Timeline: its controls, what it counts, and money."""

from __future__ import annotations

from app.term import Term

TIMELINE: dict[str, Term] = {
    "timeline_window": Term(
        title="Window",
        definition="The last minutes of the run, or all of it since the first rollout could start; drag in the "
        "timeline for any other.",
        unit="wall time",
    ),
    "timeline_rows": Term(
        title="Rows",
        definition="A row a device, a node or a pool. More than 256 devices have no row each: a group of them is "
        "opened by a click.",
    ),
    "timeline_colour": Term(
        title="Colour",
        definition="Phase: what the device did. Idle cause: why it did nothing. Policy version: the weights that it "
        "worked with, known from raw spans only. Primary or auxiliary: on its home pool or on the other one.",
    ),
    "lost_in_window": Term(
        title="Lost time",
        definition="Device time that was idle, by its one cause, and overhead in grey, over the bins of the window "
        "that is shown or over the whole run; sums are exact, whatever the colours of the chart hide.",
        unit="share of device time, device time, and money with a price",
        formula="seconds of a cause / all known device-seconds",
    ),
    "structural_bubble": Term(
        title="Structural",
        definition="Idle time because the mean rates of the two pools differ at this split, at most what was idle: "
        "lending may have filled a part of it already. Each pool's rate is measured at the pace of its busy time.",
        unit="share of device time",
        formula="sum over the pools of g_p * (1 - lambda / lambda_p) / G, at most the idle share",
    ),
    "residual_bubble": Term(
        title="Residual",
        definition="Idle time that a matching split would not have removed: tails of response lengths and their "
        "drift, the staleness limit, whole replicas.",
        unit="share of device time",
        formula="idle share - structural share",
    ),
    "worst_bubbles": Term(
        title="Worst bubbles",
        definition="The longest stretches in which a device waited for one cause, in their whole length; devices that "
        "wait together are one bubble, ranked by device-seconds.",
        unit="device-seconds",
    ),
    "price": Term(
        title="Price of a device-hour",
        definition="What an hour of one device is worth; set by an operator for everybody. Money on pages is "
        "device-hours times the price of today, also for runs of the past.",
        unit="currency per device-hour",
    ),
}
"""Name -> term."""
