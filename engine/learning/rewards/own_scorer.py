"""1 when a data set's own scorer gives all there is, 1.0; the crumbs that some give for garbage are nothing."""

from __future__ import annotations

from typing import Any

from engine.learning.rewards.reward import Question, as_number

FULL_MARKS = 1.0


class OwnScorer:
    """The scorer of one data set of reasoning-gym."""

    def __init__(self, data: Any) -> None:
        self._data = data

    def __call__(self, question: Question, text: str) -> float:
        return float(as_number(self._data.score_answer(text.strip(), question.entry)) >= FULL_MARKS)
