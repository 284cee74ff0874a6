"""Items that are read from a file, part of them held out: by another file, or by a hash of their prompts.

Refuses, naming file, line and field: prompts that are no text or come twice, answers that are neither text nor a
number, empty ones, and too few rows. A training row whose prompt is held out is left out, and said so.
"""

from __future__ import annotations

import datetime
import decimal
import hashlib
import json
import math
import re
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from engine.config import TaskConfig
from engine.learning.tasks.rows import Row, Rows, read_rows
from engine.learning.tasks.task import HELD_OUT_SEED, asked

PROMPT_FIELDS = ("question", "prompt")
"""Where a prompt is looked for when the job does not say, in this order."""

NAMED_REPEATS = 5
"""Rows with the prompt of an earlier one that a message names before it counts the rest."""

LAST_LINE = re.compile(r"(?:^|\n)#### *\$?([-+]?[\d,]*\.?\d+)\s*$")
"""How GSM8K ends the way to an answer: a line of its own with the number alone."""


class FileTask:
    """Rows of `jsonl:PATH`, `parquet:PATH` or `hf:NAME`. See `engine.learning.tasks.task.Task`."""

    def __init__(self, config: TaskConfig, *, roots: Sequence[Path], held_out_items: int) -> None:
        """Raises ValueError, as "place: sentence", for files that do not hold what they must."""
        self._config = config
        rows = read_rows(config.source, params=config.params, roots=roots, key="task.source")
        entries, places = _entries(rows, config, "task.source")
        if config.held_out is None:
            training, held_out = _split(entries, held_out_items, rows.name)
            out_of_sight = {entry["question"] for entry in held_out}
        else:
            params = {} if not config.held_out.startswith("hf:") else _of_the_other(config.params)
            others = read_rows(config.held_out, params=params, roots=roots, key="task.held_out")
            all_held_out, places_of_others = _entries(others, config, "task.held_out")
            places |= places_of_others  # no item has both: those of the source that these repeat are left out
            held_out = _chosen(all_held_out, held_out_items, others.name)
            out_of_sight = {entry["question"] for entry in all_held_out}
            training = [entry for entry in entries if entry["question"] not in out_of_sight]
        self._training = _as_many(training, config.items, rows.name)
        self._held_out = held_out
        self._places = places
        left_out = sum(entry["question"] in out_of_sight for entry in entries)
        self.notes: tuple[str, ...] = (
            f"{rows.name}: {len(entries)} rows; {len(self._training)} to train on, {len(held_out)} held out"
            + (f", {left_out} left out since {config.held_out} has their prompt." if config.held_out else "."),
        )
        self.sha256 = _sha256([*self._training, *held_out])
        if config.sha256 == _sha256_of_two([*self._training, *held_out]):
            self.sha256 = config.sha256
            self.notes += (f"{rows.name}: task.sha256 is an older one, that covers prompts and answers alone.",)
        if config.sha256 is not None and config.sha256 != self.sha256:
            raise ValueError(
                f"task.sha256: {rows.name}: says something else than when the run was launched; allowed: the same "
                "rows, or for a new run of what it says now null, and task.items null too"
            )

    @property
    def size(self) -> int:
        return len(self._training)

    @property
    def held_out(self) -> int:
        return len(self._held_out)

    def entry(self, item: int) -> Mapping[str, Any]:
        return self._held_out[-1 - item] if item < 0 else self._training[item]

    def prompt(self, item: int) -> str:
        return asked(str(self.entry(item)["question"]), self._config.prompt_template)

    def place(self, item: int) -> str:
        return self._places[self.entry(item)["question"]]


def final_answer(text: str) -> str:
    """The answer, without the way to it where the text ends in a line `#### N`."""
    found = LAST_LINE.search(text)
    return found[1].replace(",", "") if found else text.strip()


def _entries(rows: Rows, config: TaskConfig, key: str) -> tuple[list[Mapping[str, Any]], dict[str, str]]:
    """Question, answer and metadata of each row, no two with one question; and each question's place."""
    seen: dict[str, str] = {}
    again: list[tuple[str, str, str]] = []
    found: list[Mapping[str, Any]] = []
    for row in rows.rows:
        where = f"{key}: {rows.name}, {row.place}"
        prompt_field = _prompt_field(row, config.prompt_field, where)
        question = _prompt(row, prompt_field, where)
        if question in seen:
            again.append((row.place, seen[question], question))
            continue
        seen[question] = row.place
        answer = _answer(row, config.answer_field, where)
        others = {name: v for name, v in row.values.items() if name not in (prompt_field, config.answer_field)}
        found.append({"question": question, "answer": answer, "metadata": others})
    if again:
        raise ValueError(f"{key}: {rows.name}: {_repeated(again)}; allowed: each prompt once")
    return found, {question: f"{rows.name}, {place}" for question, place in seen.items()}


def _repeated(again: Sequence[tuple[str, str, str]]) -> str:
    """How many rows repeat a prompt, and the first of them. again: place of the row, of the first with its prompt, and
    the prompt."""
    named = "; ".join(f"{place} that of {first}, {prompt[:60]!r}" for place, first, prompt in again[:NAMED_REPEATS])
    more = f"; and {len(again) - NAMED_REPEATS:,} more" if len(again) > NAMED_REPEATS else ""
    rows = f"{len(again):,} rows have the prompt of an earlier one" if len(again) > 1 else "1 row has an earlier prompt"
    return f"{rows}: {named}{more}"


