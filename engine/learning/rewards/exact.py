"""1 when the text is the answer, blanks around it aside; 0 otherwise."""

from __future__ import annotations

from engine.learning.rewards.reward import Question


def exact(question: Question, text: str) -> float:
    """Raises ValueError for an item whose answer is no text: nothing could ever equal it."""
    if not isinstance(question.answer, str):
        raise ValueError(f"the item's answer is {question.answer!r}, no text to compare with")
    return float(text.strip() == question.answer.strip())
