"""Where the devices' time goes: busy, idle, why, and how well it was measured. Pure text."""

from __future__ import annotations

from app.term import Term

CAUSES = {
    "failure": "its worker, or one that it needs, had died",
    "paused": "the run was paused",
    "draining": "the run, or its lease, was ending and nothing new was started",
    "weights_pending": "it waited for new weights",
    "waiting_for_rewards": "it waited for rewards",
    "staleness_cap": "starting another group would have broken the staleness that the run allows",
    "waiting_for_groups": "the trainer lacked finished groups",
    "step_barrier": "it waited for the slowest device of the step",
    "no_work": "there was nothing for it to do, for none of the other causes",
}
"""Cause -> why a device was idle; where several hold, the first one counts."""

DEVICE_TIME: dict[str, Term] = {
    "busy_now": Term(
        title="Busy, last 5 min",
        definition="Share of the devices' known time of the last 5 minutes, or since training began, in which they "
        "were not idle.",
        unit="share of device time",
        formula="1 - idle device-seconds / known device-seconds",
    ),
    "busy_change": Term(
        title="Busy, against the run's mean",
        definition="How far the busy share of the last 5 minutes lies from that of the whole run.",
        unit="percentage points (pp)",
        formula="busy share now - busy share since training began",
    ),
    "idle_so_far": Term(
        title="Idle so far",
        definition="Device time without useful work since the first rollout could start; start-up and warm start do "
        "not count.",
        unit="device-seconds, device-minutes or device-hours",
        formula="idle device-seconds, summed over the devices",
    ),
    "lost_by_cause": Term(
        title="Lost time by cause",
        definition="Device time that was idle, by its one cause, and below it the time of overhead such as the "
        "optimizer; the first of several causes counts.",
        unit="share of device time, and device time",
        formula="device-seconds of the cause / known device-seconds",
    ),
    "overhead": Term(
        title="Overhead",
        definition="Time in which a device worked, but neither generated, trained, scored nor evaluated: optimizer, "
        "weight sync, switching, merging gradients, checkpoint, start-up. It is not idle.",
        unit="device time",
    ),
    "row_idle_share": Term(
        title="Idle share in the bubble heatmap",
        definition="Share of a row's known time in one column of the heatmap in which its devices were idle; from "
        "exact sums, not from what the timeline draws.",
        unit="share of device time",
        formula="idle device-seconds / known device-seconds of the row and column",
    ),
    "kind_seconds": Term(
        title="Time of each kind of work",
        definition="Device time that a row spent in each kind of work or cause of idle time during the last 5 minutes.",
        unit="device-seconds of wall time",
    ),
    "known_time": Term(
        title="Known time",
        definition="Device time that telemetry has; what is missing is hatched in charts and never counts as idle.",
        unit="device-seconds",
    ),
    "bin_width": Term(
        title="A column of the timeline",
        definition="Wall time that one column of a chart stands for; its colour is that of what took most of it.",
        unit="seconds",
    ),
    "ledger_gap": Term(
        title="Largest gap of the ledger",
        definition="The largest part of a device's wall time that its spans do not cover, over all devices of a "
        "finished run; at most 0.5% passes.",
        unit="share of wall time",
        formula="max over devices of (wall time - sum of its spans) / wall time",
    ),
    "cpu_over_busy": Term(
        title="CPU seconds over busy seconds",
        definition="A second witness of what a CPU device did: 0.85 to 1.02 passes, for a core that works is used.",
        formula="CPU seconds in busy spans / seconds of busy spans, start-up left out",
    ),
    "cpu_over_idle": Term(
        title="CPU seconds over idle seconds",
        definition="CPU seconds that devices used while they were said to be idle; below 5% passes.",
        formula="CPU seconds in idle spans / seconds of idle spans",
    ),
    "telemetry_lag": Term(
        title="Telemetry lag",
        definition="Age of the oldest row that still waits to be written.",
        unit="seconds",
    ),
    "dropped_spans": Term(
        title="Dropped spans",
        definition="Raw spans that were left out because the disk was too slow; sums and shares stay exact, close-up "
        "views lack them.",
        unit="spans",
    ),
}
"""Name -> term."""

DEVICE_TIME |= {
    f"cause_{cause}": Term(
        title=f"Idle · {cause.replace('_', ' ')}",
        definition=f"A device was idle because {why}.",
        unit="share of device time, and device time",
    )
    for cause, why in CAUSES.items()
}
