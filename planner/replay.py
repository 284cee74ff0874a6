"""Stored decisions: a state, the time and the actions that came of it, as bytes; and the same policy asked again.

Plain JSON, compressed: readable for years, exact for every float, and nothing is executed to read it. Refuses what is
no stored decision, or names a kind of value that this version does not know.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields, is_dataclass
from typing import Any

from planner import profile, stage_model
from planner.policy import actions, bound, counted, decide, improvements, state
from planner.policy.actions import Action
from planner.policy.state import State

_MODULES = (actions, bound, counted, improvements, profile, stage_model, state)
_KINDS: dict[str, type] = {
    name: kind
    for module in _MODULES
    for name, kind in vars(module).items()
    if isinstance(kind, type) and is_dataclass(kind)
}

KIND, SET = "$", "$set"
"""Keys that say what an object was."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """A stored decision that the policy would not take again."""

    place: int
    """Among the decisions that were replayed, from 0."""
    now: float
    """The time that was handed to the policy."""
    stored: tuple[Action, ...]
    again: tuple[Action, ...]


def encode(picture: State, now: float, taken: Sequence[Action]) -> bytes:
    """A decision as it is stored."""
    document = {"now": now, "state": _plain(picture), "actions": [_plain(action) for action in taken]}
    return zlib.compress(json.dumps(document, separators=(",", ":")).encode(), level=1)


def decode(data: bytes) -> tuple[State, float, tuple[Action, ...]]:
    """The decision again. Raises ValueError for anything else than what `encode` made."""
    try:
        document = json.loads(zlib.decompress(data))
        picture, taken = _value(document["state"]), tuple(_value(action) for action in document["actions"])
        now = float(document["now"])
    except (zlib.error, UnicodeDecodeError, KeyError, TypeError) as error:
        raise ValueError(f"this is no stored decision: {type(error).__name__}: {error}") from error
    if not isinstance(picture, State):
        raise ValueError(f"a stored decision must hold a State, got {type(picture).__name__}")
    return picture, now, taken


def replay(stored: Iterable[bytes]) -> tuple[int, list[Difference]]:
    """Ask the policy again: how many decisions were replayed, and those that came out differently."""
    count, differences = 0, []
    for data in stored:
        picture, now, taken = decode(data)
        again = tuple(decide.decide(picture, now))
        if again != taken and repr(again) != repr(taken):  # a predicted gain that nobody made is nan, unequal to itself
            differences.append(Difference(place=count, now=now, stored=taken, again=again))
        count += 1
    return count, differences


def _plain(value: Any) -> Any:
    if is_dataclass(value) and not isinstance(value, type):
        name = type(value).__name__
        assert _KINDS.get(name) is type(value), f"{name} is not stored"
        # what a value derives of itself is not stored
        return {KIND: name} | {field.name: _plain(getattr(value, field.name)) for field in fields(value) if field.init}
    if isinstance(value, tuple | list):
        return [_plain(item) for item in value]
    if isinstance(value, frozenset):
        return {SET: sorted(value)}
    assert value is None or isinstance(value, bool | int | float | str), f"{value!r} is not stored"
    return value


def _value(plain: Any) -> Any:
    if isinstance(plain, list):
        return tuple(_value(item) for item in plain)
    if not isinstance(plain, dict):
        return plain
    if SET in plain:
        return frozenset(plain[SET])
    kind = _KINDS.get(plain[KIND])
    if kind is None:
        raise ValueError(f"a stored decision holds a {plain[KIND]!r}, which this version does not know")
    return kind(**{name: _value(value) for name, value in plain.items() if name != KIND})
