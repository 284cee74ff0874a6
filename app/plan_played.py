"""Playing simulated runs while somebody waits: a slice at a time, each told as it goes, apart from the app's process,
none longer than it may be, and none twice. What was played is kept by its contents, for all sessions. It draws nothing
and decides nothing.

    what is to be played --a slice--> one simulated run after the other --> figures, or the reason why there are none
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from functools import partial
from statistics import median
from threading import Lock
from typing import TypeVar

from app.apart import APART, Busy, Tell, TooLong
from engine.config.playing import Prepared, idle_of
from planner.simulator.colocated import simulator_of
from planner.simulator.trace import Trace

SLICE_S = 1.5
"""Seconds of playing between two pictures: a reader sees that it goes on, and can stop it."""

LONGEST_S = 20.0
"""Seconds that one simulated run may take; a longer one is not waited for."""

KEPT = 4096
"""Figures of simulated runs in memory: some hundred bytes each."""

Clock = Callable[[], float]

Key = TypeVar("Key", bound=Hashable)

Todo = tuple[str, Prepared]
"""A simulated run under the name of its content."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """What a simulated run came to, or why it has no figures."""

    tokens_per_s: float | None = None
    """Of its steady part."""
    step_s: float | None = None
    """Median, virtual seconds."""
    idle: float | None = None
    """Share of device time."""
    structural: float | None = None
    """What a better split would have saved; None without pools."""
    residual: float | None = None
    """The rest."""
    lag: float | None = None
    """Mean versions that groups were late."""
    why_not: str = ""
    """One sentence where there are no figures."""


Player = Callable[[Prepared, Tell], Figures]
"""Plays one run."""


class Memory:
    """Figures by what was played; the oldest are forgotten. Threads of several sessions share it."""

    def __init__(self, most: int = KEPT) -> None:
        self._most = most
        self._found: OrderedDict[str, Figures] = OrderedDict()
        self._lock = Lock()

    def get(self, key: str) -> Figures | None:
        """None for what was not played, or long ago."""
        with self._lock:
            found = self._found.get(key)
            if found is not None:
                self._found.move_to_end(key)
            return found

    def put(self, key: str, figures: Figures) -> None:
        """Keep them."""
        with self._lock:
            self._found[key] = figures
            self._found.move_to_end(key)
            while len(self._found) > self._most:
                self._found.popitem(last=False)

    def clear(self) -> None:
        """Forget everything."""
        with self._lock:
            self._found.clear()


MEMORY = Memory()


def content(made: Prepared) -> str:
    """The same for simulated runs that come out the same: all that is played, the recorded work included."""
    return hashlib.sha256(repr((made.setup, made.split)).encode()).hexdigest()


def figures_of(made: Prepared, trace: Trace) -> Figures:
    """The figures of a simulated run that was played to its end."""
    idle = idle_of(trace, made.split)
    groups = sum(trace.lags.values())
    return Figures(
        tokens_per_s=trace.throughput,
        step_s=median(step.ended_at - step.began_at for step in trace.steps),
        idle=idle["fraction"],
        structural=idle["structural_fraction"],
        residual=idle["residual_fraction"],
        lag=sum(lag * count for lag, count in trace.lags.items()) / groups if groups else None,
    )


def play(tell: Tell, made: Prepared) -> Figures:
    """Play one run to its end. tell: is told the share that is done, after every step.

    What cannot be played to its end has the reason instead of figures.
    """
    try:
        simulator = simulator_of(made.setup)
        simulator.watch = lambda steps: tell(steps / made.setup.steps)
        return figures_of(made, simulator.run())
    except (RuntimeError, ValueError) as error:
        return Figures(why_not=f"not played: {error}")


def play_apart(made: Prepared, tell: Tell, longest_s: float = LONGEST_S) -> Figures:
    """The same in the process for long computations, and no longer than it may take. Raises Busy while that works for
    another reader."""
    try:
        return APART.run(play, longest_s, tell, made)
    except TooLong as error:
        return Figures(why_not=f"not played: {error}, which is what a page waits for one simulated run")
    except Busy:
        raise
    except RuntimeError as error:
        return Figures(why_not=f"not played: {error}")


def play_some(
    todo: Mapping[Key, Todo],
    *,
    clock: Clock,
    tell: Callable[[Key, int, float], None],
    memory: Memory = MEMORY,
    slice_s: float = SLICE_S,
    player: Player = play_apart,
) -> bool:
    """Play what is to be played, in its order, until a slice is over; at least one run, unless another reader's is
    played. True when nothing is left.

    tell: is told which run goes on, how many are done, and the share of this one.
    """
    began, played = clock(), 0
    for place, (key, (name, made)) in enumerate(todo.items()):
        if memory.get(name) is not None:
            continue
        if played and clock() - began >= slice_s:
            return False
        try:
            memory.put(name, player(made, partial(tell, key, place)))
        except Busy:
            return False
        played += 1
    return True


def known_of(todo: Mapping[Key, Todo], *, memory: Memory = MEMORY) -> dict[Key, Figures]:
    """What of it was played before."""
    return {key: found for key, (name, _) in todo.items() if (found := memory.get(name)) is not None}
