"""Which rewards a job asks for, as plain data: what a scoring process is started with."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from engine.config import TaskConfig
from engine.config.task import OWN_SCORER
from engine.learning.rewards.python_function import file_of


@dataclass(frozen=True, slots=True, kw_only=True)
class RewardSpec:
    """All rewards of a job."""

    weights: Mapping[str, float]
    """Reward -> its weight, in the job's order."""
    answer_after: str | None
    """What is scored follows the single occurrence of this text; None: everything is scored."""
    files: Mapping[str, tuple[Path, str]]
    """Reward -> file and function, for those that are the user's own."""
    data_set: str | None
    """Of reasoning-gym, whose own scorer is asked for."""
    params: Mapping[str, Any]
    """Keyword arguments of that data set."""
    deadline_s: float
    """Longest that scoring one answer may take, seconds."""

    @property
    def several(self) -> bool:
        """The job lists them, so that each one's mean is of interest."""
        return len(self.weights) > 1

    @property
    def harmless(self) -> bool:
        """Nothing foreign is run: it can neither raise nor hang, and needs no process of its own."""
        return set(self.weights) == {"exact"}


def reward_spec(config: TaskConfig, *, roots: Sequence[Path]) -> RewardSpec:
    """Raises ValueError when a function's file is not to be found in the roots."""
    names = [reward.name for reward in config.scored_by]
    own = OWN_SCORER in names
    return RewardSpec(
        weights={reward.name: reward.weight for reward in config.scored_by},
        answer_after=config.answer_after,
        files={name: file_of(name, roots) for name in names if name.startswith("python:")},
        data_set=config.source.partition(":")[2] if own else None,
        params=dict(config.params) if own else {},
        deadline_s=config.reward_deadline_s,
    )


def check_rewards(config: TaskConfig, *, roots: Sequence[Path]) -> None:
    """Raises ValueError, as "place: sentence", for a reward that cannot be had here. Runs nothing of the user's."""
    key = "task.rewards" if config.rewards else "task.reward"
    try:
        spec = reward_spec(config, roots=roots)
    except ValueError as error:
        raise ValueError(f"{key}: {error}") from None
    if "math_verify" in spec.weights and importlib.util.find_spec("math_verify") is None:
        raise ValueError(
            f"{key}: math_verify needs the library math-verify, which is not installed; install it with pip install "
            "math-verify==0.9.0"
        )
