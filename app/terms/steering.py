"""What may be changed on a running job, what a change is expected to do, and what it did. Pure text."""

from __future__ import annotations

from app.term import Term

STEERING: dict[str, Term] = {
    "staleness": Term(
        title="Staleness",
        definition="Versions that a group may be late when it is trained on, fractions included: at 0.5 half of a "
        "step's groups may be one version late.",
        unit="versions",
        formula="lag <= floor(s), and for the part of s after the point that share of a step's groups one more",
    ),
    "partition": Term(
        title="Partition",
        definition="Devices whose home is the RollPool and the TrainPool. Only splits that this job's replicas and "
        "arm allow are offered.",
        unit="rollout : train devices",
    ),
    "arm": Term(
        title="Arm",
        definition="The scheduling policy. Whether whole batches or streams are trained on follows the arm unless the "
        "job says otherwise.",
    ),
    "rollout_on_train": Term(
        title="Trainer's devices generate",
        definition="Whether devices of the TrainPool may be lent to generate.",
        unit="on or off",
    ),
    "train_on_rollout": Term(
        title="Rollouter's devices train",
        definition="Whether devices of the RollPool may be lent to train.",
        unit="on or off",
    ),
    "lend_cap": Term(
        title="Lend cap",
        definition="Most devices that are lent at the same time, of both pools together. Empty: as many as pay.",
        unit="devices",
    ),
    "min_lease_s": Term(
        title="Minimum lease",
        definition="How long a lease lasts at least, unless an operator ends it or its device dies.",
        unit="seconds",
    ),
    "expected_tokens_per_s": Term(
        title="Expected tokens/s",
        definition="Throughput after the change, from the simulator with this run's own speeds: what the run does now "
        "times simulated after over simulated now. The band holds the spread and the model's error on "
        "this run.",
        unit="tokens per second",
        formula="measured now * simulated after / simulated now",
    ),
    "expected_idle": Term(
        title="Expected idle",
        definition="Share of device time that is expected to be idle after the change, with its band, beside what was "
        "measured lately.",
        unit="share of device time",
    ),
    "expected_lag": Term(
        title="Expected mean lag",
        definition="Mean over groups of the versions that they are expected to be late after the change, beside what "
        "was measured lately.",
        unit="versions",
    ),
    "model_error": Term(
        title="Model's error on this run",
        definition="How far the simulator is off when it plays the run as it is; the band is wider by that.",
        unit="share of the measured throughput",
        formula="simulated now / measured now - 1",
    ),
    "applied_after": Term(
        title="Applied after", definition="Time from sending a command until it had taken effect.", unit="seconds"
    ),
    "expected_effect": Term(
        title="Expected effect",
        definition="What the sender of a command was told would happen: throughput with its band, idle share and mean "
        "lag, before and after.",
    ),
    "measured_effect": Term(
        title="Measured effect",
        definition="Throughput, idle share and mean lag in the same number of steps before and after a change, with "
        "nothing else changed in them.",
        unit="tokens per second, share of device time, versions",
    ),
}
"""Name -> term."""
