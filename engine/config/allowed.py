"""What a key of a job may say, in words, read off its type and its bounds: so that no message can forget it. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import annotated_types
from pydantic import BaseModel
from pydantic.fields import FieldInfo

MOST_KEYS = 6
"""Of a section that a message names: enough to recognise it."""


@dataclass(frozen=True, slots=True)
class Words:
    """Beside the type of a text: the only ones that it may be. `Strict` refuses others."""

    words: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Told:
    """Beside the type of a text with a pattern: what that allows, for people."""

    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """What stands at a place of a job."""

    type: Any
    """As annotated, without the marks; None where nothing is known."""
    marks: tuple[Any, ...] = ()
    """Bounds, `Words`, `Told`."""

    @property
    def known(self) -> bool:
        return self.type is not None and self.type is not Any

    @property
    def takes_any_text(self) -> bool:
        """Words of a list of their own do not count, nor do those that have a form."""
        closed = any(isinstance(mark, Words) for mark in self.marks)
        return not closed and any(_bare(part).type is str for part in branches(self.type))

    @property
    def takes_numbers(self) -> bool:
        return any(_bare(part).type in (int, float, bool) for part in branches(self.type))


def kind_of(field: FieldInfo) -> Kind:
    """Of a model's field."""
    return Kind(type=field.annotation, marks=_flat(field.metadata))


def branches(annotation: Any) -> tuple[Any, ...]:
    """What a union may be, null left out; anything else is its only branch."""
    if get_origin(annotation) in (Union, UnionType):
        return tuple(part for part in get_args(annotation) if part is not NoneType)
    return (annotation,)


def inside(annotation: Any) -> Any:
    """What the items of a list or the values of a mapping are; None where there are none."""
    return (get_args(annotation)[-1:] or (None,))[0]


def kind_at(model: type[BaseModel], keys: Sequence[str]) -> Kind:
    """What stands at a dotted path; a kind that is not known where the path leads nowhere."""
    found = Kind(type=model)
    for key in keys:
        bare = [_bare(part) for part in branches(found.type)]
        models = [part.type for part in bare if _is_model(part.type)]
        fields: dict[str, FieldInfo] = next((each.model_fields for each in models if key in each.model_fields), {})
        mapping = next((part.type for part in bare if get_origin(part.type) is dict), None)
        found = kind_of(fields[key]) if key in fields else Kind(type=inside(mapping))
    return found


def allowed(kind: Kind, *, finite: bool = False) -> str:
    """What may stand there, to be read after "must be". finite: say so of numbers."""
    kind = _bare(kind.type, kind.marks)
    parts = branches(kind.type)
    nullable = len(parts) != len(get_args(kind.type)) and NoneType in get_args(kind.type)
    if (words := _words(kind, parts)) is not None:
        told = [f"one of {', '.join(words)}"] if len(words) > 1 else list(words)
        return _either([*told, *_null(nullable)])
    if float in parts:
        parts = tuple(part for part in parts if part is not int)
    each = [text for part in parts for text in _part(_bare(part, kind.marks), finite, alone=len(parts) == 1)]
    return _either([*each, *_null(nullable)])


def _words(kind: Kind, parts: Sequence[Any]) -> tuple[str, ...] | None:
    """The only words that are allowed; None where other things are too."""
    given = next((mark.words for mark in kind.marks if isinstance(mark, Words)), None)
    if given is None and len(parts) == 1 and get_origin(parts[0]) is Literal:
        given = tuple(map(str, get_args(parts[0])))
    return given


def _part(kind: Kind, finite: bool, *, alone: bool) -> list[str]:
    """One branch, as one or more alternatives. alone: it is the only one, so that its items are worth a word."""
    annotation = kind.type
    if _is_model(annotation):
        keys = list(annotation.model_fields)
        return [f"a mapping of keys ({', '.join(keys[:MOST_KEYS])}{', ...' * (len(keys) > MOST_KEYS)})"]
    if get_origin(annotation) is Literal:
        return [str(word) for word in get_args(annotation)]
    if get_origin(annotation) in (list, tuple):
        items = get_args(annotation)
        count = f" of {len(items)}" if get_origin(annotation) is tuple else ""
        return [f"a list{count}, each {allowed(Kind(type=items[0]), finite=finite)}" if alone else "a list"]
    if get_origin(annotation) is dict:
        return [f"a mapping, each value {allowed(Kind(type=inside(annotation)), finite=finite)}"]
    if annotation is bool:
        return ["true", "false"]
    if annotation is str:
        return [next((mark.text for mark in kind.marks if isinstance(mark, Told)), "text")]
    if annotation in (int, float):
        what = "a whole number" if annotation is int else "a finite number" if finite else "a number"
        bounds = _bounds(kind.marks, whole=annotation is int)
        return [f"{what} {bounds}" if bounds else what]
    return [getattr(annotation, "__name__", str(annotation))]


def _bounds(marks: Iterable[Any], *, whole: bool) -> str:
    low = high = ""
    closed = False
    for mark in marks:
        match mark:
            case annotated_types.Ge(ge):
                low, closed = f"from {_number(ge)}", True
            case annotated_types.Gt(gt):
                low = f"above {_number(gt)}"
            case annotated_types.Le(le):
                high = f"at most {_number(le)}"
            case annotated_types.Lt(int() | float() as lt):
                high = f"at most {_number(lt - 1)}" if whole else f"below {_number(lt)}"
    if closed and not high:
        return low.replace("from", "of at least")
    if closed and high.startswith("at most"):
        return f"{low} {high.replace('at most', 'to')}"
    return f"{low}, {high}" if low and high else low or high


def _number(value: Any) -> str:
    return str(int(value)) if float(value).is_integer() else f"{value:g}"


def _either(told: Sequence[str]) -> str:
    """Alternatives; a comma before the last where one of them is more than a word."""
    if len(told) < 2:
        return "".join(told)
    comma = "," * any(" " in text for text in told)
    return f"{', '.join(told[:-1])}{comma} or {told[-1]}"


def _null(nullable: bool) -> list[str]:
    return ["null"] * nullable


def _bare(annotation: Any, marks: tuple[Any, ...] = ()) -> Kind:
    """Without `Annotated`, whose marks are added to those given."""
    if get_origin(annotation) is Annotated:
        return Kind(type=get_args(annotation)[0], marks=(*marks, *_flat(annotation.__metadata__)))
    return Kind(type=annotation, marks=marks)


def _flat(marks: Iterable[Any]) -> tuple[Any, ...]:
    """pydantic keeps the bounds of a `Field` inside it."""
    return tuple(each for mark in marks for each in (mark.metadata if isinstance(mark, FieldInfo) else (mark,)))


def _is_model(annotation: Any) -> bool:
    return isinstance(annotation, type) and issubclass(annotation, BaseModel)
