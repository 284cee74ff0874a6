"""Rows of the Plan page's table of splits: every one with its figures, or with the reason why it cannot be. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from app.clock import DASH
from engine.config.planning import Planned
from planner.partitions import Candidate
from planner.profile import Profile
from planner.profile_models import mean_response_tokens

MOST_FEASIBLE, MOST_INFEASIBLE = 300, 60
"""Rows shown of each: a table is read from its top, and reasons repeat."""

BEST, BEST_BORROWING = "best", "best with borrowing"


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """The splits that are shown."""

    feasible: tuple[Candidate, ...]
    """Best first."""
    infeasible: tuple[Candidate, ...]
    more_feasible: int
    more_infeasible: int
    """Left out."""

    @property
    def all(self) -> tuple[Candidate, ...]:
        """In the order of the rows."""
        return (*self.feasible, *self.infeasible)


def shown(planned: Planned) -> Shown:
    """The best splits, the best one with borrowing among them, and some of those that cannot be."""
    plan = planned.plan
    feasible = [each for each in plan.candidates if each.feasible]
    infeasible = [each for each in plan.candidates if not each.feasible]
    kept = feasible[:MOST_FEASIBLE]
    if plan.best_borrowing is not None and plan.best_borrowing not in kept:
        kept = [*kept[:-1], plan.best_borrowing]
    return Shown(
        feasible=tuple(kept),
        infeasible=tuple(infeasible[:MOST_INFEASIBLE]),
        more_feasible=len(feasible) - len(kept),
        more_infeasible=max(0, len(infeasible) - MOST_INFEASIBLE),
    )


def split_of(each: Candidate) -> str:
    """ "12:4", rollout first."""
    return f"{each.rollout_devices}:{each.train_devices}"


def verdict(each: Candidate, planned: Planned) -> str:
    """ "best", "best with borrowing", both, or nothing."""
    plan = planned.plan
    named = ((BEST, plan.best), (BEST_BORROWING, plan.best_borrowing))
    return ", ".join(name for name, which in named if each == which)


def tokens_per_group(profile: Profile, group_size: int) -> float:
    """Prompt plus response tokens of a mean group, as throughput counts them."""
    return group_size * (profile.prompt_tokens + mean_response_tokens(profile.response_tokens))


def rows(planned: Planned, splits: Sequence[Candidate], group_size: int) -> list[dict[str, Any]]:
    """One row a split; figures that an infeasible one cannot have are None."""
    tokens = tokens_per_group(planned.known.profile, group_size)
    return [
        {
            "rollout:train": split_of(each),
            "verdict": f"no: {each.reason}" if each.reason else verdict(each, planned),
            "replicas": f"{each.rollout_replicas} + {each.train_replicas}" if each.feasible else DASH,
            "rollout, groups/s": each.rate_rollout,
            "train, groups/s": each.rate_train,
            "tokens/s": None if each.rate is None else each.rate * tokens,
            "step, s": each.step_s,
            "idle": None if each.idle_fraction is None else each.idle_fraction * 100,
            "step with borrowing, s": each.borrowing_step_s,
        }
        for each in splits
    ]


def twin(planned: Planned, splits: Sequence[Candidate], group_size: int) -> dict[str, list[Any]]:
    """The same as the table beside the chart, in the order of the chart."""
    columns = ("rollout:train", "tokens/s", "idle", "step, s", "step with borrowing, s")
    ordered = sorted(splits, key=lambda each: each.rollout_devices)
    found = [[row[name] for name in columns] for row in rows(planned, ordered, group_size)]
    return {"columns": ["rollout:train", "tokens/s", "idle, %", *columns[3:]], "rows": found}
