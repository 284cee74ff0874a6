"""A reward beside the job that uses it: whether an answer ends as it was asked to, whatever the number."""

import re

ENDING = re.compile(r"####\s*-?[\d,.]+\s*$")


def ends_as_asked(*, prompt: str, response: str, answer: str, fields: dict) -> float:
    """1 for an answer whose last line is `#### N`."""
    return float(ENDING.search(response) is not None)
