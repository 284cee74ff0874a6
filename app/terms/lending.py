"""What the scheduler expects of leases, and what they cost and brought. Pure text."""

from __future__ import annotations

from app.term import Term

LENDING: dict[str, Term] = {
    "decision_step": Term(
        title="Step of a decision", definition="Number of the step that was being filled.", unit="steps"
    ),
    "lent_devices": Term(title="Lent devices", definition="Devices that a lease is about.", unit="numbers of devices"),
    "predicted_gain": Term(
        title="Predicted gain",
        definition="Seconds that a lease was expected to win when it was decided on, costs not deducted.",
        unit="seconds",
        formula="M_r(Q, d_p) - M_r(Q, d_p + d_a), or M_t(U, d_p) - M_t(U', d_p + d_a) for lent trainers",
    ),
    "predicted_cost": Term(
        title="Predicted cost",
        definition="Seconds that the change of role was expected to cost when it was decided on.",
        unit="seconds",
        formula="C_in + C_out, and C_grad for lent trainers",
    ),
    "measured_cost": Term(
        title="Measured cost",
        definition="Seconds that the change of role took, there and back, its gradient included.",
        unit="seconds",
        formula="C_in + C_out + C_grad",
    ),
    "switch_cost_median": Term(
        title="Median switch cost",
        definition="Half of the direction's leases took less than this to change roles, there and back.",
        unit="seconds",
        formula="median over leases of C_in + C_out",
    ),
    "measured_gain": Term(
        title="Measured gain",
        definition="Seconds that a lease won over all of its life, costs deducted; negative when it lost time, a dash "
        "while it cannot be told. Often far more than was predicted: a prediction is about the work that is there when "
        "it is made, and a lease goes on while it pays.",
        unit="seconds",
        formula="model's time for the actual work without the lease - actual time",
    ),
    "regret": Term(
        title="Regret",
        definition="Seconds lost against the better of lending and not lending, as measured.",
        unit="seconds",
        formula="max(0, -measured gain)",
    ),
    "delivered": Term(
        title="Delivered",
        definition="Groups that a lease generated, parts in group-equivalents, or chunks that it trained, and their "
        "tokens.",
        unit="groups or chunks, and tokens",
    ),
    "decisions_by_outcome": Term(
        title="Admitted, refused, delivered",
        definition="Decisions to lend, decisions not to, and leases that brought something, over the whole run.",
        unit="decisions, leases",
    ),
    "paid_off_share": Term(
        title="Paid off",
        definition="Share of the leases with a measured gain that won time.",
        unit="share of leases",
        formula="leases with measured gain > 0 / leases with a measured gain",
    ),
}
"""Name -> term."""
