"""All rewards of a job together, in this process: no deadline here, that is whoever's runs it."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from engine.learning.rewards.exact import exact
from engine.learning.rewards.mathematical import math_verify
from engine.learning.rewards.own_scorer import OwnScorer
from engine.learning.rewards.python_function import PythonFunction
from engine.learning.rewards.reward import FAILED, NoReward, Question, Reward, RewardFailed, as_number
from engine.learning.rewards.spec import RewardSpec

PROBE_SEED, PROBE_SIZE = 1, 1
"""Of the data set that only its scorer is asked of: which items it would make does not matter."""

Values = Mapping[str, float]
"""Reward -> what an answer earned by it, before weights."""


class Judge:
    """Scores one answer at a time."""

    def __init__(self, spec: RewardSpec) -> None:
        """Raises whatever a module of the user's raises, and ImportError without a library that is needed."""
        self._spec = spec
        self._rewards = {name: _reward(name, spec) for name in spec.weights}

    def __call__(self, question: Question, text: str, *, only: str | None = None) -> Values:
        """What each reward gives, or only the one of that name. Raises RewardFailed for the first that gives none."""
        given = part_to_score(text, self._spec.answer_after)
        values = {}
        for name, reward in self._rewards.items():
            if only is not None and name != only:
                continue
            whole = name in self._spec.files
            if given is None and not whole:
                values[name] = 0.0
            else:
                values[name] = _value(name, reward, question, text if whole or given is None else given)
        return values


def part_to_score(text: str, answer_after: str | None) -> str | None:
    """What follows the single marker; None where there is none, or more than one. Without a marker, all of it."""
    if answer_after is None:
        return text
    return text.partition(answer_after)[2] if text.count(answer_after) == 1 else None


def total(values: Values, weights: Mapping[str, float]) -> float:
    """What an answer earns: the sum of weight x reward."""
    return sum(weight * values[name] for name, weight in weights.items())


def _value(name: str, reward: Reward, question: Question, text: str) -> float:
    try:
        return as_number(reward(question, text))
    except NoReward as error:
        raise RewardFailed(error.reason, name, question.item, text, str(error)) from None
    except (Exception, SystemExit) as error:  # foreign code that sees whatever a model writes
        raise RewardFailed(FAILED, name, question.item, text, f"{type(error).__name__}: {error}") from error


def _reward(name: str, spec: RewardSpec) -> Reward:
    if name in spec.files:
        return PythonFunction(*spec.files[name])
    if name == "exact":
        return exact
    if name == "math_verify":
        import math_verify as library  # now, not within the first answer's deadline

        # it warns that its own time limits are off; ours is on
        logging.getLogger(library.__name__).setLevel(logging.ERROR)
        return math_verify
    import reasoning_gym  # a second of imports, where it is needed

    data = reasoning_gym.create_dataset(spec.data_set, seed=PROBE_SEED, size=PROBE_SIZE, **spec.params)
    return OwnScorer(data)
