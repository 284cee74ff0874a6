"""What a page asks of decisions and of groups, as SQL conditions with their parameters. It runs no query.

Every condition is one that an index can narrow, or one that is looked at row by row only within a run. Words that
`words.py` does not know are refused, so that a misspelt filter is an error and never an empty page.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from storage import words

Condition = tuple[str, tuple[Any, ...]]
"""SQL, and the values of its question marks."""

LENT = (
    "lease IN (SELECT lease FROM leases WHERE run_id = ?"
    " AND EXISTS (SELECT 1 FROM json_each(devices_json) WHERE value = ?))"
)
"""A decision's lease lent this device."""

NO_SIGNAL = (
    "state = 'consumed' AND (SELECT count(DISTINCT json_extract(value, '$.reward')) FROM json_each(responses)) = 1"
)

IN_TEXTS = (
    "(instr(lower(prompt), lower(?)) OR EXISTS (SELECT 1 FROM json_each(responses)"
    " WHERE instr(lower(json_extract(value, '$.text')), lower(?))))"
)
"""The texts of the responses, not their JSON, which writes quotes and line breaks another way."""

SORTS = {
    "newest": "group_id DESC",
    "lowest reward": "reward_mean IS NULL, reward_mean, group_id DESC",
    "highest reward": "reward_mean IS NULL, reward_mean DESC, group_id DESC",
}
"""Order of groups -> SQL; a reward that is not known stands last, whichever way."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DecisionFilter:
    """Which decisions of a run. Raises ValueError for an unknown action or direction, or for a range that runs
    backwards."""

    action: str | None = None
    """One of `words.DECISIONS`; None for any, as below."""
    direction: str | None = None
    """One of `words.DIRECTIONS`."""
    device: int | None = None
    """Device that its lease lent; without a lease, the block that it is about."""
    steps: tuple[int | None, int | None] = (None, None)
    """First and last step, both included."""
    times: tuple[float | None, float | None] = (None, None)
    """From (included) and until (not included), unix seconds."""
    lease: int | None = None
    """Lease that it granted or ended."""
    text: str = ""
    """Text that its reason contains, case ignored."""
    lost_time: bool = False
    """Only those whose lease, as measured, lost time."""

    def __post_init__(self) -> None:
        if self.action is not None:
            words.require("action of a decision", self.action, words.DECISIONS)
        if self.direction is not None:
            words.require("direction of a decision", self.direction, words.DIRECTIONS)
        for name, (low, high) in (("steps", self.steps), ("times", self.times)):
            if low is not None and high is not None and low > high:
                raise ValueError(f"{name} of decisions must not run backwards, got {low!r} to {high!r}")

    @property
    def order(self) -> str:
        """The number of a decision, behind ORDER BY. With the plus, SQLite looks for the few that are wanted by their
        own index; without it, it walks from the newest on, which is right where many are."""
        return "+id" if self.lease is not None or None not in self.times else "id"

    def conditions(self, run_id: str) -> Iterator[Condition]:
        """All of them must hold for a row of `decisions`."""
        yield "run_id = ?", (run_id,)
        if self.action is not None:
            yield "action = ?", (self.action,)
        if self.direction is not None:
            yield "direction = ?", (self.direction,)
        if self.device is not None:
            yield f"({LENT} OR (lease IS NULL AND block = ?))", (run_id, self.device, self.device)
        yield from _between("step", self.steps, inclusive=True)
        yield from _between("at", self.times, inclusive=False)
        if self.lease is not None:
            yield "lease = ?", (self.lease,)
        if self.text:
            yield "instr(lower(reason), lower(?))", (self.text,)
        if self.lost_time:
            yield "lease IN (SELECT lease FROM leases WHERE run_id = ? AND measured_gain_s < 0)", (run_id,)


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupFilter:
    """Which groups of a run, and in which order. Raises ValueError for an unknown state or sort, or a range that runs
    backwards."""

    step: int | None = None
    """Step that consumed it; None for any, as below."""
    state: str | None = None
    """One of `words.GROUP_STATES`."""
    search: str = ""
    """Text that prompt or responses contain, case ignored."""
    rewards: tuple[float | None, float | None] = (None, None)
    """Least and largest mean reward, both included."""
    lag: int | None = None
    """In versions, when it was consumed."""
    devices: frozenset[int] | None = None
    """It was finished on one of these."""
    no_signal: bool = False
    """Only those whose rewards are all equal, so that they carried no gradient."""
    sort: str = "newest"
    """One of `SORTS`."""

    def __post_init__(self) -> None:
        if self.state is not None:
            words.require("state of a group", self.state, words.GROUP_STATES)
        words.require("order of groups", self.sort, tuple(SORTS))
        low, high = self.rewards
        if low is not None and high is not None and low > high:
            raise ValueError(f"rewards of groups must not run backwards, got {low!r} to {high!r}")

    @property
    def order(self) -> str:
        """SQL behind ORDER BY."""
        return SORTS[self.sort]

    def conditions(self, run_id: str) -> Iterator[Condition]:
        """All of them must hold for a row of `groups`."""
        yield "run_id = ?", (run_id,)
        for column, value in (("step", self.step), ("state", self.state), ("lag", self.lag)):
            if value is not None:
                yield f"{column} = ?", (value,)
        yield from _between("reward_mean", self.rewards, inclusive=True)
        if self.devices is not None:
            marks = ", ".join("?" * len(self.devices))
            yield f"device IN ({marks})", tuple(sorted(self.devices))
        if self.no_signal:
            yield NO_SIGNAL, ()
        if self.search:
            yield IN_TEXTS, (self.search, self.search)


def joined(conditions: Iterator[Condition]) -> Condition:
    """One condition of all."""
    texts, values = zip(*conditions, strict=True)
    return " AND ".join(texts), tuple(value for some in values for value in some)


def _between(column: str, ends: tuple[float | None, float | None], *, inclusive: bool) -> Iterator[Condition]:
    low, high = ends
    if low is not None:
        yield f"{column} >= ?", (low,)
    if high is not None:
        yield f"{column} {'<=' if inclusive else '<'} ?", (high,)