def _prompt_field(row: Row, named: str | None, where: str) -> str:
    wanted = PROMPT_FIELDS if named is None else (named,)
    found = next((name for name in wanted if name in row.values), None)
    if found is None:
        raise ValueError(_missing(row, " or ".join(map(repr, wanted)), "task.prompt_field", where))
    return found


def _prompt(row: Row, field: str, where: str) -> str:
    value = row.values[field]
    if not isinstance(value, str):
        raise ValueError(f"{where}, field {field!r}: must be text, got {type(value).__name__} {str(value)[:60]!r}")
    if not value.strip():
        raise ValueError(f"{where}, field {field!r}: is empty; allowed: some text")
    return _whole(value, f"{where}, field {field!r}")


def _answer(row: Row, field: str, where: str) -> str:
    if field not in row.values:
        raise ValueError(_missing(row, repr(field), "task.answer_field", where))
    value = row.values[field]
    place = f"{where}, field {field!r}"
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise ValueError(f"{place}: must be text or a number, got {type(value).__name__} {str(value)[:60]!r}")
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"{place}: must be a finite number, got {value}")
    answer = final_answer(str(value))
    if not answer:
        raise ValueError(f"{place}: is empty; allowed: some text or a number")
    return _whole(answer, place)


def _whole(text: str, place: str) -> str:
    """JSON can write half of a character, which no tokenizer takes."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise ValueError(f"{place}: holds half a character, {text[error.start]!r}; allowed: whole ones") from None
    return text


def _missing(row: Row, wanted: str, key: str, where: str) -> str:
    there = ", ".join(sorted(map(str, row.values))) or "none"
    return f"{where}: has no field {wanted}; its fields: {there}; name another in {key}"


def _split(
    entries: Sequence[Mapping[str, Any]], count: int, name: str
) -> tuple[list[Mapping[str, Any]], list[Mapping[str, Any]]]:
    """Training and held-out rows: as many held out as asked for, those whose prompts hash lowest."""
    if 2 * count > len(entries):
        raise ValueError(
            f"eval.items: {count} of the {len(entries)} rows of {name} would be held out; allowed: at most half of "
            f"them, {len(entries) // 2}, or a file of their own in task.held_out"
        )
    held_out = _chosen(entries, count, name)
    prompts = {entry["question"] for entry in held_out}
    return [entry for entry in entries if entry["question"] not in prompts], held_out


def _chosen(entries: Sequence[Mapping[str, Any]], count: int, name: str) -> list[Mapping[str, Any]]:
    """The `count` rows whose prompts hash lowest: a sample that depends on nothing but the rows."""
    if count > len(entries):
        raise ValueError(f"eval.items: {count} are asked for and {name} has {len(entries)}; allowed: up to that")
    return sorted(entries, key=lambda entry: hashlib.sha256(f"{HELD_OUT_SEED}\0{entry['question']}".encode()).digest())[
        :count
    ]


def _as_many(entries: list[Mapping[str, Any]], wanted: int | None, name: str) -> list[Mapping[str, Any]]:
    if not entries:
        raise ValueError(f"task.source: {name}: every row's prompt is held out; allowed: at least one to train on")
    if wanted is not None and wanted > len(entries):
        raise ValueError(
            f"task.items: {wanted} are asked for and {name} has {len(entries)} rows that are not held out; allowed: up "
            "to that, or null for all"
        )
    return entries[:wanted]


def _of_the_other(params: Mapping[str, Any]) -> Mapping[str, Any]:
    """Parameters for a held-out data set: another split's name would be a third place to say it, so its own default."""
    return {name: value for name, value in params.items() if name != "split"} | {"split": "test"}


def _sha256(entries: Sequence[Mapping[str, Any]]) -> str:
    """Of all that a reward is told of an item, its other fields too."""
    digest = hashlib.sha256()
    for entry in entries:
        said = [entry["question"], entry["answer"], _plain(entry["metadata"])]
        digest.update(json.dumps(said, sort_keys=True).encode())
    return digest.hexdigest()


def _sha256_of_two(entries: Sequence[Mapping[str, Any]]) -> str:
    """As it was made before it covered all fields: runs of then can be resumed."""
    digest = hashlib.sha256()
    for entry in entries:
        digest.update(json.dumps([entry["question"], entry["answer"]]).encode())
    return digest.hexdigest()


def _plain(value: Any) -> Any:
    """A field's value as JSON has it. What a library brings as an object of its own, such as a picture, is told by its
    class alone, since the next process may say it otherwise."""
    match value:
        case None | bool() | int() | float() | str():
            return value
        case Mapping():
            return {str(name): _plain(inner) for name, inner in value.items()}
        case list() | tuple():
            return [_plain(inner) for inner in value]
        case bytes():
            return value.hex()
        case datetime.date() | datetime.time() | datetime.timedelta() | decimal.Decimal() | uuid.UUID():
            return str(value)
    return type(value).__qualname__
