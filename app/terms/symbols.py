"""The letters and functions of formulas. Pure text; a formula uses no symbol that is not here."""

from __future__ import annotations

SYMBOLS: dict[str, str] = {
    "A": "advantage of a response: its reward minus the mean of its group, divided by the group's std where the job "
    "says so",
    "B": "prompts_per_step: groups that a step consumes",
    "C_grad": "seconds that merging an auxiliary trainer's gradient costs",
    "C_in": "seconds from the decision to lend until the first useful token or gradient, weights included",
    "C_out": "seconds from the end of a lease until the home role works again",
    "G": "devices of a run",
    "M_r": "seconds for d rollout replicas to produce Q groups, M_r(Q, d)",
    "M_t": "seconds for d trainer replicas to consume workload U, M_t(U, d)",
    "Q": "groups that the trainer lacks",
    "U": "trainer workload that remains, in group-equivalents",
    "U_B": "trainer workload of a step, in group-equivalents",
    "U'": "U without the units that the primaries finish within C_in",
    "ceil": "rounded up to a whole number",
    "clip_high": "how far above 1 a token's r may go before the loss stops following it",
    "clip_low": "how far below 1 a token's r may go before the loss stops following it",
    "d": "replicas",
    "d_a": "auxiliary replicas",
    "d_p": "primary replicas",
    "d_r": "replicas that the RollPool holds",
    "d_t": "replicas that the TrainPool holds",
    "floor": "rounded down to a whole number",
    "g_p": "devices of a pool",
    "lambda": "the smaller of the two pools' rates",
    "lambda_p": "groups per second that a pool reaches while it never waits",
    "lambda_r": "lambda_p of the RollPool",
    "lambda_t": "lambda_p of the TrainPool",
    "log": "natural logarithm",
    "max": "the largest of",
    "min": "the smallest of",
    "pi_behaviour": "the policy that sampled the tokens, as the rollouter recorded it",
    "pi_prox": "the policy at the start of the step's update",
    "pi_theta": "the policy that is being updated",
    "r": "ratio of a token: pi_theta / pi_prox, 1 with one update per step",
    "s": "staleness, in versions",
    "w": "importance weight of a token: pi_prox / pi_behaviour, before the cap",
}
"""Symbol -> meaning."""
