"""Items of reasoning-gym, made when asked for, from a seed: nothing is downloaded and nothing is kept.

No training item has the question of a held-out one.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import reasoning_gym
from reasoning_gym.factory import DATASETS

from engine.config import TaskConfig
from engine.learning.tasks.task import HELD_OUT_SEED, asked

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


KINDS: Mapping[Any, tuple[str, tuple[type, ...]]] = {
    bool: ("true or false", (bool,)),
    int: ("a number", (int, float)),
    float: ("a number", (int, float)),
    str: ("text", (str,)),
}
"""Type of a parameter -> what it must be, and the types that this comes in; what is not here may be anything."""

OURS = {"seed": "seed", "size": "task.items"}
"""Parameters of every data set that the engine gives -> where the job says them."""


class ReasoningGymTask:
    """A data set of reasoning-gym. See `engine.learning.tasks.task.Task`."""

    sha256 = None
    notes = ()

    def __init__(self, config: TaskConfig, *, seed: int, held_out_items: int) -> None:
        """Raises ValueError for an unknown data set, parameters it refuses, or too few different questions."""
        self._config = config
        self._name = config.source.partition(":")[2]
        if self._name not in DATASETS:
            near = difflib.get_close_matches(self._name, DATASETS, n=3) or sorted(DATASETS)
            raise ValueError(f"task.source: unknown data set {self._name!r}; known, among others: {', '.join(near)}")
        self._data = self._create((1 + seed * SEED_STRIDE) % SEED_LIMIT, config.size * REDRAWS)
        self._held_out = self._make_held_out(held_out_items)
        self._held_out_questions = frozenset(entry["question"] for entry in self._held_out)
        self._entry = lru_cache(maxsize=1024)(self._make_entry)
        self._check_enough_questions()

    @property
    def size(self) -> int:
        return self._config.size

    @property
    def held_out(self) -> int:
        return len(self._held_out)

    def entry(self, item: int) -> dict[str, Any]:
        """The data set's own record: question, answer, metadata."""
        return self._held_out[-1 - item] if item < 0 else self._entry(item)

    def prompt(self, item: int) -> str:
        return asked(str(self.entry(item)["question"]), self._config.prompt_template)

    def place(self, item: int) -> str:
        return f"{self._config.source}, {'held-out ' if item < 0 else ''}item {-1 - item if item < 0 else item}"

    def _create(self, seed: int, size: int) -> Any:
        _check_params(self._name, self._config.params)
        try:
            data = reasoning_gym.create_dataset(self._name, seed=seed, size=size, **self._config.params)
            data[0]  # some find a fault in them only when they make an item
            return data
        except Exception as error:  # a data set may raise anything
            raise ValueError(
                f"task.params {dict(self._config.params)}: data set {self._name!r} refuses them ({error}); "
                f"its parameters: {', '.join(sorted(_parameters(self._name)))}"
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


def _parameters(name: str) -> dict[str, Any]:
    """Parameter of a data set -> its type, of those that a job may give."""
    fields = DATASETS[name][1].__dataclass_fields__
    return {key: field.type for key, field in fields.items() if key not in OURS}


def _check_params(name: str, params: Mapping[str, Any]) -> None:
    """Raises ValueError for a parameter that is the engine's, that the data set lacks, or that is plainly of another
    type; what else it refuses it says itself."""
    known = _parameters(name)
    allowed = f"its parameters: {', '.join(sorted(known))}"
    ours = [f"{key} (from {OURS[key]})" for key in params if key in OURS]
    if ours:
        are = "is" if len(ours) == 1 else "are"
        raise ValueError(f"task.params: {', '.join(ours)} {are} given by the engine; data set {name!r}, {allowed}")
    for key, value in params.items():
        if key not in known:
            raise ValueError(f"task.params: data set {name!r} has no {key!r}; {allowed}")
        kind, types = KINDS.get(known[key], ("", (object,)))
        if not isinstance(value, types) or (isinstance(value, bool) and bool not in types and object not in types):
            raise ValueError(f"task.params: {key} of data set {name!r} must be {kind}, got {value!r}")
