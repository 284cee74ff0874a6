"""Terms of the Plan page: what a split is predicted to bring, and what a recorded run would have done otherwise."""

from __future__ import annotations

from app.term import Term

PLAN: dict[str, Term] = {
    "plan_stage_times": Term(
        title="Stage times",
        definition="Speeds, switch costs and response lengths that a plan goes by: given in the job's profile, "
        "measured by a calibration, or measured by a past run of itself.",
    ),
    "plan_best": Term(
        title="Best split",
        definition="The feasible split whose slower pool is fastest, when nothing is lent; of equal ones the one whose "
        "other pool is faster, then with fewer rollout devices.",
        formula="the largest min(lambda_r, lambda_t)",
    ),
    "plan_best_borrowing": Term(
        title="Best split with borrowing",
        definition="The feasible split with the shortest estimated step when the pool that is done earlier lends "
        "devices to the other one; several are often a tie, which the simulator tells apart.",
    ),
    "plan_feasible": Term(
        title="Feasible splits",
        definition="Splits with whole replicas in both pools and, for an arm that lends, in which each pool could host "
        "the other role; every other one has its reason in the table.",
    ),
    "plan_rate_rollout": Term(
        title="Rollout rate",
        definition="What the RollPool of a split is predicted to produce when it never waits.",
        unit="groups/s",
        formula="lambda_r = B / M_r(B, d_r)",
    ),
    "plan_rate_train": Term(
        title="Train rate",
        definition="What the TrainPool of a split is predicted to consume when it never waits.",
        unit="groups/s",
        formula="lambda_t = B / M_t(U_B, d_t)",
    ),
    "plan_tokens_per_s": Term(
        title="Predicted tokens/s",
        definition="The slower pool's rate in prompt plus response tokens, without borrowing, optimizer step and "
        "weight sync.",
        unit="tokens/s",
        formula="min(lambda_r, lambda_t) * mean tokens of a group",
    ),
    "plan_step": Term(
        title="Predicted step",
        definition="Time of a step of the slower pool, without borrowing, optimizer step and weight sync.",
        unit="seconds",
        formula="B / min(lambda_r, lambda_t)",
    ),
    "plan_idle": Term(
        title="Predicted structural idle",
        definition="Share of device time that the faster pool is predicted to wait for the slower one, without "
        "borrowing.",
        unit="share of device time",
        formula="sum over the pools of g_p * (1 - lambda / lambda_p) / G",
    ),
    "plan_borrowing_step": Term(
        title="Predicted step with borrowing",
        definition="Time of a step, estimated from mean stage times, when whole blocks of the earlier pool's devices "
        "are lent to the slower one and every lease pays its switch costs.",
        unit="seconds",
    ),
    "plan_frontier": Term(
        title="Split and staleness together",
        definition="What each split reaches at each staleness. A point is worth its staleness when no point with less "
        "of it comes within one percent of its throughput.",
        unit="tokens/s, or share of device time",
    ),
    "plan_measured": Term(
        title="Measured",
        definition="What the recorded run reached over its first steps, as many as are replayed; idle time from its "
        "first possible rollout to the last of them.",
        unit="tokens/s, seconds, share of device time",
    ),
    "plan_replayed": Term(
        title="Replayed",
        definition="The recorded run played again by the simulator: the same policy code, the speeds that the run "
        "measured, and the lengths of its own responses. No device runs.",
        unit="tokens/s, seconds, share of device time",
    ),
    "plan_model_error": Term(
        title="Model's error on this run",
        definition="How far the replay with the settings as they were is from what was measured.",
        unit="share of the measured throughput",
        formula="replayed / measured - 1",
    ),
    "plan_expected": Term(
        title="Expected",
        definition="The measured throughput times what the replay says the change brings; the band is as wide on "
        "either side as the model is off on this run.",
        unit="tokens/s",
        formula="measured * replayed with the change / replayed as is",
    ),
}
"""Name -> term."""
