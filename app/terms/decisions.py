"""What the Decisions page adds to the terms of lending: sums over a run, and whether gates were right. Pure text."""

from __future__ import annotations

from app.term import Term

DECISIONS: dict[str, Term] = {
    "leases_granted": Term(
        title="Leases",
        definition="Leases that were granted over the whole run; refused: decisions not to lend; delivered: leases "
        "that brought a group, a part of one, or a gradient.",
        unit="leases, decisions",
    ),
    "predicted_net_gain": Term(
        title="Predicted gain, costs deducted",
        definition="Seconds that lending was expected to win when it was decided on; negative: it was expected to "
        "lose.",
        unit="seconds",
        formula="predicted gain - predicted cost",
    ),
    "foretold_gain": Term(
        title="Measured as foretold",
        definition="Seconds that a lease won by the work that its prediction is about, costs deducted: for rollouters "
        "that train, the units of the step that it was granted in, in the time of the trainers at home, who would have "
        "trained them; for trainers that generate, all that they did, in their own time. What "
        "it won by going on into further steps was foretold by nobody, and is in the measured gain.",
        unit="seconds",
        formula="model's time for that work without the lease - actual time",
    ),
    "measured_gain_sum": Term(
        title="Measured gain",
        definition="Seconds that all measured leases of the direction won together, costs deducted.",
        unit="seconds",
        formula="sum over measured leases of the measured gain",
    ),
    "regret_sum": Term(
        title="Regret",
        definition="Seconds that leases lost against staying at home; what was lost by refusing is not known.",
        unit="seconds",
        formula="sum over measured leases of max(0, -measured gain)",
    ),
    "paid_off_recent": Term(
        title="Share that paid off",
        definition="Share of the direction's last measured leases that won time: of 20, or a fortieth of a long run.",
        unit="share of leases",
        formula="leases with measured gain > 0 / measured leases, over the last ones",
    ),
    "guard": Term(
        title="Never-slower guard",
        definition="Switches a direction off for a while when the one-sided 90% upper bound of the mean gain of its "
        "last 8 or more leases is below zero.",
    ),
    "decision_inputs": Term(
        title="Inputs of a decision", definition="The numbers that the policy saw when it decided.", unit="as said"
    ),
    "lease_phases": Term(
        title="Phases of a lease",
        definition="What the changes of role were spent on, measured by the worker.",
        unit="seconds",
    ),
}
"""Name -> term."""
