"""How fast a run goes, how far it got, and how late its groups are. Pure text."""

from __future__ import annotations

from app.term import Term

PROGRESS: dict[str, Term] = {
    "tokens_per_s": Term(
        title="Tokens/s",
        definition="Throughput: prompt and response tokens of consumed steps over their time, without the first and "
        "last steps, in which the pipeline fills and drains.",
        unit="tokens per second",
        formula="tokens / seconds of the steps left after dropping max(1, ceil(s)) at the head and ceil(s) at the tail",
    ),
    "lag_p95": Term(
        title="Lag p95 / cap",
        definition="Lag that 95% of the groups of the last 20 steps do not exceed; the cap is the staleness, rounded "
        "up.",
        unit="versions",
        formula="lag = trainer's version - version of the group's first token; cap = ceil(s)",
    ),
    "buffer_groups": Term(
        title="Buffer, groups",
        definition="Finished groups that wait for the trainer, of those that the staleness allows: one step and the "
        "start allowance.",
        unit="groups",
        formula="at most B + floor(s*B)",
    ),
    "in_flight_groups": Term(
        title="In flight", definition="Groups that are being generated and have no lag yet.", unit="groups"
    ),
    "steps_done": Term(
        title="Step",
        definition="Optimizer updates behind the present weights, those before the run was resumed included, of those "
        "that the job asks for.",
        unit="steps",
    ),
    "time_left": Term(
        title="Time left",
        definition="Steps still to do times the median time between the ends of the last 20 steps.",
        unit="wall time",
        formula="steps left * median seconds between ends of steps",
    ),
    "heartbeat_age": Term(
        title="Heartbeat",
        definition="Time since the engine last said that it is alive; after 10 s it counts as silent.",
        unit="seconds",
    ),
    "mean_lag": Term(
        title="Mean lag",
        definition="Mean over a step's groups of the versions that they were late.",
        unit="versions",
        formula="sum of lags / groups",
    ),
    "largest_lag": Term(title="Largest lag", definition="Lag of the latest group of a step.", unit="versions"),
    "lag_cap": Term(
        title="Cap of the lag",
        definition="Largest lag that the staleness in force for a step allows; only a part of its groups may reach it "
        "where s is a fraction.",
        unit="versions",
        formula="ceil(s)",
    ),
}
"""Name -> term."""
