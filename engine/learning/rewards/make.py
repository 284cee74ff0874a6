"""Who scores a job's answers: this process where nothing foreign is run, a process of its own otherwise."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from engine.config import TaskConfig
from engine.learning.rewards.process import ScoringProcess
from engine.learning.rewards.scoring import InlineScoring, Scoring
from engine.learning.rewards.spec import reward_spec


def make_scoring(config: TaskConfig, *, roots: Sequence[Path]) -> Scoring:
    """Close it when it is no longer needed. Raises ValueError when a function's file is not to be found."""
    spec = reward_spec(config, roots=roots)
    return InlineScoring(spec) if spec.harmless else ScoringProcess(spec)
