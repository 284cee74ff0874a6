"""How a policy learns: what the learning charts, samples and findings show. Pure text."""

from __future__ import annotations

from app.term import Term

LEARNING: dict[str, Term] = {
    "reward": Term(
        title="Reward",
        definition="Mean reward of a step's responses; the strong line is the mean of the last 10 steps.",
        unit="reward, as the task scores it",
    ),
    "held_out_accuracy": Term(
        title="Held-out accuracy",
        definition="Share of right answers to items that are never trained on. An answer is right when its reward, the "
        "first one where a job has several, is 1 or more.",
        unit="share of items",
    ),
    "control_accuracy": Term(
        title="Control accuracy",
        definition="The same on answers that are made to start with the job's control text: what the policy could do "
        "from there.",
        unit="share of items",
    ),
    "response_length": Term(title="Response length", definition="Mean length of a step's responses.", unit="tokens"),
    "loss": Term(
        title="Loss",
        definition="Mean token loss of a step's update, importance weights included.",
        formula="mean over tokens of -min(w, cap) * A, where nothing is clipped",
    ),
    "mismatch_kl": Term(
        title="Mismatch KL",
        definition="How far the policy at the start of the update lies from the one that sampled the tokens.",
        unit="nats per token",
        formula="mean over tokens of w - 1 - log w, with w = pi_prox / pi_behaviour",
    ),
    "no_signal_groups": Term(
        title="Groups without signal",
        definition="Groups whose rewards are all equal, so that they carry no gradient; they are consumed and counted.",
        unit="groups",
    ),
    "capped_share": Term(
        title="Tokens at the importance cap",
        definition="Share of tokens whose importance weight was cut at the cap of 2.",
        unit="share of tokens",
        formula="tokens with w > 2 / tokens",
    ),
    "excluded_groups": Term(
        title="Excluded groups",
        definition="Groups that were never trained on, each with its recorded reason, such as a reward that failed.",
        unit="groups",
    ),
    "group_lag": Term(
        title="Lag of a group",
        definition="Versions that a group was late when it was consumed, of those that the staleness allowed when it "
        "was started.",
        unit="versions",
        formula="trainer's version - version of the group's first token",
    ),
    "group_reward": Term(
        title="Reward of a group", definition="Mean reward of a group's responses; a dash where a reward failed."
    ),
}
"""Name -> term."""
