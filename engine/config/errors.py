"""What is wrong with a job, one line a problem: where, what was given, what would be allowed."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import Any

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from engine.config.allowed import Kind, allowed, branches, inside, kind_of

QUOTES = "; in quotes it is text"
"""Where YAML read something else than the text that belongs there, as it does for `Q: {prompt}`."""


class JobError(ValueError):
    """A job file, a `--set` or a form holds something that cannot be run.

    `problems` maps the dotted path of a key (or "" for the whole job) to one sentence, so that a form can show each
    sentence beside its field; `str(error)` is the same on one line.
    """

    def __init__(self, problems: dict[str, str], *, source: str = "job") -> None:
        self.problems = problems
        self.source = source
        super().__init__(problems, source)

    def __str__(self) -> str:
        return f"{self.source}: " + "; ".join(
            f"{path}: {sentence}" if path else sentence for path, sentence in self.problems.items()
        )

    def __reduce__(self) -> tuple[object, ...]:
        return (_rebuild, (self.problems, self.source))


def _rebuild(problems: dict[str, str], source: str) -> JobError:
    return JobError(problems, source=source)


def explain(error: ValidationError, model: type[BaseModel], *, source: str) -> JobError:
    """Turn pydantic's report into one sentence a path, naming the nearest known key for an unknown one."""
    problems: dict[str, str] = {}
    for item in error.errors():
        keys, known, kind = _locate(model, item["loc"])
        problems.setdefault(".".join(keys), _sentence(item, known, kind))
    # where something inside a mapping is wrong, that no other form of the value fits either says nothing more
    inner = {path: s for path, s in problems.items() if not any(other.startswith(f"{path}.") for other in problems)}
    return JobError(inner, source=source)


def _sentence(item: ErrorDetails, known: list[str], kind: Kind) -> str:
    if item["type"] == "extra_forbidden":
        return unknown_key(str(item["loc"][-1]), known)
    message = item["msg"].removeprefix("Value error, ")
    message = message[:1].lower() + message[1:]
    if item["type"] == "value_error":  # our own words, which name the value
        return message
    if item["type"] == "missing":
        return f"is required: {allowed(kind)}" if kind.known else "is required"
    if kind.known:
        message = f"must be {allowed(kind, finite=item['type'] == 'finite_number')}"
    given = item["input"]
    return f"{message}, got {written(given)}{QUOTES * _meant_as_text(given, kind)}"


def _meant_as_text(given: Any, kind: Kind) -> bool:
    """A text belongs there, and YAML read something else that does not."""
    scalar = isinstance(given, int | float) and not kind.takes_numbers
    return kind.takes_any_text and (scalar or isinstance(given, dict | list))


def written(value: Any) -> str:
    """A wrong value as a job file has it; what is no single value by its kind."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, str | int | float):
        return repr(value)
    return "a mapping" if isinstance(value, dict) else "a list" if isinstance(value, list) else type(value).__name__


def one_line(error: object, most: int = 300) -> str:
    """What another library says, without line breaks and at most so many characters of it."""
    return " ".join(str(error).split())[:most]


def unknown_key(key: str, known: Iterable[str], *, what: str = "key") -> str:
    """Name the nearest known key, or all of them when none is near. `what`: what such a key is called."""
    known = sorted(known)
    near = difflib.get_close_matches(key, known, n=1)
    hint = f"did you mean {near[0]!r}?" if near else f"known {what}s: {', '.join(known)}"
    return f"unknown {what} {key!r}; {hint}"


def _locate(model: type[BaseModel], place: tuple[int | str, ...]) -> tuple[list[str], list[str], Kind]:
    """The keys that lead to a place in a file, the keys known beside the last of them, and what stands there.

    Between keys pydantic names the branch of a union that it tried; nobody wrote that into a file.
    """
    here: Any = model
    keys: list[str] = []
    known: list[str] = []
    kind = Kind(type=model)
    for part in place:
        tried = branches(here)
        if len(tried) > 1:
            here = next((b for b in tried if str(part).startswith(getattr(b, "__name__", "?"))), None)
            continue
        here = tried[0]
        fields = here.model_fields if isinstance(here, type) and issubclass(here, BaseModel) else {}
        keys.append(str(part) if str(part).isprintable() else repr(part))
        known = list(fields)
        kind = kind_of(fields[str(part)]) if str(part) in fields else Kind(type=inside(here))
        here = kind.type
    return keys, known, kind
