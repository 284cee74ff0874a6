"""What a worker needs of whoever scores: hand groups in, fetch verdicts, and never wait longer than one asks to.

Two of them: `InlineScoring` for what can neither hang nor raise foreign things, `ScoringProcess` (its own file) for the
rest. One thread owns a scoring and calls everything on it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from engine.learning.rewards.judge import Judge, Values, total
from engine.learning.rewards.reward import TIMED_OUT, NoReward, Question, RewardFailed, as_number
from engine.learning.rewards.spec import RewardSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class Answers:
    """What is to be scored together: it has a reward for each answer, or none at all."""

    key: int
    """Of whoever hands it in; unique among what is pending."""
    question: Question
    """What the answers are to."""
    texts: tuple[str, ...]
    """The answers."""
    only: str | None = None
    """Score by this reward alone; None: by all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The answers' rewards, or why they have none."""

    key: int
    values: tuple[Values, ...] = ()
    """For each answer what each reward gave; empty after a failure."""
    failure: RewardFailed | None = None

    def totals(self, weights: Mapping[str, float]) -> list[float]:
        """What each answer earns. Raises RewardFailed for a failure, and for a sum that is no reward itself."""
        if self.failure is not None:
            raise self.failure
        found = [total(values, weights) for values in self.values]
        for value, values in zip(found, self.values, strict=True):
            try:
                as_number(value)
            except NoReward as error:
                detail = f"{error}; it is the sum for {dict(values)}"
                raise RewardFailed(error.reason, "the weighted sum", self.key, "", detail) from None
        return found


class Scoring(Protocol):
    @property
    def pending(self) -> int:
        """Answers handed in whose verdict was not fetched."""

    def wait_ready(self, each: Callable[[], None]) -> None:
        """Return when answers can be scored; `each` is called now and then meanwhile.

        Raises RuntimeError when they never can be: a module that does not load, a library that is missing.
        """

    def submit(self, answers: Answers) -> None:
        """Take them in; returns at once."""

    def collect(self, wait_s: float = 0.0) -> list[Verdict]:
        """The verdicts that are there; waits at most so long for a first one."""

    def withdraw(self) -> list[int]:
        """Forget all that is pending; returns the keys."""

    def close(self) -> None:
        """End what was started; nothing may be asked afterwards."""


class InlineScoring:
    """Scores as it is handed in."""

    def __init__(self, spec: RewardSpec) -> None:
        self._judge = Judge(spec)
        self._verdicts: list[Verdict] = []

    @property
    def pending(self) -> int:
        return len(self._verdicts)

    def wait_ready(self, each: Callable[[], None]) -> None:
        pass

    def submit(self, answers: Answers) -> None:
        self._verdicts.append(judged(self._judge, answers))

    def collect(self, wait_s: float = 0.0) -> list[Verdict]:
        found, self._verdicts = self._verdicts, []
        return found

    def withdraw(self) -> list[int]:
        return [verdict.key for verdict in self.collect()]

    def close(self) -> None:
        pass


def judged(judge: Judge, answers: Answers) -> Verdict:
    """The verdict, made here and now."""
    try:
        values = tuple(judge(answers.question, text, only=answers.only) for text in answers.texts)
    except RewardFailed as failure:
        return Verdict(key=answers.key, failure=failure)
    return Verdict(key=answers.key, values=values)


def score_all(scoring: Scoring, answers: Sequence[Answers], *, most_timeouts: int) -> list[Verdict]:
    """All verdicts in the order of the answers, waiting for them; whoever scores has deadlines of its own.

    After `most_timeouts` answers that took too long the others are left unscored, as failures that say so: each may
    cost a whole deadline. Nothing else may be pending.
    """
    assert not scoring.pending, f"{scoring.pending} answers of somebody else are pending"
    found: dict[int, Verdict] = {}
    for one in answers:
        scoring.submit(one)
    timeouts = 0
    while scoring.pending:
        for verdict in scoring.collect(POLL_S):
            found[verdict.key] = verdict
            timeouts += verdict.failure is not None and verdict.failure.reason == TIMED_OUT
        if timeouts >= most_timeouts:
            for key in scoring.withdraw():
                text = f"not tried: {timeouts} answers before it took too long"
                found[key] = Verdict(key=key, failure=RewardFailed(TIMED_OUT, "scoring", key, "", text))
    return [found[one.key] for one in answers]


POLL_S = 0.5
"""Longest single wait in a loop that goes on until all is there."""
