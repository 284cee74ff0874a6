"""Which runs the table shows: words searched for, and choices of state, kind, arm, comparison and tag. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from app.runs_table import Listed


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What is asked for; what is left empty asks for nothing."""

    words: tuple[str, ...] = ()
    """Each must be found, in whatever case, in the name, id, tags, note, who or arm."""
    states: frozenset[str] = field(default_factory=frozenset)
    """One of them."""
    kinds: frozenset[str] = field(default_factory=frozenset)
    """One of them."""
    arms: frozenset[str] = field(default_factory=frozenset)
    """One of them."""
    tags: frozenset[str] = field(default_factory=frozenset)
    """All of them."""
    comparison: str = ""
    """Id of a comparison."""

    @property
    def everything(self) -> bool:
        """Whether nothing is asked for."""
        return self == Wanted()

    def has(self, listed: Listed) -> bool:
        """Whether a run is wanted."""
        run = listed.run
        return (
            (not self.states or listed.state in self.states)
            and (not self.kinds or run.kind in self.kinds)
            and (not self.arms or run.arm in self.arms)
            and self.tags <= set(listed.tags)
            and (not self.comparison or run.comparison == self.comparison)
            and (not self.words or all(word in searched(listed) for word in self.words))
        )


def words_of(text: str) -> tuple[str, ...]:
    """What is searched for, case folded."""
    return tuple(text.casefold().split())


def searched(listed: Listed) -> str:
    """The text in which a word is looked for."""
    run = listed.run
    parts = (run.name, run.run_id, *listed.tags, listed.note, run.who or "", run.arm)
    # a line break between the parts: no word of a search reaches from one into the next
    return "\n".join(parts).casefold()


def wanted_runs(runs: Iterable[Listed], wanted: Wanted) -> list[Listed]:
    """Those that are wanted, in their order."""
    return [each for each in runs if wanted.has(each)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Offers:
    """What can be chosen, most frequent first; a choice with one value tells nothing and is still offered."""

    states: Sequence[str]
    kinds: Sequence[str]
    arms: Sequence[str]
    tags: Sequence[str]
    comparisons: dict[str, int]
    """Id -> its runs, newest comparison first."""


def offers(runs: Sequence[Listed]) -> Offers:
    """What these runs can be chosen by."""
    return Offers(
        states=_most(each.state for each in runs),
        kinds=_most(each.run.kind for each in runs),
        arms=_most(each.run.arm for each in runs),
        tags=_most(tag for each in runs for tag in each.tags),
        comparisons=dict(Counter(each.run.comparison for each in runs if each.run.comparison)),
    )


def _most(values: Iterable[str]) -> list[str]:
    return [value for value, _ in Counter(filter(None, values)).most_common()]
