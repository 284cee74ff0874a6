"""1 when the text gives the number or formula that the answer gives, by the library math-verify; 0 otherwise.

Its own time limits are alarm signals, which work in no thread but a process's first: they are left out, and whoever
calls this has a deadline. Refuses a right answer that the library cannot read: nothing would ever equal it.
"""

from __future__ import annotations

from engine.learning.rewards.reward import Question


def math_verify(question: Question, text: str) -> float:
    """Raises ValueError when the right answer is not a number or formula."""
    from math_verify import parse, verify  # optional, and a second of imports

    right = parse(str(question.answer), parsing_timeout=None)
    if not right:
        raise ValueError(f"the right answer {question.answer!r} is neither a number nor a formula to math-verify")
    return float(verify(right, parse(text, parsing_timeout=None), timeout_seconds=None))
