"""What the arms are, for everybody who has to tell them apart: which of them lend, and how their trainers consume."""

from __future__ import annotations

from typing import Literal

from planner.policy.improvements import Improvements
from planner.policy.pulls import OURS

LENDING = ("rollout_on_train", "train_on_rollout", "opportunistic", "bidirectional_paper", "bidirectional")
"""Arms that lend devices, so that each pool must be able to host the other role."""

ARMS = ("no_borrow", "colocated", *LENDING)
"""All of them."""


def consume_of(arm: str, asked: Literal["stream", "whole_batch"] | None) -> Literal["stream", "whole_batch"]:
    """How trainers consume a step; without being asked `bidirectional` streams and the others take a whole batch, as
    published (design section 5)."""
    return asked or ("stream" if arm == "bidirectional" else "whole_batch")


def gates_first(arm: str, improvements: Improvements) -> bool:
    """An arm that lends asks its gates before groups are pulled; otherwise when nothing else is left to do."""
    return arm == "bidirectional_paper" or (arm in OURS and improvements.gate_before_pull)
