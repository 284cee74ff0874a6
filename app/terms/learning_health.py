"""What the Learning page adds: the health of the correction for older weights, and speed per step. Pure text."""

from __future__ import annotations

from app.term import Term

HEALTH: dict[str, Term] = {
    "entropy": Term(
        title="Entropy",
        definition="Mean entropy of the policy's token distribution at the sampling temperature.",
        unit="nats per token",
    ),
    "grad_norm": Term(
        title="Gradient norm", definition="Length of a step's gradient, divided by its tokens, before it is clipped."
    ),
    "learning_rate": Term(title="Learning rate", definition="Rate of a step's optimizer update."),
    "clip_share": Term(
        title="Clipped",
        definition="Share of tokens whose probability, against that at the start of the update, left the range from "
        "1 - clip_low to 1 + clip_high; 0 with one update a step.",
        unit="share of tokens",
    ),
    "ess": Term(
        title="Effective sample size",
        definition="Share of the tokens that count after correcting for the weights that sampled them; 100% when all "
        "importance weights are equal.",
        unit="share of tokens",
        formula="(sum of min(w, cap))^2 / (tokens * sum of min(w, cap)^2)",
    ),
    "by_lag": Term(
        title="By lag",
        definition="Told apart by how many versions old a group's first token was when it was trained on.",
    ),
    "by_role": Term(
        title="By primary or auxiliary",
        definition="Told apart by the role of the trainer that computed the group's gradient.",
    ),
    "no_signal_share": Term(
        title="Groups without signal",
        definition="Share of a step's groups whose rewards are all equal, so that they carry no gradient.",
        unit="share of groups",
    ),
    "step_tokens_per_s": Term(
        title="Tokens/s of a step",
        definition="Prompt and response tokens of a step over the time since the end of the step before.",
        unit="tokens per second",
    ),
    "step_idle_share": Term(
        title="Idle share of a step",
        definition="Share of the devices' known time, from the end of the step before to the end of the step, in which "
        "they were idle.",
        unit="share of device time",
    ),
}
"""Name -> term."""
