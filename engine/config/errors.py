"""What is wrong with a job, one line a problem: where, what was given, what would be allowed."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails


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
        path = ".".join(str(part) for part in item["loc"])
        problems.setdefault(path, _sentence(item, model))
    return JobError(problems, source=source)


def _sentence(item: ErrorDetails, model: type[BaseModel]) -> str:
    if item["type"] == "extra_forbidden":
        return unknown_key(str(item["loc"][-1]), _known_keys(model, item["loc"][:-1]))
    message = item["msg"].removeprefix("Value error, ")
    message = message[:1].lower() + message[1:]
    given = item["input"]
    shown = repr(given) if isinstance(given, str | int | float | bool | type(None)) else type(given).__name__
    if item["type"] == "missing":
        return "is required"
    if item["type"] == "value_error" and shown in message:
        return message
    return f"{message}, got {shown}"


def unknown_key(key: str, known: Iterable[str]) -> str:
    """Name the nearest known key, or all of them when none is near."""
    known = sorted(known)
    near = difflib.get_close_matches(key, known, n=1)
    hint = f"did you mean {near[0]!r}?" if near else f"known keys: {', '.join(known)}"
    return f"unknown key {key!r}; {hint}"


def _known_keys(model: type[BaseModel], path: tuple[int | str, ...]) -> list[str]:
    current: type[BaseModel] | None = model
    for part in path:
        if current is None or part not in current.model_fields:
            return []
        annotation = current.model_fields[str(part)].annotation
        candidates = [annotation, *getattr(annotation, "__args__", ())]
        current = next((c for c in candidates if isinstance(c, type) and issubclass(c, BaseModel)), None)
    return list(current.model_fields) if current else []
