"""Questions and how answers to them are scored; a reward is 1 or 0, and a scorer that fails is a failure, not a 0.

Items are made when asked for, from a seed: nothing is downloaded and nothing is kept. No training item has the question
of a held-out one.
"""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Protocol

import reasoning_gym
from reasoning_gym.factory import DATASETS

from engine.config import Job, JobError, TaskConfig

HELD_OUT_SEED = 987_654_321
"""Held-out items do not depend on the run's seed, so that accuracies of different runs compare."""

SEED_STRIDE = 1_000_003
"""A data set seeds item i with seed + i: runs whose seeds differ by 1 must not share their items, shifted by one."""

SEED_LIMIT = 2**30
"""Some data sets hand their seed to numpy, which takes 32 bits; this leaves room for the item's index."""

REDRAWS = 64
"""Tries to find a training item outside of the held-out set: where half of them succeed, all fail once in 2^64."""

HELD_OUT_DRAWS = 4
"""Draws per held-out item: one and a half suffice on average where no more than half of all questions are held out."""

PROBES = 64
"""Training items looked at when a task is made: enough to tell a data set that is mostly held out."""


class RewardFailed(RuntimeError):
    """A scorer raised on an answer, so that the group has no reward. Survives pickling."""

    def __init__(self, item: int, text: str, reason: str) -> None:
        self.item = item
        self.text = text
        self.reason = reason
        super().__init__(item, text, reason)

    def __str__(self) -> str:
        return f"the scorer failed on item {self.item} and the answer {self.text[:200]!r}: {self.reason}"


class Task(Protocol):
    @property
    def size(self) -> int:
        """Training items, numbered from 0."""

    @property
    def held_out(self) -> int:
        """Held-out items, numbered from -1 downwards, so that one index names either kind."""

    def prompt(self, item: int) -> str:
        """The question."""

    def score(self, item: int, text: str) -> float:
        """1.0 or 0.0. Raises RewardFailed when the scorer does."""


def check_task(job: Job, *, source: str = "job") -> None:
    """Raise JobError when the job's task cannot be made: an unknown data set, parameters it refuses, too few items."""
    try:
        ReasoningGymTask(job.task, seed=job.seed, held_out_items=job.eval.items)
    except ValueError as error:
        path, _, sentence = str(error).partition(": ")
        raise JobError({path: sentence}, source=source) from None


class ReasoningGymTask:
    """A data set of reasoning-gym, scored by itself (`scorer`) or by equality with its answer (`exact`)."""

    def __init__(self, config: TaskConfig, *, seed: int, held_out_items: int) -> None:
        """Raises ValueError for an unknown data set, parameters it refuses, or too few different questions."""
        self._config = config
        self._name = config.source.partition(":")[2]
        if self._name not in DATASETS:
            near = difflib.get_close_matches(self._name, DATASETS, n=3) or sorted(DATASETS)
            raise ValueError(f"task.source: unknown data set {self._name!r}; known, among others: {', '.join(near)}")
        self._data = self._create((1 + seed * SEED_STRIDE) % SEED_LIMIT, config.items * REDRAWS)
        self._held_out = self._make_held_out(held_out_items)
        self._held_out_questions = frozenset(entry["question"] for entry in self._held_out)
        self._entry = lru_cache(maxsize=1024)(self._make_entry)
        self._check_enough_questions()

    @property
    def size(self) -> int:
        return self._config.items

    @property
    def held_out(self) -> int:
        return len(self._held_out)

    def entry(self, item: int) -> dict[str, Any]:
        """The data set's own record: question, answer, metadata."""
        return self._held_out[-1 - item] if item < 0 else self._entry(item)

    def prompt(self, item: int) -> str:
        return str(self.entry(item)["question"])

    def score(self, item: int, text: str) -> float:
        given = text
        if self._config.answer_after is not None:
            if text.count(self._config.answer_after) != 1:
                return 0.0
            given = text.partition(self._config.answer_after)[2]
        entry, given = self.entry(item), given.strip()
        if self._config.reward == "exact":
            return float(given == entry["answer"])
        try:
            score = float(self._data.score_answer(given, entry))
        except Exception as error:  # a scorer is foreign code that sees whatever a model writes
            raise RewardFailed(item, text, f"{type(error).__name__}: {error}") from error
        return float(score >= 1.0)

    def _create(self, seed: int, size: int) -> Any:
        try:
            return reasoning_gym.create_dataset(self._name, seed=seed, size=size, **self._config.params)
        except (TypeError, ValueError, AssertionError) as error:
            fields = ", ".join(sorted(set(DATASETS[self._name][1].__dataclass_fields__) - {"seed", "size"}))
            raise ValueError(
                f"task.params {dict(self._config.params)}: data set {self._name!r} refuses them ({error}); "
                f"its parameters: {fields}"
            ) from error

    def _make_held_out(self, count: int) -> Sequence[dict[str, Any]]:
        draws = HELD_OUT_DRAWS * count + PROBES
        data = self._create(HELD_OUT_SEED, draws)
        entries: dict[str, dict[str, Any]] = {}
        for index in range(draws):
            if len(entries) == count:
                break
            entry = data[index]
            entries.setdefault(entry["question"], entry)
        if len(entries) < count:
            raise ValueError(
                f"eval.items {count}: {draws} draws from data set {self._name!r} have only {len(entries)} different "
                f"questions; allowed: at most half of them, {len(entries) // 2}"
            )
        return list(entries.values())

    def _make_entry(self, item: int) -> dict[str, Any]:
        if item >= self.size:
            raise IndexError(f"item {item} of a task of {self.size}")
        for attempt in range(REDRAWS):
            entry = self._data[item + attempt * self.size]
            if entry["question"] not in self._held_out_questions:
                return dict(entry)
        raise RuntimeError(f"{REDRAWS} draws for item {item} of data set {self._name!r} all have a held-out question")

    def _check_enough_questions(self) -> None:
        draws = [self._data[index]["question"] for index in range(min(PROBES, self.size))]
        taken = sum(question in self._held_out_questions for question in draws)
        if 2 * taken > len(draws):
            raise ValueError(
                f"eval.items {self.held_out} hold out {taken} of {len(draws)} questions drawn from data set "
                f"{self._name!r}; allowed: so few that most questions are left to train on"
            )
