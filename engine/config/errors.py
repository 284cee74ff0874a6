"""What is wrong with a job, one line a problem: where, what was given, what would be allowed."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin

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
        keys, known = _locate(model, item["loc"])
        problems.setdefault(".".join(keys), _sentence(item, known))
    # where something inside a mapping is wrong, that no other form of the value fits either says nothing more
    inner = {path: s for path, s in problems.items() if not any(other.startswith(f"{path}.") for other in problems)}
    return JobError(inner, source=source)


def _sentence(item: ErrorDetails, known: list[str]) -> str:
    if item["type"] == "extra_forbidden":
        return unknown_key(str(item["loc"][-1]), known)
    if item["type"] == "missing":
        return "is required"
    if item["type"] in ("model_type", "dict_type"):
        message = "must be a mapping of keys"
    else:
        message = item["msg"].removeprefix("Value error, ")
        message = message[:1].lower() + message[1:]
    if item["type"] == "value_error":  # our own words, which name the value
        return message
    given = item["input"]
    shown = repr(given) if isinstance(given, str | int | float | bool | type(None)) else type(given).__name__
    return f"{message}, got {shown}"


def unknown_key(key: str, known: Iterable[str], *, what: str = "key") -> str:
    """Name the nearest known key, or all of them when none is near. `what`: what such a key is called."""
    known = sorted(known)
    near = difflib.get_close_matches(key, known, n=1)
    hint = f"did you mean {near[0]!r}?" if near else f"known {what}s: {', '.join(known)}"
    return f"unknown {what} {key!r}; {hint}"


def _locate(model: type[BaseModel], place: tuple[int | str, ...]) -> tuple[list[str], list[str]]:
    """The keys that lead to a place in a file, and the keys known beside the last of them.

    Between keys pydantic names the branch of a union that it tried; nobody wrote that into a file.
    """
    here: Any = model
    keys: list[str] = []
    known: list[str] = []
    for part in place:
        branches = [branch for branch in get_args(here) if branch is not NoneType] if _is_union(here) else [here]
        if len(branches) > 1:
            here = next((b for b in branches if str(part).startswith(getattr(b, "__name__", "?"))), None)
            continue
        here = branches[0]
        fields = here.model_fields if isinstance(here, type) and issubclass(here, BaseModel) else {}
        keys.append(str(part) if str(part).isprintable() else repr(part))
        known = list(fields)
        inside = get_args(here)[-1:] or (None,)
        here = fields[str(part)].annotation if str(part) in fields else inside[0]
    return keys, known


def _is_union(annotation: Any) -> bool:
    return get_origin(annotation) in (Union, UnionType)
